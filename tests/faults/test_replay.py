"""Last values and waiting messages for new subscriptions: limits hold, however many there are (PRODUCT.md, 1)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.faults.probes import SMALL_BUFFER, descriptors, memory_kib
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import WebSocket

RESIDENT_KIB_MAX = (256 + 64) << 10
"""What `memory_limit=256MiB` allows the whole process."""
VALUES = 1000
SUBSCRIPTIONS = 40
SIZE = 10_000


@pytest.fixture
def limited(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker with many last values, whose peak of memory is checked at the end."""
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


def ask(wire: Wire, count: int = SUBSCRIPTIONS, **headers: frames.HeaderValue) -> None:
    wire.send(*(frames.subscribe("/topic/r/>", str(at), receipt=f"r{at}", **headers) for at in range(count)))


def received(wire: Wire, receipts: int) -> dict[str, list[Frame]]:
    """All MESSAGEs up to so many RECEIPTs, by subscription; each RECEIPT comes behind all last values."""
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


def test_each_of_many_subscriptions_gets_all_last_values_before_its_receipt(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        ask(wire)
        found = received(wire, SUBSCRIPTIONS)
        assert len(found) == SUBSCRIPTIONS
        for messages in found.values():
            assert {message["retained"] for message in messages} == {"true"}
            assert len({message["destination"] for message in messages}) == VALUES


def test_the_same_over_websocket(limited: BrokerProcess) -> None:
    with WebSocket.connected(limited.port) as wire:
        wire.timeout = 30
        ask(wire)
        assert len(received(wire, SUBSCRIPTIONS)) == SUBSCRIPTIONS


def test_one_that_never_reads_costs_little(limited: BrokerProcess) -> None:
    with connection(limited) as stuck, connection(limited) as other:
        ask(stuck)
        ask(other, 2)
        assert len(received(other, 2)) == 2, "it holds nobody up"
        assert memory_kib(limited.pid) < RESIDENT_KIB_MAX
        stuck.reset()


def test_credit_sets_the_pace(limited: BrokerProcess) -> None:
    """With one message at a time each, of which none is acknowledged."""
    with connection(limited) as wire:
        wire.send(
            *(
                frames.subscribe("/topic/r/>", str(at), ack="client-individual", prefetch_count="1")
                for at in range(1000)
            )
        )
        seen = {wire.expect("MESSAGE")["subscription"] for _ in range(1000)}
        assert len(seen) == 1000
        assert memory_kib(limited.pid) < RESIDENT_KIB_MAX


def test_live_messages_follow_the_last_values(limited: BrokerProcess) -> None:
    with connection(limited) as wire, connection(limited) as publisher:
        ask(wire, 5)
        before = [wire.expect("MESSAGE") for _ in range(10)]
        publisher.send(value(7, "new", receipt="sent"))
        seen: dict[str, list[str]] = {}
        for message in before:
            seen.setdefault(message["subscription"], []).append(message["destination"])
        ends = 0
        while ends < 5:
            frame = wire.recv_frame()
            if frame.command == "MESSAGE":
                name = frame["destination"] if "retained" in frame else "live"
                seen.setdefault(frame["subscription"], []).append(name)
                ends += name == "live"
        publisher.expect_receipt("sent")
        for places in seen.values():
            assert places.index("live") == VALUES, "all last values come first, and each once"


def test_one_that_leaves_in_the_middle(limited: BrokerProcess) -> None:
    wire = connection(limited)
    ask(wire)
    for _ in range(20):
        wire.expect("MESSAGE")
    wire.reset()
    with connection(limited) as next_one:
        ask(next_one, 1)
        received(next_one, 1)


def test_subscriptions_that_end_in_the_middle_get_all_their_receipts(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        ask(wire)
        for _ in range(20):
            wire.expect("MESSAGE")
        wire.send(*(frames.unsubscribe(str(at), receipt=f"u{at}") for at in range(SUBSCRIPTIONS)))
        receipts: list[str] = []
        while len(receipts) < 2 * SUBSCRIPTIONS:
            frame = wire.recv_frame()
            if frame.command == "RECEIPT":
                receipts.append(frame["receipt-id"])
        assert receipts == [f"{kind}{at}" for kind in "ru" for at in range(SUBSCRIPTIONS)]


def test_a_durable_subscription_starts_from_them(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        ask(wire, 3, durable="true")
        found: dict[str, set[str]] = {}
        while len(found) < 3 or any(len(names) < VALUES for names in found.values()):
            frame = wire.recv_frame()
            if frame.command == "MESSAGE":
                found.setdefault(frame["subscription"], set()).add(frame["destination"])


def test_messages_that_waited_for_a_subscriber(start_broker: StartBroker) -> None:
    """Taken once, in the order of their arrival, and those that were not sent yet wait for the next one."""
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


def ask_for_one(wire: Wire, *behind: bytes) -> None:
    """Subscribes to all last values with credit for one of them, then says this."""
    subscribe = frames.subscribe("/topic/r/>", "0", ack="client-individual", prefetch_count="1", receipt="s")
    wire.send(subscribe, *behind)


def is_quiet(asker: Wire) -> bool:
    """Whether nobody but who asks this is connected, subscribed or waits for an answer."""
    asker.send(frames.frame("DIAG", body="shards"))
    shards = json.loads(asker.expect("DIAG").body)
    limits = {"connections": 1, "subscriptions": 0, "unanswered": 1}
    return all(sum(shard[name] for shard in shards) <= limit for name, limit in limits.items())


def test_a_receipt_does_not_wait_for_an_ack(limited: BrokerProcess) -> None:
    """The rest follows the ACKs, and what is sent meanwhile comes behind it."""
    with connection(limited) as wire:
        ask_for_one(wire)
        message = wire.expect("MESSAGE", retained="true")
        wire.expect_receipt("s")
        wire.send(frames.send("/topic/r/0000", "live", receipt="sent"))
        wire.expect_receipt("sent")
        for _ in range(VALUES - 1):
            wire.send(frames.ack(id=message["ack"]))
            message = wire.expect("MESSAGE", retained="true")
        wire.send(frames.ack(id=message["ack"]))
        wire.expect_message("live")


def test_disconnect_behind_it_is_answered(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        ask_for_one(wire, frames.disconnect(receipt="bye"))
        wire.expect("MESSAGE", retained="true")
        wire.expect_receipt("s")
        wire.expect_receipt("bye")
        wire.expect_closed()


def test_who_sends_no_more_is_told_and_let_go(limited: BrokerProcess) -> None:
    with connection(limited) as wire:
        ask_for_one(wire)
        wire.half_close()
        assert [frame.command for frame in wire.frames_until_closed()] == ["MESSAGE", "RECEIPT"]


def test_who_left_before_the_ack_leaves_nothing(limited: BrokerProcess) -> None:
    with connection(limited) as asker:
        before = descriptors(limited.pid)
        for at in range(20):
            wire = connection(limited)
            ask_for_one(wire, *([frames.disconnect(receipt="bye")] if at % 2 else []))
            wire.expect("MESSAGE")
            wire.close()
        eventually(lambda: is_quiet(asker) and descriptors(limited.pid) <= before, "all of them have gone")
