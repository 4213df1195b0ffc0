"""ACKs whose id is unknown or names a delivery that was requeued.

See docs/specification.md, items 65 to 70; docs/behaviour.md, sections 3 and 7.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, VERSION_COMMAND, ack, ack_and_wait, deliver, nack, settle, unacknowledged
from tests.support.clients import Clients, StartBroker
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import NUMBERS, bodies, fill, left_in, numbered, take, unsubscribe_and_wait, until_receipt

# -- unknown ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
@pytest.mark.parametrize("id", ["xnever", "0", "-1", "99999999999999999999999", "é"])
def test_an_id_that_was_never_issued_is_unknown(
    client: Clients, queue: str, version: str, command: str, id: str
) -> None:
    wire, successor = client(version), client()
    deliver(wire, queue, 2)
    id = f"x{id}"
    wire.send(frames.frame(command, ("id", id), ("message-id", id), ("subscription", "s"), ("receipt", "r")))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")
    successor.send(frames.subscribe(queue))
    take(successor, "0", "1", redelivered="true")


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_an_id_that_was_acknowledged_is_unknown(client: Clients, destination: str, version: str, mode: str) -> None:
    wire = client(version)
    messages = deliver(wire, destination, 3, ack=mode)
    assert ack_and_wait(wire, messages[1]) == []
    wire.send(ack(wire, messages[1], receipt="r"))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_an_id_covered_by_a_later_ack_is_unknown(client: Clients, destination: str, version: str) -> None:
    wire = client(version)
    messages = deliver(wire, destination, 3)
    assert ack_and_wait(wire, messages[2]) == []
    wire.send(ack(wire, messages[0], receipt="r"))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize(("first", "second"), [("ACK", "NACK"), ("NACK", "ACK"), ("NACK", "NACK")])
def test_an_id_that_was_settled_is_unknown(
    client: Clients, shared_broker: StartBroker, queue: str, version: str, mode: str, first: str, second: str
) -> None:
    """The redelivery delay is so long that the old id is still unknown when it is used, in 1.1 too."""
    broker = shared_broker(redelivery_delay="1h")
    wire = client(version, to=broker)
    messages = deliver(wire, queue, 2, ack=mode)
    wire.send(settle(first, wire, messages[0], receipt="first"), settle(second, wire, messages[0], receipt="second"))
    wire.expect_receipt("first")
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="second")


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_an_id_of_another_connection_is_unknown(client: Clients, destination: str, version: str, command: str) -> None:
    owner, intruder = client(version), client(version)
    deliver(intruder, destination + "-thief", 1)
    messages = deliver(owner, destination, 20)
    intruder.send(settle(command, intruder, messages[-1], receipt="r"))
    intruder.expect_error("E-ACK-UNKNOWN", receipt_id="r")
    assert ack_and_wait(owner, messages[-1]) == []
    owner.barrier()


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("subscription", ["b", "never"])
def test_a_message_of_another_subscription_is_unknown_in_1_1(
    client: Clients, queue: str, command: str, subscription: str
) -> None:
    wire = client("1.1")
    (message,) = deliver(wire, f"{queue}-a", 1, "a")
    deliver(wire, f"{queue}-b", 1, "b")
    pairs = [("subscription", subscription), ("message-id", message["message-id"]), ("receipt", "r")]
    wire.send(frames.frame(command, *pairs))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_an_id_delivered_in_auto_mode_is_unknown(client: Clients, destination: str, version: str, command: str) -> None:
    wire = client(version)
    wire.subscribe(destination, "s")
    wire.send(frames.send(destination, "x"))
    message = wire.expect_message("x")
    id = message["message-id"]
    wire.send(frames.frame(command, ("id", id), ("message-id", id), ("subscription", "s"), ("receipt", "r")))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


def test_an_error_affects_no_other_connection(client: Clients, queue: str) -> None:
    """ACKs before the failing one count; the connection's other messages in flight go to the next consumer."""
    wire, other, successor = client(), client(), client()
    kept = deliver(other, f"{queue}-other", 2)
    messages = deliver(wire, queue, 4, ack="client-individual")
    wire.send(ack(wire, messages[1]), frames.ack(id="never"), ack(wire, messages[2]))
    wire.expect_error("E-ACK-UNKNOWN")
    successor.send(frames.subscribe(queue))
    take(successor, "0", "2", "3", redelivered="true")
    assert ack_and_wait(other, kept[1]) == []
    assert unacknowledged(other, f"{queue}-other") == []


