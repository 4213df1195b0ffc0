"""One message to very many subscriptions: the limits hold while it is delivered (PRODUCT.md, section 1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.faults.probes import SMALL_BUFFER, memory_kib
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import WebSocket

RESIDENT_KIB_MAX = (256 + 64) << 10
"""What `memory_limit=256MiB` allows the whole process."""
SUBSCRIPTIONS = 500
BODY = b"x" * 1_000_000
TOPIC = "/topic/wide"


@pytest.fixture
def limited(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker whose peak of memory is checked at the end."""
    broker = start_broker(memory_limit="256MiB", outbox_limit="1MiB")
    yield broker
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= RESIDENT_KIB_MAX, f"peak {peak >> 10} MiB"


def subscribe_often(wire: Wire, count: int, **headers: frames.HeaderValue) -> None:
    """Subscribes with ids of their own, so that no two get the same bytes."""
    last = count - 1
    wire.send(
        *(frames.subscribe(TOPIC, str(at), receipt="all" if at == last else None, **headers) for at in range(count))
    )
    wire.expect_receipt("all")


def subscriber(broker: BrokerProcess, count: int = SUBSCRIPTIONS, **headers: frames.HeaderValue) -> Wire:
    """A connection with that many subscriptions, which has not read anything else yet.

    Its receive buffer is the system's: with a small one a reader in Python is too slow beside other load, and one that
    takes no byte for a second is cut off.
    """
    wire = Wire(broker.port, timeout=30)
    wire.connect()
    subscribe_often(wire, count, **headers)
    return wire


def publisher(broker: BrokerProcess) -> Wire:
    wire = Wire(broker.port, timeout=30)
    wire.connect()
    return wire


def sent_to(wire: Wire, count: int) -> list[int]:
    """The subscriptions that got the next so many messages."""
    found = []
    for _ in range(count):
        message = wire.expect("MESSAGE")
        assert len(message.body) == len(BODY)
        found.append(int(message["subscription"]))
    return found


def test_each_subscription_gets_a_large_message_while_memory_stays_in_its_limit(limited: BrokerProcess) -> None:
    with subscriber(limited) as consumer, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"), frames.send_counted(TOPIC, "after"))
        assert sorted(sent_to(consumer, SUBSCRIPTIONS)) == list(range(SUBSCRIPTIONS))
        sender.expect_receipt("wide")
        after = {consumer.expect_message("after")["subscription"] for _ in range(SUBSCRIPTIONS)}
        assert len(after) == SUBSCRIPTIONS


def test_the_same_with_acknowledgements(limited: BrokerProcess) -> None:
    with subscriber(limited, ack="client-individual") as consumer, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sender.expect_receipt("wide")
        assert sorted(sent_to(consumer, SUBSCRIPTIONS)) == list(range(SUBSCRIPTIONS))


def test_the_same_over_websocket(limited: BrokerProcess) -> None:
    with WebSocket.connected(limited.port) as consumer, publisher(limited) as sender:
        consumer.timeout = 30
        subscribe_often(consumer, SUBSCRIPTIONS)
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        assert sorted(sent_to(consumer, SUBSCRIPTIONS)) == list(range(SUBSCRIPTIONS))
        sender.expect_receipt("wide")


def test_queues_of_one_connection_share_its_outbox(limited: BrokerProcess) -> None:
    """A full outbox takes no more from queues either, however many of them its connection consumes."""
    consumer = Wire(limited.port, timeout=30, receive_buffer=SMALL_BUFFER)
    consumer.connect()
    consumer.send(*(frames.subscribe(f"/queue/own-{at}", str(at), receipt=str(at)) for at in range(200)))
    for at in range(200):
        consumer.expect_receipt(str(at))
    with consumer, publisher(limited) as sender:
        for at in range(200):
            sender.send(frames.send_counted(f"/queue/own-{at}", BODY, receipt=str(at)))
            sender.expect_receipt(str(at))
        assert sorted(sent_to(consumer, 200)) == list(range(200))


