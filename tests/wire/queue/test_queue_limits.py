"""Limits of queues, big messages, and queues in compat mode: docs/behaviour.md, sections 1 and 5."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.frames import VERSIONS
from tests.support.queues import NUMBERS, bodies, consumer, fill, shares, take, take_all, unsubscribe_and_wait

# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_queue_over_its_length_refuses_the_sender(
    client: Clients, shared_broker: StartBroker, queue: str, version: str
) -> None:
    broker = shared_broker(max_queue_length=3)
    publisher, other, wire = client(version, to=broker), client(to=broker), client(to=broker)
    fill(publisher, queue, *NUMBERS[:3])
    publisher.send(frames.send(queue, "3", receipt="r"))
    publisher.expect_error("E-QUEUE-FULL", receipt_id="r")
    other.send_and_wait(f"{queue}-2", "x")
    other.send_and_wait(f"/topic/{queue}", "x")
    wire.send(frames.subscribe(queue, "s", ack="client"))
    held = take(wire, *NUMBERS[:3])
    assert ack_and_wait(wire, held[2]) == []
    fill(other, queue, *NUMBERS[4:7])
    take(wire, *NUMBERS[4:7])
    wire.barrier(other)


def test_a_full_queue_refuses_a_send_without_receipt(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_queue_length=3)
    publisher = client(to=broker)
    publisher.send(*(frames.send(queue, number) for number in NUMBERS))
    publisher.expect_error("E-QUEUE-FULL")
    assert bodies(take_all(client(to=broker), queue, 3)) == NUMBERS[:3]


def test_receipts_of_accepted_messages_come_before_the_error(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(max_queue_length=3)
    publisher = client(to=broker)
    publisher.send(*(frames.send(queue, number, receipt=number) for number in NUMBERS))
    for number in NUMBERS[:3]:
        publisher.expect_receipt(number)
    publisher.expect_error("E-QUEUE-FULL", receipt_id="3")
    assert bodies(take_all(client(to=broker), queue, 3)) == NUMBERS[:3]


@pytest.mark.parametrize("refused", [{}, {"receipt": "refused"}], ids=["silent", "receipt"])
def test_a_refused_send_among_others_ends_the_connection(
    client: Clients, shared_broker: StartBroker, queue: str, refused: dict[str, str]
) -> None:
    """Each queue's home answers for itself; whichever messages were accepted meanwhile, the ERROR comes last."""
    broker = shared_broker(max_queue_length=3)
    for number in range(10):
        publisher, full = client(to=broker), f"{queue}-full-{number}"
        fill(publisher, full, *NUMBERS[:3])
        others = [frames.send(f"{queue}-{number}-{other}", "x", receipt=str(other)) for other in range(6)]
        publisher.send(*others[:3], frames.send(full, "3", **refused), *others[3:])
        *receipts, error = publisher.frames_until_closed()
        assert (error.command, error["code"], error.header("receipt-id")) == (
            "ERROR",
            "E-QUEUE-FULL",
            refused.get("receipt"),
        )
        names = [receipt["receipt-id"] for receipt in receipts]
        assert names == [str(other) for other in range(len(names))]
        assert 3 <= len(names) <= (3 if refused else 6)