# -- ids of requeued deliveries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
def test_an_ack_after_unsubscribe_is_a_no_op(client: Clients, queue: str, version: str, command: str) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 4)
    assert unsubscribe_and_wait(wire, "s") == []
    for at in (3, 0):
        wire.send(settle(command, wire, messages[at], receipt="late"))
        wire.expect_receipt("late")
    assert bodies(left_in(wire, queue)) == NUMBERS[:4]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_behind_an_unsubscribe_in_one_segment_is_a_no_op(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 3)
    wire.send(frames.unsubscribe("s", receipt="u"), ack(wire, messages[2], receipt="late"))
    wire.expect_receipt("u")
    wire.expect_receipt("late")
    assert bodies(left_in(wire, queue)) == NUMBERS[:3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_ack_does_not_affect_the_new_consumer(client: Clients, queue: str, version: str) -> None:
    wire, successor = client(version), client(version)
    messages = deliver(wire, queue, 3)
    assert unsubscribe_and_wait(wire, "s") == []
    successor.send(frames.subscribe(queue, "s", ack="client"))
    again = take(successor, *NUMBERS[:3], redelivered="true")
    wire.send(ack(wire, messages[2], receipt="late"))
    wire.expect_receipt("late")
    assert ack_and_wait(successor, again[1]) == []
    assert unacknowledged(successor, queue) == ["2"]


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
def test_an_ack_after_ack_timeout_is_a_no_op(
    client: Clients, impatient: BrokerProcess, queue: str, version: str, command: str
) -> None:
    wire, successor = client(version, to=impatient), client(to=impatient)
    messages = deliver(wire, queue, 2)
    successor.send(frames.subscribe(queue, "successor"))
    assert {successor.expect_message(redelivered="true").text for _ in range(2)} == {"0", "1"}
    for message in messages:
        wire.send(settle(command, wire, message, receipt="late"))
        until_receipt(wire, "late")
    wire.barrier(successor)
    successor.barrier(wire)


def test_a_redelivery_after_ack_timeout_has_an_id_of_its_own(
    client: Clients, impatient: BrokerProcess, queue: str
) -> None:
    wire = client("1.2", to=impatient)
    (first,) = deliver(wire, queue, 1)
    second = wire.expect_message("0", redelivered="true", delivery_count="2")
    assert first["ack"] != second["ack"]
    wire.send(ack(wire, first, receipt="late"))
    found = until_receipt(wire, "late")
    wire.expect_message("0", delivery_count=str(3 + len(found)))


def test_an_ack_in_1_1_names_the_message_and_not_the_delivery(
    client: Clients, quick: BrokerProcess, queue: str
) -> None:
    wire = client("1.1", to=quick)
    (first,) = deliver(wire, queue, 1)
    wire.send(nack(wire, first))
    second = wire.expect_message("0", redelivered="true")
    assert first["message-id"] == second["message-id"]
    assert ack_and_wait(wire, first) == []
    assert unacknowledged(wire, queue) == []


@pytest.mark.parametrize("version", ESCAPING)
def test_late_acks_are_recognised_after_many_deliveries(client: Clients, queue: str, version: str) -> None:
    """Of ten thousand requeued deliveries the first and the last get a late ACK and a late NACK."""
    wire, publisher = client(version), client()
    numbers = numbered(1000)
    fill(publisher, queue, *numbers)
    taken = []
    for _ in range(10):
        wire.send(frames.subscribe(queue, "s", ack="client"))
        messages = take(wire, *numbers)
        taken += [messages[0], messages[-1]]
        wire.send(frames.unsubscribe("s", receipt="u"))
        wire.expect_receipt("u")
    assert ack_and_wait(wire, *taken) == []
    wire.send(*(nack(wire, message) for message in taken))
    wire.barrier()
    assert bodies(left_in(publisher, queue)) == numbers