def test_two_connections_that_share_their_ids(limited: BrokerProcess) -> None:
    with subscriber(limited) as idle, subscriber(limited) as other, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        readers = [threading.Thread(target=sent_to, args=(wire, SUBSCRIPTIONS)) for wire in (idle, other)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
        sender.expect_receipt("wide")


def test_many_connections_that_read(limited: BrokerProcess) -> None:
    """No outbox is over its limit, but all of them together would be over the memory."""
    wires = [Wire(limited.port, timeout=30, receive_buffer=SMALL_BUFFER) for _ in range(400)]
    for at, wire in enumerate(wires):
        wire.connect()
        wire.subscribe(TOPIC, str(at))
    with publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        for wire in wires:
            sent_to(wire, 1)
        sender.expect_receipt("wide")
    for wire in wires:
        wire.close()


def test_a_consumer_that_never_reads_is_cut_off_and_its_publisher_goes_on(limited: BrokerProcess) -> None:
    with subscriber(limited) as stuck, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sender.expect_receipt("wide")
        limited.wait_for_log("slow consumer cut off")
        sender.send_and_wait(TOPIC, "goes on")
        stuck.discard()


def test_a_subscriber_that_leaves_in_the_middle(limited: BrokerProcess) -> None:
    with subscriber(limited) as leaver, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sent_to(leaver, 3)
        leaver.reset()
        sender.expect_receipt("wide")
        sender.send_and_wait(TOPIC, "goes on")


def leave_in_the_middle(broker: BrokerProcess, accepted: bool) -> int:
    """All subscriptions end while a message is on its way to them. Returns how many frames came of it."""
    with subscriber(broker) as consumer, publisher(broker) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        if accepted:
            sender.expect_receipt("wide")
        sent_to(consumer, 3)
        consumer.send(*(frames.unsubscribe(str(at)) for at in range(SUBSCRIPTIONS)))
        consumer.send(frames.send("/topic/nobody", "x", receipt="left"))
        seen: list[Frame] = []
        while not seen or seen[-1].command != "RECEIPT":
            frame = consumer._parser.next_frame()
            if frame is not None:
                seen.append(frame)
            else:
                assert consumer.receive_some()
        if not accepted:
            sender.expect_receipt("wide")
        return len(seen) - 1


def test_subscriptions_that_end_before_the_receipt_left_are_skipped(start_broker: StartBroker) -> None:
    came = leave_in_the_middle(start_broker(memory_limit="256MiB", outbox_limit="1MiB", writers=1), accepted=False)
    assert came < 60, "what was not in the outbox yet is not sent"


def test_subscriptions_that_end_after_the_receipt_left_get_it_first(start_broker: StartBroker) -> None:
    """The publisher is on another thread than they are, and does not wait for them."""
    came = leave_in_the_middle(start_broker(memory_limit="256MiB", outbox_limit="1MiB", writers=2), accepted=True)
    assert came == SUBSCRIPTIONS - 3


def test_one_who_subscribes_in_the_middle_gets_what_comes_after(limited: BrokerProcess) -> None:
    with subscriber(limited) as consumer, publisher(limited) as sender, Wire(limited.port, timeout=30) as late:
        late.connect()
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sent_to(consumer, 3)
        late.subscribe(TOPIC)
        sent_to(consumer, SUBSCRIPTIONS - 3)
        sender.expect_receipt("wide")
        sender.send_and_wait(TOPIC, "after")
        late.expect_message("after")


def test_what_one_publisher_sends_stays_in_order(limited: BrokerProcess) -> None:
    """Behind a message that waits for room come others, to the same and to other topics."""
    with subscriber(limited, 20) as consumer, publisher(limited) as sender:
        consumer.subscribe("/topic/other", "other")
        sender.send(
            frames.send_counted(TOPIC, BODY),
            *(frames.send_counted("/topic/other", str(number)) for number in range(5)),
            frames.send_counted(TOPIC, BODY),
            frames.send_counted("/topic/other", "last", receipt="done"),
        )
        expected = ["wide"] * 20 + ["0", "1", "2", "3", "4"] + ["wide"] * 20 + ["last"]
        for body in expected:
            message = consumer.expect("MESSAGE")
            assert body == ("wide" if message["destination"] == TOPIC else message.text)
        sender.expect_receipt("done")


def test_a_transaction_of_large_messages(limited: BrokerProcess) -> None:
    with subscriber(limited, 100) as consumer, publisher(limited) as sender:
        large = [frames.send_counted(TOPIC, str(at).encode() + BODY[1:], transaction="t") for at in range(4)]
        sender.send(frames.begin("t"), *large, frames.commit("t", receipt="done"))
        for at in range(4):
            for _ in range(100):
                assert consumer.expect("MESSAGE").body[:1] == str(at).encode()
        sender.expect_receipt("done")


def test_more_subscriptions_than_one_turn_serves(start_broker: StartBroker) -> None:
    """20 connections with 2,000 subscriptions each: every one of them gets each message once, in order."""
    broker = start_broker()
    wires = [Wire(broker.port, timeout=30) for _ in range(20)]
    for wire in wires:
        wire.connect()
        subscribe_often(wire, 2_000)
    with publisher(broker) as sender:
        sender.send(*(frames.send(TOPIC, str(number), receipt=str(number)) for number in range(3)))
        for wire in wires:
            for number in range(3):
                got = {wire.expect_message(str(number))["subscription"] for _ in range(2_000)}
                assert len(got) == 2_000
        for number in range(3):
            sender.expect_receipt(str(number))
    for wire in wires:
        wire.close()


def test_nothing_is_left_of_a_fan_out(limited: BrokerProcess) -> None:
    with subscriber(limited) as stuck, publisher(limited) as sender:
        before = memory_kib(limited.pid)
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sent_to(stuck, 1)
        stuck.reset()
        sender.expect_receipt("wide")
        eventually(lambda: memory_kib(limited.pid) < before + (32 << 10), "memory is given back", 20)
