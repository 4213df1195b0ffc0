"""ACK and NACK in transactions: docs/behaviour.md, section 3; docs/specification.md, items 73 and 74."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack, nack, settle
from tests.support.clients import Clients, StartBroker
from tests.support.clock import wait_ms
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, left_in, numbered, take, until_receipt
from tests.support.transactions import INDIVIDUAL, commit, consume
from tests.support.wire import Wire


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", *LOSSES])
def test_an_ack_takes_effect_only_if_committed(client: Clients, queue: str, version: str, mode: str, end: str) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2", "3")
    messages = consume(wire, queue, "1", "2", "3", mode=mode)
    wire.send(frames.begin("t"), ack(wire, messages[1], transaction="t", receipt="r"))
    wire.expect_receipt("r")
    if end in LOSSES:
        LOSSES[end](wire)
    else:
        wire.send(frames.frame(end, ("transaction", "t"), ("receipt", "e")))
        wire.expect_receipt("e")
        wire.reset()
    left = {"client": ["3"], INDIVIDUAL: ["1", "3"]}[mode] if end == "COMMIT" else ["1", "2", "3"]
    other.send(frames.subscribe(queue, "again"))
    take(other, *left, redelivered="true")
    other.send(frames.send(queue, "end"))
    other.expect_message("end", redelivered=None)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_ack_gives_credit_at_commit(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2")
    (message,) = consume(wire, queue, "1", mode=mode, prefetch_count=1)
    wire.send(frames.begin("t"), ack(wire, message, transaction="t", receipt="r"))
    wire.expect_receipt("r")
    fill(other, queue, "3")
    wire.barrier(other)
    wire.send(frames.commit("t", receipt="c"))
    assert sorted((wire.recv_frame().command, wire.recv_frame().command)) == ["MESSAGE", "RECEIPT"]
    wire.barrier(other)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_after_abort_a_message_can_be_acknowledged_again(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2")
    message, _ = consume(wire, queue, "1", "2", mode=mode)
    for number in range(3):
        wire.send(frames.begin("t"), ack(wire, message, transaction="t"), frames.abort("t", receipt=str(number)))
        wire.expect_receipt(str(number))
    wire.send(frames.begin("t"), ack(wire, message, transaction="t"))
    commit(wire)
    wire.reset()
    other.send(frames.subscribe(queue, "again"))
    other.expect_message("2", redelivered="true")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("mode", ["client", INDIVIDUAL])
def test_a_nack_takes_effect_at_commit(
    client: Clients, quick: BrokerProcess, queue: str, version: str, mode: str
) -> None:
    wire, other = client(version, to=quick), client(version, to=quick)
    fill(other, queue, "1")
    (message,) = consume(wire, queue, "1", mode=mode, prefetch_count=1)
    other.subscribe(queue, "other", ack=mode)
    wire.send(frames.begin("t"), nack(wire, message, transaction="t", receipt="r"))
    wire.expect_receipt("r")
    wait_ms(other, 50)
    other.send(frames.send(queue, "2"))
    other.expect_message("2")
    commit(wire)
    again = other.expect_message("1", redelivered="true", delivery_count="2")
    assert again["message-id"] == message["message-id"]


@pytest.mark.parametrize("version", ESCAPING)
def test_an_aborted_nack_is_not_a_failed_delivery(quick_client: Wire, queue: str) -> None:
    fill(quick_client, queue, "1")
    (message,) = consume(quick_client, queue, "1")
    quick_client.send(
        frames.begin("t"), nack(quick_client, message, transaction="t"), frames.abort("t"), nack(quick_client, message)
    )
    quick_client.expect_message("1", redelivered="true", delivery_count="2")


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_unknown_ack_in_a_transaction_is_an_error_at_once(
    client: Clients, queue: str, version: str, mode: str
) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1")
    (message,) = consume(wire, queue, "1", mode=mode)
    wire.send(frames.begin("t"), frames.send(f"{queue}/out", "never", transaction="t"))
    wire.send(ack(wire, message, transaction="t"))
    wire.send(frames.ack(id="x", message_id="x", subscription="held", transaction="t", receipt="r"))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")
    other.send(frames.subscribe(queue, "again"))
    other.expect_message("1", redelivered="true")
    assert left_in(client(version), f"{queue}/out") == []


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_delivery_acknowledged_by_commit_is_settled(client: Clients, queue: str, version: str, mode: str) -> None:
    wire = client(version)
    fill(wire, queue, "1")
    (message,) = consume(wire, queue, "1", mode=mode)
    wire.send(frames.begin("t"), ack(wire, message, transaction="t"))
    commit(wire)
    wire.send(ack(wire, message, receipt="r"))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_passed_on_in_transactions_are_passed_on_once(client: Clients, queue: str, version: str) -> None:
    """ACK of the input and SEND of the output go together; each worker is lost with one transaction open."""
    other = client(version)
    numbers = numbered(30)
    fill(other, f"{queue}/in", *numbers)
    for first in range(0, 30, 5):
        worker = client(version)
        detector = LossDetector(worker, client(version))
        messages = consume(worker, f"{queue}/in", *numbers[first : first + 6], prefetch_count=6)
        for message in messages:
            worker.send(
                frames.begin("t"),
                frames.send(f"{queue}/out", message.body, transaction="t"),
                ack(worker, message, transaction="t", receipt=message.text),
            )
            until_receipt(worker, message.text)
            if message is not messages[5 if len(messages) > 5 else -1]:
                worker.send(frames.commit("t", receipt="c"))
                until_receipt(worker, "c")
        worker.reset()
        detector.wait()
    other.send(frames.subscribe(f"{queue}/in", "rest"))
    take(other, "29", redelivered="true")
    assert bodies(left_in(other, f"{queue}/out")) == numbers[:29]


@pytest.mark.parametrize("outside", ["ACK", "NACK"])
@pytest.mark.parametrize("inside", ["ACK", "NACK"])
def test_a_delivery_settled_outside_makes_the_commit_fail(
    client: Clients, shared_broker: StartBroker, queue: str, inside: str, outside: str
) -> None:
    broker = shared_broker(redelivery_delay="1h")
    wire, other = client(to=broker), client(to=broker)
    fill(other, queue, "1")
    (message,) = consume(wire, queue, "1")
    wire.send(frames.begin("t"), settle(inside, wire, message, transaction="t"))
    wire.send(frames.send(f"{queue}/out", "never", transaction="t"))
    wire.send(settle(outside, wire, message, receipt="settled"))
    wire.expect_receipt("settled")
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-TX-LOST", receipt_id="c")
    assert left_in(other, f"{queue}/out") == []
    assert bodies(left_in(other, queue)) == [], "it is acknowledged, or in its redelivery delay"


@pytest.mark.parametrize("first", ["ACK", "NACK"])
def test_the_first_of_several_answers_to_one_delivery_counts(
    client: Clients, shared_broker: StartBroker, queue: str, first: str
) -> None:
    broker = shared_broker(redelivery_delay="2ms")
    wire, other = client(to=broker), client(to=broker)
    fill(other, queue, "1", "2")
    message, _ = consume(wire, queue, "1", "2")
    second = "NACK" if first == "ACK" else "ACK"
    wire.send(frames.begin("t"))
    for number, command in enumerate((first, second, second)):
        wire.send(settle(command, wire, message, transaction="t", receipt=number))
        wire.expect_receipt(str(number))
    wire.send(frames.commit("t", receipt="c"), frames.unsubscribe("held", receipt="u"))
    came = []
    while (frame := wire.recv_frame()).header("receipt-id") != "u":
        came.append(frame.text if frame.command == "MESSAGE" else frame["receipt-id"])
    assert "c" in came
    other.send(frames.subscribe(queue, "again"))
    expected = ["2"] if first == "ACK" else ["1", "2"]
    assert sorted(message.text for message in [other.expect_message() for _ in expected]) == expected
    other.barrier()


def test_acks_count_against_the_size_of_transactions(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_transaction_size=88 * 3)
    wire, other = client(to=broker), client(to=broker)
    fill(other, queue, *"1234")
    wire.send(frames.subscribe(queue, "s", ack=INDIVIDUAL), frames.begin("t"))
    *fit, last = take(wire, *"1234")
    for message in fit:
        wire.send(ack(wire, message, transaction="t", receipt=message.text))
        wire.expect_receipt(message.text)
    wire.send(ack(wire, last, transaction="t", receipt="4"))
    wire.expect_error("E-TX-COUNT", receipt_id="4")
    other.send(frames.subscribe(queue, "again"))
    take(other, *"1234", redelivered="true")
