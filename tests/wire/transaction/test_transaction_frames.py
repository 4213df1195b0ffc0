"""STOMP 1.2 "BEGIN", "COMMIT" and "ABORT", and SEND in a transaction.

See docs/specification.md, item 72 and parts of 73 and 74.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.wire import Wire

# 1.0 has no NACK
VERSION_COMMAND = [(version, name) for version in VERSIONS for name in ("SEND", "ACK")]
VERSION_COMMAND += [(version, "NACK") for version in ESCAPING]
BOUNDARIES = ["BEGIN", "COMMIT", "ABORT"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", BOUNDARIES)
def test_the_transaction_header_is_required(client: Clients, version: str, command: str) -> None:
    wire = client(version)
    wire.send(frames.frame(command, ("receipt", "r")))
    wire.expect_error("E-TX-MISSING", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_an_unknown_transaction_is_an_error(client: Clients, version: str, command: str) -> None:
    wire = client(version)
    wire.send(frames.begin("known"), frames.frame(command, ("transaction", "unknown"), ("receipt", "r")))
    wire.expect_error("E-TX-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_begin_of_an_open_transaction_is_an_error(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.begin("t", receipt="1"), frames.begin("t", receipt="2"))
    wire.expect_receipt("1")
    wire.expect_error("E-TX-OPEN", receipt_id="2")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_a_transaction_ends_once(client: Clients, version: str, end: str) -> None:
    wire = client(version)
    wire.send(
        frames.begin("t"),
        frames.frame(end, ("transaction", "t"), ("receipt", "1")),
        frames.frame(end, ("transaction", "t"), ("receipt", "2")),
    )
    wire.expect_receipt("1")
    wire.expect_error("E-TX-UNKNOWN", receipt_id="2")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_name_can_be_used_again(subscriber: Wire, topic: str) -> None:
    for number in range(10):
        subscriber.send(
            frames.begin("t"),
            frames.send(topic, str(number), transaction="t"),
            (frames.abort if number % 2 else frames.commit)("t"),
        )
    for number in range(0, 10, 2):
        subscriber.expect_message(str(number))
    subscriber.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_are_delivered_at_commit_in_order(subscriber: Wire, publisher: Wire, topic: str) -> None:
    publisher.send(frames.begin("t"))
    for number in range(10):
        publisher.send(frames.send(topic, str(number), transaction="t"))
    publisher.send(frames.send(topic, "outside"))
    subscriber.expect_message("outside")
    subscriber.barrier(publisher)
    publisher.send(frames.commit("t", receipt="c"))
    publisher.expect_receipt("c")
    for number in range(10):
        subscriber.expect_message(str(number), transaction=None)
    subscriber.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_abort_drops_the_messages(subscriber: Wire, publisher: Wire, topic: str) -> None:
    publisher.send(frames.begin("t"), frames.send(topic, "never", transaction="t"), frames.abort("t", receipt="a"))
    publisher.expect_receipt("a")
    subscriber.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("end", ["disconnect", "half-close", "reset", "error"])
def test_the_end_of_the_connection_drops_the_messages(
    client: Clients, subscriber: Wire, publisher: Wire, topic: str, version: str, end: str
) -> None:
    publisher.send(frames.begin("t"), frames.send(topic, "never", transaction="t", receipt="r"))
    publisher.expect_receipt("r")
    if end == "disconnect":
        publisher.disconnect()
    elif end == "half-close":
        publisher.half_close()
        publisher.expect_closed()
    elif end == "error":
        publisher.send(frames.frame("NONSENSE"))
        publisher.expect_error("E-COMMAND")
    else:
        publisher.reset()
    subscriber.barrier(client(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_of_a_send_in_a_transaction_comes_before_commit(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.begin("t"), frames.send(topic, "x", transaction="t", receipt="accepted"))
    subscriber.expect_receipt("accepted")
    subscriber.barrier()
    subscriber.send(frames.commit("t"))
    subscriber.expect_message("x")


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_run_side_by_side(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.begin("a"), frames.begin("b"), frames.begin("c"))
    for number in range(4):
        for name in "abc":
            subscriber.send(frames.send(topic, f"{name}{number}", transaction=name))
    subscriber.send(frames.commit("b"), frames.abort("a"), frames.commit("c"))
    for name in "bc":
        for number in range(4):
            subscriber.expect_message(f"{name}{number}")
    subscriber.barrier()


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
def test_a_frame_in_an_unknown_transaction_is_an_error(client: Clients, topic: str, version: str, command: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "s", ack="client")
    wire.send(frames.send(topic, "x"))
    message = wire.expect_message("x")
    headers = [("destination", topic)]
    if command != "SEND":
        headers = [("message-id", message["message-id"]), ("subscription", "s"), ("id", message.header("ack") or "-")]
    wire.send(frames.frame(command, *headers, ("transaction", "unknown"), ("receipt", "r")))
    wire.expect_error("E-TX-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_belong_to_their_connection(client: Clients, topic: str, version: str) -> None:
    wire, one, other = client(version), client(version), client(version)
    wire.subscribe(topic)
    one.send(frames.begin("t"), frames.send(topic, "one", transaction="t", receipt="r"))
    other.send(frames.begin("t"), frames.send(topic, "other", transaction="t", receipt="r"))
    one.expect_receipt("r")
    other.expect_receipt("r")
    other.send(frames.commit("t"))
    wire.expect_message("other")
    stranger = client(version)
    stranger.send(frames.commit("t"))
    stranger.expect_error("E-TX-UNKNOWN")
    one.send(frames.commit("t"))
    wire.expect_message("one")
    wire.barrier(one)


@pytest.mark.parametrize("version", ESCAPING)
def test_transaction_names_are_escaped(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.begin("a:b"), frames.commit(r"a\cb", receipt="c"))
    wire.expect_receipt("c")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bad_frame_in_a_transaction_is_an_error_at_once(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.begin("t"), frames.frame("SEND", ("transaction", "t"), ("receipt", "r")))
    wire.expect_error("E-DEST-MISSING", receipt_id="r")


def test_too_many_open_transactions_are_an_error(client: Clients, shared_broker: StartBroker) -> None:
    broker = shared_broker(max_transactions=2, max_transaction_size=2000)
    wire = client(to=broker)
    wire.send(frames.begin("a"), frames.begin("b"), frames.commit("a"), frames.begin("c", receipt="1"))
    wire.expect_receipt("1")
    wire.send(frames.begin("d", receipt="2"))
    wire.expect_error("E-TX-COUNT", receipt_id="2")


def test_the_default_limit_of_open_transactions_is_100(client: Clients) -> None:
    wire = client()
    wire.send(*(frames.begin(str(number)) for number in range(100)))
    wire.barrier()
    wire.send(frames.begin("100"))
    wire.expect_error("E-TX-COUNT")


def test_too_many_bytes_in_transactions_are_an_error(client: Clients, shared_broker: StartBroker, topic: str) -> None:
    broker = shared_broker(max_transactions=2, max_transaction_size=2000)
    bystander, wire = client(to=broker), client(to=broker)
    bystander.subscribe(topic)
    wire.send(frames.begin("t"), frames.send(topic, "x" * 1000, transaction="t", receipt="1"))
    wire.expect_receipt("1")
    wire.send(frames.send(topic, "x" * 1500, transaction="t", receipt="2"))
    wire.expect_error("E-TX-COUNT", "E-MESSAGE-SIZE", receipt_id="2")
    bystander.barrier()
