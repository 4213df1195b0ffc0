"""The form of ACK and NACK: STOMP 1.2 "ACK" and "NACK"; docs/specification.md, items 65 and 69.

Their effects are in test_acks.py.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, VERSION_COMMAND, ack, ack_headers, deliver, nack
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.queues import until_receipt


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_issued_id_can_be_acknowledged(client: Clients, topic: str, version: str, mode: str) -> None:
    wire = client(version)
    for number, message in enumerate(deliver(wire, topic, 5, ack=mode)):
        wire.send(ack(wire, message, receipt=str(number)))
        wire.expect_receipt(str(number))
    wire.barrier()


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_an_issued_id_can_be_nacked(client: Clients, topic: str, version: str, mode: str) -> None:
    wire = client(version)
    (message,) = deliver(wire, topic, 1, ack=mode)
    wire.send(nack(wire, message, receipt="r"))
    until_receipt(wire, "r")


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_1_2_messages_carry_an_ack_id_for_each_delivery(client: Clients, topic: str, mode: str) -> None:
    wire = client("1.2")
    wire.subscribe(topic, "a", ack=mode)
    wire.subscribe(topic, "b", ack=mode)
    wire.send(*(frames.send(topic, str(number)) for number in range(10)))
    messages = [wire.expect_message() for _ in range(20)]
    assert len({message["ack"] for message in messages}) == 20
    for number, message in enumerate(messages):
        wire.send(frames.ack(id=message["ack"], receipt=str(number)))
        wire.expect_receipt(str(number))


@pytest.mark.parametrize(
    ("version", "mode"), [("1.2", "auto"), ("1.1", "auto"), ("1.1", "client"), ("1.0", "auto"), ("1.0", "client")]
)
def test_no_ack_header_in_auto_mode_or_before_1_2(client: Clients, topic: str, version: str, mode: str) -> None:
    (message,) = deliver(client(version), topic, 1, ack=mode)
    assert "ack" not in message


def test_client_and_auto_subscriptions_work_side_by_side(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.subscribe(topic, "auto")
    wire.subscribe(topic, "client", ack="client")
    wire.send(frames.send(topic, "x"))
    messages = {message["subscription"]: message for message in (wire.expect_message("x"), wire.expect_message("x"))}
    assert "ack" not in messages["auto"]
    assert messages["client"]["ack"]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_1_2_requires_the_id(client: Clients, topic: str, command: str) -> None:
    wire = client("1.2")
    (message,) = deliver(wire, topic, 1)
    headers = [("message-id", message["message-id"]), ("subscription", "s"), ("receipt", "r")]
    wire.send(frames.frame(command, *headers))
    wire.expect_error("E-ID-MISSING", receipt_id="r")


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("missing", ["message-id", "subscription"])
def test_1_1_requires_message_id_and_subscription(client: Clients, topic: str, command: str, missing: str) -> None:
    wire = client("1.1")
    (message,) = deliver(wire, topic, 1)
    headers = [(name, value) for name, value in ack_headers(wire, message) if name != missing]
    wire.send(frames.frame(command, *headers, ("receipt", "r")))
    wire.expect_error("E-ID-MISSING", receipt_id="r")


def test_1_0_requires_the_message_id(client: Clients, topic: str) -> None:
    wire = client("1.0")
    deliver(wire, topic, 1)
    wire.send(frames.ack(receipt="r"))
    wire.expect_error("E-ID-MISSING", receipt_id="r")


def test_1_0_acknowledges_without_subscription_ids(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, None, ack="client")
    wire.send(frames.send(topic, "x"))
    message = wire.expect_message("x", subscription=None)
    wire.send(frames.ack(message_id=message["message-id"], receipt="r"))
    wire.expect_receipt("r")


def test_1_0_has_no_nack(client: Clients, topic: str) -> None:
    wire = client("1.0")
    (message,) = deliver(wire, topic, 1)
    wire.send(nack(wire, message))
    wire.expect_error("E-COMMAND")


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
@pytest.mark.parametrize("id", ["never-issued", "0", "-1", "99999999999999999999999", "é"])
def test_an_id_that_was_never_issued_is_an_error(
    client: Clients, topic: str, version: str, command: str, id: str
) -> None:
    wire = client(version)
    deliver(wire, topic, 1)
    headers = [("id", f"x{id}"), ("message-id", f"x{id}"), ("subscription", "s"), ("receipt", "r")]
    wire.send(frames.frame(command, *headers))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_id_is_unknown_before_the_first_delivery(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.ack(id="1", message_id="1", subscription="s"))
    wire.expect_error("E-ACK-UNKNOWN")


def test_an_id_of_another_connection_is_unknown(client: Clients, topic: str) -> None:
    owner, intruder = client("1.2"), client("1.2")
    messages = deliver(owner, topic, 20, ack="client-individual")
    intruder.send(frames.ack(id=messages[-1]["ack"]))
    intruder.expect_error("E-ACK-UNKNOWN")
    owner.send(frames.ack(id=messages[-1]["ack"], receipt="r"))
    owner.expect_receipt("r")


def test_a_message_of_another_subscription_is_unknown_in_1_1(client: Clients, topic: str) -> None:
    wire = client("1.1")
    (message,) = deliver(wire, topic, 1)
    wire.send(frames.ack(message_id=message["message-id"], subscription="other"))
    wire.expect_error("E-ACK-UNKNOWN")


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_an_ack_may_be_part_of_a_transaction(client: Clients, topic: str, version: str, mode: str, end: str) -> None:
    wire = client(version)
    (message,) = deliver(wire, topic, 1, ack=mode)
    wire.send(
        frames.begin("t", receipt="1"),
        ack(wire, message, transaction="t", receipt="2"),
        frames.frame(end, ("transaction", "t"), ("receipt", "3")),
    )
    for receipt in "123":
        wire.expect_receipt(receipt)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_hundred_acks_in_one_segment_all_take_effect(client: Clients, topic: str, version: str, mode: str) -> None:
    wire = client(version)
    messages = deliver(wire, topic, 100, ack=mode)
    order = messages if mode == "client" else list(reversed(messages))
    wire.send(*(ack(wire, message, receipt=str(at)) for at, message in enumerate(order)))
    for number in range(100):
        wire.expect_receipt(str(number))
    wire.barrier()