def test_each_sender_to_a_full_queue_is_refused_separately(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(max_queue_length=3)
    publishers = [client(to=broker) for _ in range(6)]
    for number, publisher in enumerate(publishers):
        publisher.send(frames.send(queue, str(number), receipt="r"))
        if number < 3:
            publisher.expect_receipt("r")
        else:
            publisher.expect_error("E-QUEUE-FULL", receipt_id="r")
    for publisher in publishers[:3]:
        publisher.barrier()
    assert bodies(take_all(client(to=broker), queue, 3)) == NUMBERS[:3]


def test_messages_in_flight_count_against_the_limit(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_queue_length=3)
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe(queue, "jobs", ack="client-individual")
    fill(publisher, queue, *NUMBERS[:3])
    held = take(wire, *NUMBERS[:3])
    publisher.send(frames.send(queue, "refused", receipt="r"))
    publisher.expect_error("E-QUEUE-FULL", receipt_id="r")
    assert ack_and_wait(wire, held[1]) == []
    client(to=broker).send_and_wait(queue, "3")
    wire.expect_message("3")
    assert unsubscribe_and_wait(wire, "jobs") == []
    assert bodies(take_all(client(to=broker), queue, 3)) == ["0", "2", "3"]


def test_a_queue_over_its_bytes_refuses_the_sender(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_queue_bytes=10_000)
    accepted: list[str] = []
    for number in range(20):
        publisher = client(to=broker)
        publisher.send(frames.send(queue, f"{number:04}" + "." * 996, receipt="r"))
        frame = publisher.recv_frame()
        if frame.command == "ERROR":
            assert (frame["code"], frame["receipt-id"]) == ("E-QUEUE-FULL", "r")
            publisher.expect_closed()
            break
        accepted.append(f"{number:04}" + "." * 996)
    assert 5 <= len(accepted) <= 10, "headers count as well"
    client(to=broker).send_and_wait(f"{queue}-2", "x")
    wire = client(to=broker)
    wire.send(frames.subscribe(queue, "s", ack="client"))
    assert ack_and_wait(wire, take(wire, *accepted)[-1]) == []
    client(to=broker).send_and_wait(queue, "again")
    wire.expect_message("again")


def test_a_message_over_the_byte_limit_is_refused_by_an_empty_queue(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(max_queue_bytes=10_000)
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe(queue)
    publisher.send(frames.send(queue, "x" * 10_001, receipt="r"))
    publisher.expect_error("E-QUEUE-FULL", receipt_id="r")
    wire.barrier()


def test_queues_count_as_destinations(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(max_destinations=5)
    publisher = client(to=broker)
    for number in range(5):
        publisher.send_and_wait(f"/queue/{number}", "x")
    publisher.send_and_wait("/queue/0", "y")
    publisher.send(frames.send("/queue/5", "x", receipt="r"))
    publisher.expect_error("E-DEST-COUNT", receipt_id="r")
    wire = client(to=broker)
    wire.send(frames.subscribe("/queue/0"))
    take(wire, "x", "y")


# -- big messages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["tcp", "websocket"])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1 << 20, 8 << 20])
def test_bodies_of_every_size_are_delivered(
    client: Clients, ws: OpenWebSocket, queue: str, size: int, over: str
) -> None:
    publisher = client()
    wire = client() if over == "tcp" else ws()
    body = (b"abcdefghijklmnopqrstuvwxyz\0" * (size // 27 + 1))[:size]
    publisher.send_and_wait(queue, body)
    publisher.send_and_wait(queue, b"small")
    for again in (None, "true"):
        wire.send(frames.subscribe(queue, "s", ack="client"))
        wire.expect_message(body, redelivered=again)
        wire.expect_message(b"small", redelivered=again)
        assert unsubscribe_and_wait(wire, "s") == []


def test_big_messages_are_distributed_over_consumers(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, queue, topic) for _ in range(3)]
    publisher = client()
    sent = {number: bytes([number]) * (1 << 20) for number in range(1, 13)}
    for body in sent.values():
        publisher.send_and_wait(queue, body)
    found = [message.body for share in shares(publisher, wires, topic, 12) for message in share]
    assert sorted(found) == sorted(sent.values())


# -- compat mode ---------------------------------------------------------------------------------------------------


def test_compat_stompica_has_no_queues(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(compat="stompica")
    publisher, wires = client(to=broker), [client(to=broker) for _ in range(3)]
    publisher.send_and_wait(queue, "nobody listens")
    for wire in wires:
        wire.subscribe(queue)
    publisher.send(frames.send(queue, "x"))
    for wire in wires:
        wire.expect_message("x", destination=queue)
        wire.barrier(publisher)


def test_compat_stompica_matches_queue_names_by_star(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(compat="stompica")
    publisher, wire = client(to=broker), client(to=broker)
    wire.subscribe(f"{queue[:-1]}*", "prefix")
    publisher.send(frames.send(queue, "x"))
    wire.expect_message("x", destination=queue)
