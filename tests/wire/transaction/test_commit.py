"""The effect of transactions: atomic COMMIT over queues and topics.

See docs/behaviour.md, section 3 and docs/specification.md, items 72 to 74. The frames themselves are tested in
test_transaction_frames.py.
"""

from __future__ import annotations

import itertools

import pytest

from tests.support import frames
from tests.support.acks import ack
from tests.support.clients import Clients, OpenWebSocket
from tests.support.clock import wait_ms
from tests.support.frames import VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.queues import bodies, fill, left_in, numbered, take
from tests.support.transactions import commit, consume

NUMBERS = numbered(10)


# -- SEND ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_reach_the_consumer_of_a_queue_at_commit(client: Clients, queue: str, version: str) -> None:
    consumer, publisher = client(version), client(version)
    consumer.subscribe(queue)
    publisher.send(frames.begin("t"))
    for number in range(3):
        publisher.send(frames.send(queue, str(number), transaction="t", receipt=f"r{number}"))
        publisher.expect_receipt(f"r{number}")
    publisher.send_and_wait(queue, "outside")
    consumer.expect_message("outside")
    commit(publisher)
    take(consumer, "0", "1", "2", transaction=None, receipt=None)
    publisher.send(frames.send(queue, "end"))
    consumer.expect_message("end")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_message_is_in_the_queue_before_commit(client: Clients, queue: str, version: str) -> None:
    publisher, other = client(version), client(version)
    publisher.send(frames.begin("t"), frames.send(queue, "x", transaction="t", receipt="r"))
    publisher.expect_receipt("r")
    assert left_in(other, queue) == []
    commit(publisher)
    assert bodies(left_in(other, queue)) == ["x"]


