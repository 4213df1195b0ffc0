"""The replay of retained and stale messages to new subscriptions keeps the limits, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.diagnostics import answer
from tests.support.parser import Frame
from tests.support.probes import SMALL_BUFFER, descriptors, memory_kib
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import WebSocket

RESIDENT_KIB_MAX = (256 + 64) << 10
"""What `memory_limit=256MiB` allows for the whole process."""
VALUES = 1000
SUBSCRIPTIONS = 40
SIZE = 10_000


@pytest.fixture
def limited(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker with many retained messages, whose peak memory is checked at the end."""
    broker = start_broker(memory_limit="256MiB", outbox_limit="1MiB")
    with Wire(broker.port, timeout=30) as publisher:
        publisher.connect()
        for first in range(0, VALUES, 100):
            publisher.send(*(value(number, "old") for number in range(first, first + 100)))
        publisher.send_and_wait("/topic/nobody", "")
    yield broker
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= RESIDENT_KIB_MAX, f"peak {peak >> 10} MiB"


def value(number: int, mark: str, **headers: frames.HeaderValue) -> bytes:
    return frames.send_counted(f"/topic/r/{number:04}", mark + "." * SIZE, retain="set", **headers)


def connection(broker: BrokerProcess) -> Wire:
    wire = Wire(broker.port, timeout=30, receive_buffer=SMALL_BUFFER)
    wire.connect()
    return wire


def subscribe_to_all(wire: Wire, count: int = SUBSCRIPTIONS, **headers: frames.HeaderValue) -> None:
    wire.send(*(frames.subscribe("/topic/r/>", str(at), receipt=f"r{at}", **headers) for at in range(count)))


def received(wire: Wire, receipts: int) -> dict[str, list[Frame]]:
    """Returns all MESSAGEs up to `receipts` RECEIPTs, by subscription; a RECEIPT comes after all retained messages."""
    found: dict[str, list[Frame]] = {}
    while receipts:
        frame = wire.recv_frame()
        if frame.command == "RECEIPT":
            receipts -= 1
            assert len(found[frame["receipt-id"].removeprefix("r")]) == VALUES
        else:
            assert frame.command == "MESSAGE", frame
            found.setdefault(frame["subscription"], []).append(frame)
    return found


