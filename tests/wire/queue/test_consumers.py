"""Consumers of queues that leave, that do not acknowledge, that come and go: docs/behaviour.md, sections 5 and 6."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack, ack_and_wait, prefetched
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.frames import VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.parser import Frame
from tests.support.queues import (
    NUMBERS,
    bodies,
    fill,
    left_in,
    numbered,
    shares,
    take,
    unsubscribe_and_wait,
    until_receipt,
)
from tests.support.wire import Wire

# -- TCP and WebSocket ---------------------------------------------------------------------------------------------


def test_consumers_over_tcp_and_websocket_share_equally(
    client: Clients, ws: OpenWebSocket, queue: str, topic: str
) -> None:
    wires: list[Wire] = [client(), ws(), client("1.1"), ws("1.1"), client("1.0"), ws("1.0")]
    for wire in wires:
        wire.subscribe(topic, "end")
        wire.subscribe(queue, ack="client")
    publisher = client()
    numbers = numbered(60)
    fill(publisher, queue, *numbers)
    found = shares(publisher, wires, topic, 60)
    assert sorted([int(message.text) for message in share] for share in found) == [
        list(range(start, 60, 6)) for start in range(6)
    ]
    for wire, share in zip(wires, found, strict=True):
        assert ack_and_wait(wire, share[-1]) == []
        assert unsubscribe_and_wait(wire, "0") == []
    assert left_in(publisher, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_pass_from_websocket_to_tcp_and_back(
    client: Clients, ws: OpenWebSocket, queue: str, version: str
) -> None:
    one, other = ws(version), client(version)
    for sender, receiver in ((one, other), (other, one)):
        fill(sender, queue, *NUMBERS)
        receiver.send(frames.subscribe(queue, "s"))
        take(receiver, *NUMBERS, subscription="s")
        assert unsubscribe_and_wait(receiver, "s") == []


# -- consumers that leave ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_messages_of_a_lost_consumer_return_to_their_old_places(
    client: Clients, queue: str, version: str, mode: str, loss: str
) -> None:
    victim, publisher, watcher, successor = client(version), client(), client(), client()
    detector = LossDetector(victim, watcher)
    held = prefetched(victim, publisher, queue, 4, of=8, id="jobs", ack=mode)
    victim.send(ack(victim, held[0]))
    victim.expect_message("4")
    LOSSES[loss](victim)
    detector.wait()
    successor.send(frames.subscribe(queue, "successor"))
    take(successor, *NUMBERS[1:5], redelivered="true", delivery_count="2")
    take(successor, *NUMBERS[5:8], redelivered=None, delivery_count=None)
    successor.barrier(publisher)


def test_a_consumer_without_heart_beats_is_lost(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(heartbeat="0,1000")
    successor = client(to=broker)
    victim = client("1.2", to=broker, heart_beat="1000,0")
    victim.subscribe(queue, ack="client")
    fill(successor, queue, "0", "1")
    successor.subscribe(queue, ack="client")
    assert bodies([successor.expect_message(redelivered="true") for _ in range(2)]) == ["0", "1"]


@pytest.mark.parametrize("loss", ["reset", "unsubscribe"])
def test_interleaved_messages_of_two_consumers_return_in_order(client: Clients, queue: str, loss: str) -> None:
    victim, successor, publisher, watcher = client(), client(), client(), client()
    detector = LossDetector(victim, watcher)
    victim.subscribe(queue, "jobs", ack="client-individual", prefetch_count=4)
    successor.subscribe(queue, "jobs", ack="client-individual", prefetch_count=4)
    fill(publisher, queue, *NUMBERS[:12])
    lost = [victim.expect_message() for _ in range(4)]
    held = [successor.expect_message() for _ in range(4)]
    assert sorted(int(message.text) for message in (*lost, *held)) == list(range(8))
    if loss == "unsubscribe":
        assert unsubscribe_and_wait(victim, "jobs") == []
    victim.reset()
    detector.wait()
    for number in bodies(lost):
        successor.send(ack(successor, held.pop(0)))
        held.append(successor.expect_message(number, redelivered="true"))
    for number in NUMBERS[8:12]:
        successor.send(ack(successor, held.pop(0)))
        held.append(successor.expect_message(number, redelivered=None))


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_thousand_messages_of_a_lost_consumer_return(client: Clients, queue: str, mode: str) -> None:
    victim, publisher, watcher, successor = client(), client(), client(), client()
    numbers = numbered(1200)
    detector = LossDetector(victim, watcher)
    victim.subscribe(queue, ack=mode)
    fill(publisher, queue, *numbers)
    take(victim, *numbers[:1000])
    victim.reset()
    detector.wait()
    successor.send(frames.subscribe(queue))
    take(successor, *numbers[:1000], redelivered="true")
    take(successor, *numbers[1000:], redelivered=None)


def test_a_waiting_consumer_takes_over_at_once(client: Clients, queue: str) -> None:
    victim, successor, publisher = client(), client(), client()
    victim.subscribe(queue, ack="client")
    fill(publisher, queue, *NUMBERS[:5])
    take(victim, *NUMBERS[:5])
    successor.subscribe(queue, ack="client")
    victim.reset()
    take(successor, *NUMBERS[:5], redelivered="true", delivery_count="2")


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_unsubscribe_returns_messages_in_flight(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client()
    held = prefetched(wire, publisher, queue, 3, of=6, id="jobs", ack=mode)
    wire.send(ack(wire, held[0]))
    wire.expect_message("3")
    assert unsubscribe_and_wait(wire, "jobs") == []
    wire.send(frames.subscribe(queue, "again"))
    take(wire, *NUMBERS[1:4], redelivered="true", subscription="again")
    take(wire, *NUMBERS[4:6], redelivered=None, subscription="again")
    wire.barrier(publisher)


def test_each_loss_counts_as_a_delivery(client: Clients, queue: str) -> None:
    publisher = client()
    fill(publisher, queue, "x")
    for number in range(1, 6):
        wire = client()
        count = None if number == 1 else str(number)
        wire.send(frames.subscribe(queue, ack="client"))
        wire.expect_message("x", delivery_count=count, redelivered=None if number == 1 else "true")
        assert unsubscribe_and_wait(wire, "0") == []


def test_a_redelivery_keeps_the_message_id(client: Clients, queue: str) -> None:
    wire = client()
    fill(wire, queue, "x")
    ids = set()
    for _ in range(3):
        wire.send(frames.subscribe(queue, ack="client"))
        ids.add(wire.expect_message("x")["message-id"])
        assert unsubscribe_and_wait(wire, "0") == []
    assert len(ids) == 1


# -- consumers that do not acknowledge -----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["reset", "close", "disconnect"])
def test_messages_read_by_an_auto_consumer_are_not_redelivered(client: Clients, queue: str, loss: str) -> None:
    victim, publisher, watcher = client(), client(), client()
    detector = LossDetector(victim, watcher)
    victim.subscribe(queue, "jobs")
    fill(publisher, queue, *NUMBERS)
    take(victim, *NUMBERS)
    LOSSES[loss](victim)
    detector.wait()
    assert left_in(publisher, queue) == []


@pytest.mark.parametrize("loss", ["reset", "close"])
def test_a_partly_written_message_does_not_count_as_delivered(client: Clients, queue: str, loss: str) -> None:
    """No kernel buffers 12 MiB: the consumer is lost while the first message is being written."""
    publisher, watcher, successor = client(), client(), client()
    victim = client.raw(receive_buffer=4096)
    victim.connect()
    detector = LossDetector(victim, watcher)
    big = b"x" * (12 << 20)
    publisher.send_and_wait(queue, big)
    fill(publisher, queue, "1", "2")
    victim.send(frames.subscribe(queue, "jobs"))
    assert victim.receive_some()
    LOSSES[loss](victim)
    detector.wait()
    successor.send(frames.subscribe(queue))
    successor.expect_message(big)
    take(successor, "1", "2", redelivered=None)
    successor.barrier(publisher)


def test_messages_a_lost_auto_consumer_did_not_get_come_in_order(client: Clients, queue: str) -> None:
    publisher, watcher, successor = client(), client(), client()
    victim = client.raw(receive_buffer=4096)
    victim.connect()
    detector = LossDetector(victim, watcher)
    victim.subscribe(queue, "jobs")
    filler = "." * 200_000
    for number in range(100):
        publisher.send(frames.send(queue, f"{number}{filler}"))
    publisher.send_and_wait(queue, "end")
    victim.reset()
    detector.wait()
    successor.send(frames.subscribe(queue))
    found = []
    while (message := successor.expect_message()).text != "end":
        found.append(int(message.text.rstrip(".")))
    assert len(found) > 50, "kernels buffer only some of the 20 MB"
    assert found == list(range(found[0], 100))


@pytest.mark.parametrize("ending", ["UNSUBSCRIBE", "DISCONNECT"])
@pytest.mark.parametrize("over", ["tcp", "websocket"])
def test_exactly_the_messages_before_the_last_receipt_are_consumed(
    client: Clients, ws: OpenWebSocket, queue: str, ending: str, over: str
) -> None:
    publisher, successor, watcher = client(), client(), client()
    wire = client() if over == "tcp" else ws()
    detector = LossDetector(wire, watcher)
    wire.subscribe(queue)
    filler = "." * 200_000
    for number in range(60):
        publisher.send(frames.send(queue, f"{number}{filler}"))
    publisher.send_and_wait(queue, "60")
    wire.send(frames.frame(ending, ("id", "0"), ("receipt", "last")))
    found = until_receipt(wire, "last")
    wire.close()
    detector.wait()
    found += left_in(successor, queue)
    assert [int(message.text.rstrip(".")) for message in found] == list(range(61))


def test_a_consumer_that_does_not_read_does_not_block_others(client: Clients, queue: str, topic: str) -> None:
    """A full outbox means no credit: the others get the remaining messages, and nobody is disconnected."""
    publisher, stuck = client(), client.raw(receive_buffer=4096)
    stuck.connect()
    stuck.subscribe(queue)
    quick = client()
    quick.subscribe(topic, "end")
    quick.subscribe(queue)
    filler = "." * 200_000
    found: list[Frame] = []
    for number in range(120):
        publisher.send_and_wait(queue, f"{number}{filler}")
        found += shares(publisher, [quick], topic)[0]
    assert len(found) > 60, "kernels buffer only some of the 24 MB"
    stuck.send(frames.subscribe(topic, "end", receipt="r"))
    mine = until_receipt(stuck, "r")
    late = shares(publisher, [quick, stuck], topic, 120 - len(found) - len(mine))
    numbers = [[int(message.text.rstrip(".")) for message in share] for share in (found + late[0], mine + late[1])]
    assert sorted(numbers[0] + numbers[1]) == list(range(120))
    assert all(share == sorted(share) for share in numbers)


# -- consumers that come and go ------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["unsubscribe", *LOSSES])
def test_consumers_come_and_go_while_a_publisher_sends(client: Clients, queue: str, leave: str) -> None:
    publisher, watcher = client(), client()
    acknowledged: list[int] = []
    for turn in range(10):
        publisher.send(*(frames.send(queue, str(number)) for number in range(turn * 20, turn * 20 + 20)))
        wire = client()
        detector = LossDetector(wire, watcher)
        wire.send(frames.subscribe(queue, "jobs", ack="client-individual", prefetch_count=5))
        pending: list[Frame] = []
        for _ in range(15):
            message = pending.pop(0) if pending else wire.expect_message()
            pending += ack_and_wait(wire, message)
            acknowledged.append(int(message.text))
        if leave == "unsubscribe":
            unsubscribe_and_wait(wire, "jobs")
        LOSSES[leave if leave in LOSSES else "reset"](wire)
        detector.wait()
    rest = [int(message.text) for message in left_in(publisher, queue)]
    assert sorted(acknowledged + rest) == list(range(200))
    assert rest == sorted(rest)
