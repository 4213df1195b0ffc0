"""Retained values survive the process (docs/delivery.md, "Last values")."""

from __future__ import annotations

from tests.support import frames
from tests.support.clock import wait_ms
from tests.support.expiry import epoch_ms
from tests.support.queues import fresh, until_receipt
from tests.support.stored import PERSISTENT, Restart, Stored
from tests.support.wire import Wire


def retain(wire: Wire, topic: str, body: str, **headers: frames.HeaderValue) -> None:
    """Sets the value of a topic."""
    wire.send_and_wait(topic, body, PERSISTENT, retain="set", **headers)


def values(wire: Wire, pattern: str) -> dict[str, str]:
    """The values of the topics that match."""
    receipt = fresh("values")
    wire.send(frames.subscribe(pattern, receipt, receipt=receipt))
    found = until_receipt(wire, receipt)
    assert all(message.header("retained") == "true" for message in found)
    return {message["destination"]: message.text for message in found}


def test_the_last_value_that_was_set_survives(stored: Stored, topic: str, restart: Restart) -> None:
    wire = stored.client()
    for number in range(10):
        for name in "abcd":
            retain(wire, f"{topic}/{name}", f"{name}{number}")
    for _ in range(2):
        restart(stored)
        assert values(stored.client(), f"{topic}/*") == {f"{topic}/{name}": f"{name}9" for name in "abcd"}


def test_a_value_that_was_removed_does_not_come_back(stored: Stored, topic: str, restart: Restart) -> None:
    wire = stored.client()
    retain(wire, f"{topic}/a", "1")
    retain(wire, f"{topic}/b", "2")
    wire.send_and_wait(f"{topic}/a", "", PERSISTENT, retain="remove")
    restart(stored)
    assert values(stored.client(), f"{topic}/*") == {f"{topic}/b": "2"}


def test_a_value_of_an_earlier_process_is_replaced_and_removed(stored: Stored, topic: str, restart: Restart) -> None:
    retain(stored.client(), f"{topic}/a", "1")
    retain(stored.client(), f"{topic}/b", "1")
    restart(stored)
    retain(stored.client(), f"{topic}/a", "2")
    stored.client().send_and_wait(f"{topic}/b", "", retain="remove")
    assert values(stored.client(), f"{topic}/*") == {f"{topic}/a": "2"}
    restart(stored)
    assert values(stored.client(), f"{topic}/*") == {f"{topic}/a": "2"}


def test_values_of_a_transaction_survive(stored: Stored, topic: str, restart: Restart) -> None:
    wire = stored.client()
    retain(wire, f"{topic}/a", "1")
    wire.send(
        frames.begin("t"),
        frames.send(f"{topic}/a", "", PERSISTENT, retain="remove", transaction="t"),
        frames.send(f"{topic}/b", "2", PERSISTENT, retain="set", transaction="t"),
        frames.commit("t", receipt="committed"),
    )
    wire.expect_receipt("committed")
    restart(stored)
    assert values(stored.client(), f"{topic}/*") == {f"{topic}/b": "2"}


def test_a_value_expires_in_the_next_process(stored: Stored, topic: str, restart: Restart) -> None:
    """It may have expired in the process that kept it, too: the time passes in both."""
    wire = stored.client()
    retain(wire, f"{topic}/short", "1", expires=epoch_ms(1500))
    retain(wire, f"{topic}/long", "2", ttl=3_600_000)
    restart(stored)
    wait_ms(stored.client(), 1600)
    assert values(stored.client(), f"{topic}/*") == {f"{topic}/long": "2"}
    restart(stored)
    assert values(stored.client(), f"{topic}/*") == {f"{topic}/long": "2"}


def test_max_retained_counts_values_of_an_earlier_process(stored: Stored, topic: str, restart: Restart) -> None:
    retain(stored.client(), f"{topic}/a", "1")
    restart(stored)
    stored.restart(max_retained=1)
    wire = stored.client()
    retain(wire, f"{topic}/a", "2")
    wire.send(frames.send(f"{topic}/b", "x", PERSISTENT, retain="set"))
    wire.expect_error("E-RETAINED-COUNT")