def test_each_of_many_subscriptions_gets_all_retained_messages_before_its_receipt(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        subscribe_to_all(wire)
        found = received(wire, SUBSCRIPTIONS)
        assert len(found) == SUBSCRIPTIONS
        for messages in found.values():
            assert {message["retained"] for message in messages} == {"true"}
            assert len({message["destination"] for message in messages}) == VALUES


def test_each_subscription_over_websocket_gets_all_retained_messages(limited: BrokerProcess) -> None:
    with WebSocket.connected(limited.port) as wire:
        wire.timeout = 30
        subscribe_to_all(wire)
        assert len(received(wire, SUBSCRIPTIONS)) == SUBSCRIPTIONS


def test_a_subscriber_that_never_reads_takes_little_memory(limited: BrokerProcess) -> None:
    with connection(limited) as stuck, connection(limited) as other:
        subscribe_to_all(stuck)
        subscribe_to_all(other, 2)
        assert len(received(other, 2)) == 2, "another subscriber did not get all messages"
        assert memory_kib(limited.pid) < RESIDENT_KIB_MAX
        stuck.reset()


def test_the_replay_follows_the_credit(limited: BrokerProcess) -> None:
    """Each subscription has a prefetch of one message and acknowledges nothing."""
    with connection(limited) as wire:
        wire.send(
            *(
                frames.subscribe("/topic/r/>", str(at), ack="client-individual", prefetch_count="1")
                for at in range(1000)
            )
        )
        received = {wire.expect("MESSAGE")["subscription"] for _ in range(1000)}
        assert len(received) == 1000
        assert memory_kib(limited.pid) < RESIDENT_KIB_MAX


def test_live_messages_follow_the_retained_ones(limited: BrokerProcess) -> None:
    with connection(limited) as wire, connection(limited) as publisher:
        subscribe_to_all(wire, 5)
        before = [wire.expect("MESSAGE") for _ in range(10)]
        publisher.send(value(7, "new", receipt="sent"))
        received: dict[str, list[str]] = {}
        for message in before:
            received.setdefault(message["subscription"], []).append(message["destination"])
        ends = 0
        while ends < 5:
            frame = wire.recv_frame()
            if frame.command == "MESSAGE":
                name = frame["destination"] if "retained" in frame else "live"
                received.setdefault(frame["subscription"], []).append(name)
                ends += name == "live"
        publisher.expect_receipt("sent")
        for places in received.values():
            assert places.index("live") == VALUES, "a retained message is missing or came after a live one"


def test_a_subscriber_may_disconnect_during_the_replay(limited: BrokerProcess) -> None:
    wire = connection(limited)
    subscribe_to_all(wire)
    for _ in range(20):
        wire.expect("MESSAGE")
    wire.reset()
    with connection(limited) as next_one:
        subscribe_to_all(next_one, 1)
        received(next_one, 1)


def test_subscriptions_that_end_during_the_replay_get_all_their_receipts(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        subscribe_to_all(wire)
        for _ in range(20):
            wire.expect("MESSAGE")
        wire.send(*(frames.unsubscribe(str(at), receipt=f"u{at}") for at in range(SUBSCRIPTIONS)))
        receipts: list[str] = []
        while len(receipts) < 2 * SUBSCRIPTIONS:
            frame = wire.recv_frame()
            if frame.command == "RECEIPT":
                receipts.append(frame["receipt-id"])
        assert receipts == [f"{kind}{at}" for kind in "ru" for at in range(SUBSCRIPTIONS)]


def test_a_durable_subscription_starts_with_the_retained_messages(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        subscribe_to_all(wire, 3, durable="true")
        found: dict[str, set[str]] = {}
        while len(found) < 3 or any(len(names) < VALUES for names in found.values()):
            frame = wire.recv_frame()
            if frame.command == "MESSAGE":
                found.setdefault(frame["subscription"], set()).add(frame["destination"])


def test_stale_messages_are_replayed(start_broker: StartBroker) -> None:
    """Each stale message is delivered once, in order of arrival; those that were not sent wait for the next one."""
    broker = start_broker(memory_limit="256MiB", outbox_limit="1MiB", ttl=600_000)
    with connection(broker) as publisher:
        for first in range(0, 5000, 100):
            publisher.send(
                *(frames.send("/topic/w/x", f"{number} " + "." * 10_000) for number in range(first, first + 100))
            )
        publisher.send_and_wait("/topic/x", "")
    with connection(broker) as first_one:
        first_one.send(frames.subscribe("/topic/w/>", "0", receipt="r"))
        for number in range(50):
            assert first_one.expect("MESSAGE").text.split()[0] == str(number)
        first_one.reset()
    with connection(broker) as second:
        second.send(frames.subscribe("/topic/w/>", "0", receipt="r"))
        numbers = []
        while (frame := second.recv_frame()).command == "MESSAGE":
            numbers.append(int(frame.text.split()[0]))
        assert numbers == sorted(set(numbers)) and numbers[-1] == 4999 and len(numbers) > 4000
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= RESIDENT_KIB_MAX, f"peak {peak >> 10} MiB"


def subscribe_with_credit_for_one(wire: Wire, *behind: bytes) -> None:
    """Subscribes to all retained messages with credit for one of them, then sends the frames `behind`."""
    subscribe = frames.subscribe("/topic/r/>", "0", ack="client-individual", prefetch_count="1", receipt="s")
    wire.send(subscribe, *behind)


def is_idle(observer: Wire) -> bool:
    """Whether no other client than the one of this query is connected, subscribed or waits for an answer."""
    shards = answer(observer, "shards")
    limits = {"connections": 1, "subscriptions": 0, "unanswered": 1}
    return all(sum(shard[name] for shard in shards) <= limit for name, limit in limits.items())


def test_the_receipt_of_subscribe_does_not_wait_for_an_ack(limited: BrokerProcess) -> None:
    """The rest of the messages follows the ACKs, and live messages come after them."""
    with connection(limited) as wire:
        subscribe_with_credit_for_one(wire)
        message = wire.expect("MESSAGE", retained="true")
        wire.expect_receipt("s")
        wire.send(frames.send("/topic/r/0000", "live", receipt="sent"))
        wire.expect_receipt("sent")
        for _ in range(VALUES - 1):
            wire.send(frames.ack(id=message["ack"]))
            message = wire.expect("MESSAGE", retained="true")
        wire.send(frames.ack(id=message["ack"]))
        wire.expect_message("live")


def test_disconnect_during_the_replay_is_answered(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        subscribe_with_credit_for_one(wire, frames.disconnect(receipt="bye"))
        wire.expect("MESSAGE", retained="true")
        wire.expect_receipt("s")
        wire.expect_receipt("bye")
        wire.expect_closed()


def test_a_client_that_half_closes_during_the_replay_gets_its_receipt_and_is_closed(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        subscribe_with_credit_for_one(wire)
        wire.half_close()
        assert [frame.command for frame in wire.frames_until_closed()] == ["MESSAGE", "RECEIPT"]


def test_a_client_that_leaves_before_its_ack_leaves_nothing_behind(limited: BrokerProcess) -> None:
    with connection(limited) as observer:
        before = descriptors(limited.pid)
        for at in range(20):
            wire = connection(limited)
            subscribe_with_credit_for_one(wire, *([frames.disconnect(receipt="bye")] if at % 2 else []))
            wire.expect("MESSAGE")
            wire.close()
        eventually(lambda: is_idle(observer) and descriptors(limited.pid) <= before, "all clients have gone")