@pytest.mark.parametrize("version", VERSIONS)
def test_abort_drops_messages_to_queues(client: Clients, queue: str, version: str) -> None:
    publisher, other = client(version), client(version)
    publisher.send(frames.begin("t"), frames.send(queue, "never", transaction="t"), frames.abort("t", receipt="a"))
    publisher.expect_receipt("a")
    assert left_in(other, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_connection_drops_messages_to_queues(client: Clients, queue: str, version: str, loss: str) -> None:
    publisher, other = client(version), client(version)
    detector = LossDetector(publisher, other)
    publisher.send(frames.begin("t"), frames.send(queue, "never", transaction="t", receipt="r"))
    publisher.expect_receipt("r")
    LOSSES[loss](publisher)
    detector.wait()
    assert left_in(other, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_committed_message_is_delivered_like_any_other(client: Clients, queue: str, version: str) -> None:
    """It has its headers in order, an id of its own, and no header of the transaction."""
    wire = client(version)
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    wire.send(frames.begin("t"), *(frames.send(queue, "x", *pairs, transaction="t") for _ in range(3)))
    commit(wire)
    messages = consume(wire, queue, "x", "x", "x")
    assert len({message["message-id"] for message in messages}) == 3
    for message in messages:
        assert [pair for pair in message.headers if pair[0] in ("a", "b")] == pairs
        assert message["destination"] == queue
        assert "transaction" not in message and "redelivered" not in message


# -- atomicity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_of_commit_means_that_all_took_effect(
    client: Clients, topic: str, queue: str, version: str
) -> None:
    publisher, other = client(version), client(version)
    topics = [f"{topic}/{number}" for number in range(4)]
    queues = [f"{queue}/{number}" for number in range(4)]
    listeners = [client(version) for _ in topics]
    for listener, name in zip(listeners, topics, strict=True):
        listener.subscribe(name)
    fill(other, f"{queue}/in", "acknowledged", "held")
    message, _ = consume(publisher, f"{queue}/in", "acknowledged", "held")
    publisher.send(frames.begin("t"), ack(publisher, message, transaction="t"))
    for number in NUMBERS:
        publisher.send(*(frames.send(name, number, transaction="t") for name in topics + queues))
    for listener in listeners:
        listener.barrier(publisher)
    commit(publisher)
    for name in queues:
        assert bodies(left_in(other, name)) == NUMBERS
    for listener in listeners:
        take(listener, *NUMBERS)
        listener.barrier(publisher)
    publisher.reset()
    other.send(frames.subscribe(f"{queue}/in", "again"))
    other.expect_message("held", redelivered="true")


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_a_transaction_stay_together(client: Clients, topic: str, queue: str, version: str) -> None:
    """Three publishers at once, two with transactions and one without, send to the same destinations."""
    rounds, size = 20, 4
    destinations = [f"{topic}/a", f"{topic}/b", f"{queue}/a", f"{queue}/b"]
    listeners = [client(version) for _ in destinations]
    for listener, destination in zip(listeners, destinations, strict=True):
        listener.subscribe(destination)
    publishers = {name: client(version) for name in ("p", "q", "plain")}
    for number in range(rounds):
        for name, publisher in publishers.items():
            transaction = None if name == "plain" else f"t{number}"
            sends = [
                frames.send(destination, f"{name} {number} {part}", transaction=transaction)
                for part in range(size)
                for destination in destinations
            ]
            if transaction:
                sends = [frames.begin(transaction), *sends, frames.commit(transaction)]
            publisher.send(*sends)
    for listener in listeners:
        found = [listener.expect_message().text for _ in range(3 * rounds * size)]
        for name in publishers:
            own = [body for body in found if body.startswith(f"{name} ")]
            assert own == [f"{name} {number} {part}" for number in range(rounds) for part in range(size)]
        groups = [key for key, _ in itertools.groupby(found, key=lambda body: body.rsplit(" ", 1)[0])]
        committed = [key for key in groups if not key.startswith("plain")]
        assert len(committed) == 2 * rounds, f"a message came in the middle of a transaction: {found}"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_connection_lost_around_commit_leaves_all_or_nothing(client: Clients, queue: str, version: str) -> None:
    """Every second COMMIT is cut off, inside or before its frame; the others are sent whole before the reset."""
    names = [f"{queue}/{number}" for number in range(4)]
    wire = client(version)
    for number in range(20):
        publisher = client(version)
        sends = [frames.send(name, f"{number} {part}", transaction="t") for part in "ab" for name in names]
        whole = b"".join([frames.begin("t"), *sends, frames.commit("t")])
        publisher.send(whole[: len(whole) - (number * 5 if number % 2 else 0)])
        publisher.reset()
    wait_ms(wire, 100)
    first, *others = [bodies(left_in(wire, name)) for name in names]
    assert not [body for body in first if int(body.split()[0]) % 2], "a transaction without COMMIT took effect"
    assert first == [f"{number} {part}" for number in (body.split()[0] for body in first[::2]) for part in "ab"]
    for other in others:
        assert sorted(other) == sorted(first), "a transaction took effect in part"


@pytest.mark.parametrize("version", VERSIONS)
def test_all_messages_of_a_transaction_become_visible_together(client: Clients, queue: str, version: str) -> None:
    """When one queue's consumer has its message, the other queues have theirs, before later messages."""
    publisher, consumer, other = (client(version) for _ in range(3))
    for number in range(100):
        one, two = (f"{queue}/{number}/{name}" for name in "ab")
        consumer.subscribe(one, str(number))
        publisher.send(frames.begin("t"), *(frames.send(name, "x", transaction="t") for name in (one, two)))
        publisher.send(frames.commit("t"))
        consumer.expect_message("x", destination=one)
        assert bodies(left_in(other, two)) == ["x"]


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_on_queues_run_side_by_side(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    fill(other, f"{queue}/in", "0", "1", "2")
    messages = consume(wire, f"{queue}/in", "0", "1", "2")
    wire.send(frames.begin("a"), frames.begin("b"))
    for number in range(4):
        for name in "ab":
            wire.send(frames.send(queue, f"{name}{number}", transaction=name))
    wire.send(ack(wire, messages[0], transaction="b"), ack(wire, messages[1], transaction="a"))
    wire.send(frames.commit("b"), frames.abort("a", receipt="done"))
    wire.expect_receipt("done")
    assert bodies(left_in(other, queue)) == ["b0", "b1", "b2", "b3"]
    wire.disconnect()
    other.send(frames.subscribe(f"{queue}/in", "again"))
    take(other, "1", "2", redelivered="true")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_may_hold_thousands_of_messages(client: Clients, topic: str, queue: str, version: str) -> None:
    count = 6000
    destinations = [queue, f"{queue}/other", topic]
    listeners = [client(version) for _ in destinations]
    for listener, destination in zip(listeners, destinations, strict=True):
        listener.subscribe(destination)
    publisher = client(version)
    publisher.send(frames.begin("t"))
    sends = (frames.send(destinations[number % 3], str(number), transaction="t") for number in range(count))
    publisher.send(*sends, frames.commit("t", receipt="c"))
    for first, listener in enumerate(listeners):
        take(listener, *(str(number) for number in range(first, count, 3)))
    publisher.expect_receipt("c")


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_work_over_websocket(client: Clients, ws: OpenWebSocket, queue: str, version: str) -> None:
    wire, publisher, victim = client(version), ws(version), ws(version)
    consumer = ws(version)
    consumer.subscribe(f"{queue}/a")
    for socket in (publisher, victim):
        sends = (frames.send(f"{queue}/{name}", str(number), transaction="t") for number in range(3) for name in "ab")
        socket.send(frames.begin("t", receipt="b"), *sends)
        socket.expect_receipt("b")
    victim.disconnect()
    commit(publisher)
    take(consumer, "0", "1", "2")
    assert bodies(left_in(wire, f"{queue}/b")) == ["0", "1", "2"]
    consumer.send(frames.send(f"{queue}/a", "end"))
    consumer.expect_message("end")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_may_span_every_kind_of_destination(
    client: Clients, topic: str, queue: str, version: str
) -> None:
    publisher, wire = client(version), client(version)
    names = {"topic": topic, "queue": queue, "worker": f"#{topic}", "temporary": "/temp-queue/t"}
    for id, name in names.items():
        (publisher if id == "temporary" else wire).subscribe(name, id)
    wire.subscribe(f"{topic}/durable", "durable", durable="true")
    wire.send(frames.unsubscribe("durable", receipt="away"))
    wire.expect_receipt("away")
    publisher.send(frames.begin("t"))
    publisher.send(*(frames.send(name, id, transaction="t") for id, name in names.items()))
    publisher.send(frames.send(f"{topic}/durable", "durable", transaction="t"))
    publisher.send(frames.send(f"{topic}/retained", "retained", transaction="t", retain="set", receipt="r"))
    publisher.expect_receipt("r")
    wire.subscribe(f"{topic}/retained", "too early")
    wire.barrier(publisher)
    wire.send(frames.unsubscribe("too early", receipt="u"))
    wire.expect_receipt("u")
    publisher.send(frames.commit("t", receipt="c"))
    assert sorted(publisher.recv_frame().command for _ in range(2)) == ["MESSAGE", "RECEIPT"]
    assert sorted(wire.expect_message().text for _ in range(3)) == ["queue", "topic", "worker"]
    wire.send(frames.subscribe(f"{topic}/durable", "durable", durable="true"))
    wire.expect_message("durable")
    wire.send(frames.subscribe(f"{topic}/retained", "retained"))
    wire.expect_message("retained", retained="true")
    wire.send(frames.unsubscribe("durable", durable="true", receipt="ended"))
    wire.expect_receipt("ended")


def test_frames_behind_a_commit_wait_for_it(client: Clients, queue: str) -> None:
    """Messages sent behind a COMMIT come behind its own, although it asks all homes for room first."""
    wire, consumer = client(), client()
    queues = [f"{queue}/{number}" for number in range(8)]
    for name in queues:
        consumer.subscribe(name, name)
    for turn in range(10):
        wire.send(
            frames.begin("t"),
            *(frames.send(name, f"{turn} in", transaction="t") for name in queues),
            frames.commit("t", receipt="c"),
            *(frames.send(name, f"{turn} behind") for name in queues),
        )
        wire.expect_receipt("c")
        found = [consumer.expect_message() for _ in range(2 * len(queues))]
        for name in queues:
            assert bodies([each for each in found if each["subscription"] == name]) == [f"{turn} in", f"{turn} behind"]
