"""The publisher, the queue's home and the consumers on four different shards (writers=4).

The embedded broker reports the shard of each connection. It does not report the home of a queue, which is chosen by a
hash of the name. With this many names every shard is the home of some of them, so some queues have their home on the
shard that has neither the publisher nor a consumer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

import stompica
from tests.support import frames
from tests.support.parser import Frame
from tests.support.waiting import eventually
from tests.support.wire import Wire

SHARDS = 4
NAMES = 64
"""The probability that none of them has a given shard as its home is 0.75 ** 64, 1 in 100 million."""


class Four:
    """One connected client on each shard of a broker: publisher, first and second consumer, and one more."""

    def __init__(self, broker: stompica.Broker) -> None:
        self.broker = broker
        self.wires = [self.connect() for _ in range(SHARDS)]
        shards = [self._shard(wire) for wire in self.wires]
        assert sorted(shards) == list(range(SHARDS)), f"connections are not distributed in turn: {shards}"
        self.publisher, self.first, self.second, self.other = self.wires

    def connect(self) -> Wire:
        wire = Wire(self.broker.port)
        wire.connect()
        return wire

    def _shard(self, wire: Wire) -> int:
        return next(each.shard for each in self.broker.connections() if each.peer[1] == wire.local_port)

    def settle(self, count: int = SHARDS) -> None:
        """Waits until `count` connections are left and no shard has work."""
        eventually(lambda: len(self.broker.connections()) == count, f"{count} connections are left")
        assert self.broker.settle()


@pytest.fixture
def four() -> Iterator[Four]:
    with stompica.Broker(writers=SHARDS) as broker:
        made = Four(broker)
        yield made
        for wire in made.wires:
            wire.discard()


QUEUES = [f"/queue/shards/{number}" for number in range(NAMES)]


def subscribe(wire: Wire, prefetch: int = 0, mode: str = "client-individual") -> None:
    """Subscribes to every queue; the id of each subscription is the name of its queue."""
    wire.send(*(frames.subscribe(queue, queue, ack=mode, prefetch_count=prefetch, receipt=queue) for queue in QUEUES))


def publish(wire: Wire, *bodies: str, **headers: str) -> None:
    """Sends each body to every queue, and waits for the RECEIPTs."""
    sends = [(queue, body) for body in bodies for queue in QUEUES]
    wire.send(*(frames.send(queue, body, receipt=f"{queue} {body}", **headers) for queue, body in sends))
    for queue, body in sends:
        wire.expect_receipt(f"{queue} {body}")


def collect(wire: Wire, messages: int, receipts: int = 0) -> dict[str, list[Frame]]:
    """Reads this many MESSAGEs and RECEIPTs in any order, and returns the MESSAGEs by queue."""
    found: dict[str, list[Frame]] = defaultdict(list)
    for _ in range(messages + receipts):
        frame = wire.recv_frame()
        if frame.command == "MESSAGE":
            assert messages > 0, f"more messages than expected: {frame}"
            messages -= 1
            found[frame["destination"]].append(frame)
        else:
            assert frame.command == "RECEIPT" and receipts > 0, frame
            receipts -= 1
    return found


def settle_all(wire: Wire, messages: list[Frame], command: str = "ACK", *pairs: frames.Header) -> None:
    """Sends ACK or NACK for each message, with a receipt header; does not wait for the RECEIPTs."""
    wire.send(*(frames.frame(command, ("id", each["ack"]), *pairs, receipt="settled") for each in messages))


def numbered(rows: dict[str, list[Frame]]) -> dict[str, list[tuple[str, str | None]]]:
    """Returns the body and the delivery-count of each message, by queue."""
    return {queue: [(each.text, each.header("delivery-count")) for each in row] for queue, row in rows.items()}


def everywhere(*rows: tuple[str, str | None]) -> dict[str, list[tuple[str, str | None]]]:
    return {queue: list(rows) for queue in QUEUES}


def flat(rows: dict[str, list[Frame]]) -> list[Frame]:
    return [each for row in rows.values() for each in row]


def expect_nothing_left(four: Four, connections: int = SHARDS) -> None:
    """Sends a last message to every queue: a new consumer must get only that one."""
    publish(four.publisher, "last")
    four.settle(connections)
    wire = four.connect()
    four.wires.append(wire)
    subscribe(wire)
    assert numbered(collect(wire, NAMES, NAMES)) == everywhere(("last", None))


@pytest.mark.parametrize("leave", ["unsubscribe", "disconnect", "reset"])
def test_messages_of_a_lost_consumer_are_redelivered_first_and_in_order(four: Four, leave: str) -> None:
    subscribe(four.first, prefetch=2)
    collect(four.first, 0, NAMES)
    publish(four.publisher, *"012345")
    held = collect(four.first, 2 * NAMES)
    assert numbered(held) == everywhere(("0", None), ("1", None))
    settle_all(four.first, [row[0] for row in held.values()])
    assert numbered(collect(four.first, NAMES, NAMES)) == everywhere(("2", None))
    if leave == "unsubscribe":
        four.first.send(*(frames.unsubscribe(queue, receipt="u") for queue in QUEUES))
        collect(four.first, 0, NAMES)
        four.settle()
    else:
        if leave == "reset":
            four.first.reset()
        else:
            four.first.disconnect()
        four.settle(SHARDS - 1)
        four.wires[1] = four.first = four.connect()
    subscribe(four.second)
    rest = collect(four.second, 5 * NAMES, NAMES)
    assert numbered(rest) == everywhere(("1", "2"), ("2", "2"), ("3", None), ("4", None), ("5", None))
    settle_all(four.second, flat(rest))
    collect(four.second, 0, 5 * NAMES)
    four.second.send(*(frames.unsubscribe(queue, receipt="u") for queue in QUEUES))
    collect(four.second, 0, NAMES)
    expect_nothing_left(four)


def test_a_nacked_message_goes_to_the_other_consumer(four: Four) -> None:
    for wire in (four.first, four.second):
        subscribe(wire, prefetch=1)
        collect(wire, 0, NAMES)
    publish(four.publisher, "0")
    four.settle()
    # Each queue has delivered its message to one of the two consumers.
    mine = {}
    for wire in (four.first, four.second):
        wire.send(frames.begin("fence", receipt="fence"))
        found = {}
        while (frame := wire.recv_frame()).command == "MESSAGE":
            found[frame["destination"]] = frame
        mine[wire] = found
    assert sorted([*mine[four.first], *mine[four.second]]) == sorted(QUEUES)
    for wire, other in ((four.first, four.second), (four.second, four.first)):
        settle_all(wire, list(mine[wire].values()), "NACK")
        came = collect(other, len(mine[wire]))
        assert numbered(came) == {queue: [("0", "2")] for queue in mine[wire]}
        settle_all(other, flat(came))
        collect(wire, 0, len(mine[wire]))
        collect(other, 0, len(mine[wire]))


@pytest.mark.parametrize("prefetch", [1, 3])
def test_two_consumers_share_all_messages_in_order_and_without_duplicates(four: Four, prefetch: int) -> None:
    for wire in (four.first, four.second):
        subscribe(wire, prefetch)
        collect(wire, 0, NAMES)
    count = 10
    publish_rows = [(queue, str(number)) for number in range(count) for queue in QUEUES]
    four.publisher.send(*(frames.send(queue, body) for queue, body in publish_rows))
    received: dict[str, list[int]] = defaultdict(list)
    last: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    left, turn = count * NAMES, 0
    wires = (four.first, four.second)
    while left:
        # Each consumer in turn acknowledges what it has received.
        wire = wires[turn % 2]
        turn += 1
        for frame in arrived(wire):
            queue, number = frame["destination"], int(frame.text)
            assert number > last[id(wire), queue], f"{queue}: {number} after {last[id(wire), queue]}"
            last[id(wire), queue] = number
            received[queue].append(number)
            left -= 1
            wire.send(frames.ack(id=frame["ack"]))
    assert {queue: sorted(row) for queue, row in received.items()} == {queue: list(range(count)) for queue in QUEUES}
    for wire in wires:
        wire.disconnect()
    expect_nothing_left(four, SHARDS - 2)


def arrived(wire: Wire) -> list[Frame]:
    """Returns the MESSAGEs that come before the RECEIPT of a frame that this function sends."""
    wire.send(frames.begin("fence", receipt="fence"), frames.abort("fence"))
    found = []
    while (frame := wire.recv_frame()).command == "MESSAGE":
        found.append(frame)
    assert frame.command == "RECEIPT", frame
    return found


def test_a_transaction_across_homes_on_all_shards_is_atomic(four: Four) -> None:
    publish(four.other, "0", "1")
    subscribe(four.first)
    held = collect(four.first, 2 * NAMES, NAMES)
    for name, end in (("undone", "ABORT"), ("done", "COMMIT")):
        four.first.send(frames.begin(name))
        settle_all(four.first, [row[0] for row in held.values()], "ACK", ("transaction", name))
        collect(four.first, 0, NAMES)
        publish(four.first, f"{name}-a", f"{name}-b", transaction=name)
        four.settle()
        assert arrived(four.first) == [], "a message of an open transaction came"
        four.first.send(frames.frame(end, ("transaction", name), receipt="end"))
        if end == "ABORT":
            four.first.expect_receipt("end")
            four.settle()
            assert arrived(four.first) == [], "a message of an aborted transaction came"
    both = collect(four.first, 2 * NAMES, 1)
    assert numbered(both) == everywhere(("done-a", None), ("done-b", None))
    four.first.reset()
    four.settle(SHARDS - 1)
    subscribe(four.second)
    rest = collect(four.second, 3 * NAMES, NAMES)
    assert numbered(rest) == everywhere(("1", "2"), ("done-a", "2"), ("done-b", "2"))
    four.second.send(frames.begin("fence", receipt="fence"))
    four.second.expect_receipt("fence")
