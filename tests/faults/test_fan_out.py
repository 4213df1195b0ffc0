"""One message to very many subscriptions: the limits hold while it is delivered (docs/behaviour.md, section 1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.probes import SMALL_BUFFER, memory_kib
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import WebSocket

RESIDENT_KIB_MAX = (256 + 64) << 10
"""What `memory_limit=256MiB` allows for the whole process."""
SUBSCRIPTIONS = 500
BODY = b"x" * 1_000_000
TOPIC = "/topic/wide"


@pytest.fixture
def limited(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker whose peak memory is checked at the end."""
    broker = start_broker(memory_limit="256MiB", outbox_limit="1MiB")
    yield broker
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= RESIDENT_KIB_MAX, f"peak {peak >> 10} MiB"


def subscribe_often(wire: Wire, count: int, **headers: frames.HeaderValue) -> None:
    """Subscribes with unique ids, so that no two subscriptions get the same bytes."""
    last = count - 1
    wire.send(
        *(frames.subscribe(TOPIC, str(at), receipt="all" if at == last else None, **headers) for at in range(count))
    )
    wire.expect_receipt("all")


def subscriber(broker: BrokerProcess, count: int = SUBSCRIPTIONS, **headers: frames.HeaderValue) -> Wire:
    """Returns a connection with `count` subscriptions that has read nothing else yet.

    It has the system's default receive buffer. With a small one, a reader in Python is too slow on a loaded machine,
    and a connection that takes no byte for a second is cut off.
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
    """Returns the subscriptions that got the next `count` messages."""
    found = []
    for _ in range(count):
        message = wire.expect("MESSAGE")
        assert len(message.body) == len(BODY)
        found.append(int(message["subscription"]))
    return found


def test_each_subscription_gets_a_large_message_within_the_memory_limit(limited: BrokerProcess) -> None:
    with subscriber(limited) as consumer, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"), frames.send_counted(TOPIC, "after"))
        assert sorted(sent_to(consumer, SUBSCRIPTIONS)) == list(range(SUBSCRIPTIONS))
        sender.expect_receipt("wide")
        after = {consumer.expect_message("after")["subscription"] for _ in range(SUBSCRIPTIONS)}
        assert len(after) == SUBSCRIPTIONS


def test_each_subscription_with_acks_gets_a_large_message_within_the_memory_limit(
    limited: BrokerProcess,
) -> None:
    with subscriber(limited, ack="client-individual") as consumer, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sender.expect_receipt("wide")
        assert sorted(sent_to(consumer, SUBSCRIPTIONS)) == list(range(SUBSCRIPTIONS))


def test_each_subscription_over_websocket_gets_a_large_message_within_the_memory_limit(limited: BrokerProcess) -> None:
    with WebSocket.connected(limited.port) as consumer, publisher(limited) as sender:
        consumer.timeout = 30
        subscribe_often(consumer, SUBSCRIPTIONS)
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        assert sorted(sent_to(consumer, SUBSCRIPTIONS)) == list(range(SUBSCRIPTIONS))
        sender.expect_receipt("wide")


def test_queues_of_one_connection_share_its_outbox(limited: BrokerProcess) -> None:
    """A full outbox takes no more messages of queues either, however many queues its connection consumes."""
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


def test_two_connections_with_the_same_subscription_ids_get_every_message(limited: BrokerProcess) -> None:
    with subscriber(limited) as idle, subscriber(limited) as other, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        readers = [threading.Thread(target=sent_to, args=(wire, SUBSCRIPTIONS)) for wire in (idle, other)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(60)
        sender.expect_receipt("wide")


def test_many_reading_connections_get_a_large_message(limited: BrokerProcess) -> None:
    """No outbox exceeds its limit, but without a bound all of them together would exceed the memory."""
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


def test_a_consumer_that_never_reads_is_cut_off_and_its_publisher_continues(limited: BrokerProcess) -> None:
    with subscriber(limited) as stuck, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sender.expect_receipt("wide")
        limited.wait_for_log("slow consumer cut off")
        sender.send_and_wait(TOPIC, "goes on")
        stuck.discard()


def test_a_subscriber_may_disconnect_during_a_fan_out(limited: BrokerProcess) -> None:
    with subscriber(limited) as leaver, publisher(limited) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sent_to(leaver, 3)
        leaver.reset()
        sender.expect_receipt("wide")
        sender.send_and_wait(TOPIC, "goes on")


def end_during_a_fan_out(broker: BrokerProcess, accepted: bool) -> int:
    """All subscriptions end while a message is being delivered to them. Returns how many frames of it came."""
    with subscriber(broker) as consumer, publisher(broker) as sender:
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        if accepted:
            sender.expect_receipt("wide")
        sent_to(consumer, 3)
        consumer.send(*(frames.unsubscribe(str(at)) for at in range(SUBSCRIPTIONS)))
        consumer.send(frames.send("/topic/nobody", "x", receipt="left"))
        received: list[Frame] = []
        while not received or received[-1].command != "RECEIPT":
            frame = consumer._parser.next_frame()
            if frame is not None:
                received.append(frame)
            else:
                assert consumer.receive_some()
        if not accepted:
            sender.expect_receipt("wide")
        return len(received) - 1


def test_subscriptions_that_end_before_the_receipt_was_sent_are_skipped(start_broker: StartBroker) -> None:
    came = end_during_a_fan_out(start_broker(memory_limit="256MiB", outbox_limit="1MiB", writers=1), accepted=False)
    assert came < 60, "a delivery that was not in the outbox yet was sent"


def test_subscriptions_that_end_after_the_receipt_was_sent_get_the_message_first(start_broker: StartBroker) -> None:
    """The publisher is on another shard than the subscriptions, and does not wait for them."""
    came = end_during_a_fan_out(start_broker(memory_limit="256MiB", outbox_limit="1MiB", writers=2), accepted=True)
    assert came == SUBSCRIPTIONS - 3


def test_a_subscription_during_a_fan_out_gets_the_messages_after_it(limited: BrokerProcess) -> None:
    with subscriber(limited) as consumer, publisher(limited) as sender, Wire(limited.port, timeout=30) as late:
        late.connect()
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sent_to(consumer, 3)
        late.subscribe(TOPIC)
        sent_to(consumer, SUBSCRIPTIONS - 3)
        sender.expect_receipt("wide")
        sender.send_and_wait(TOPIC, "after")
        late.expect_message("after")


def test_the_messages_of_one_publisher_stay_in_order(limited: BrokerProcess) -> None:
    """Messages to the same and to other topics follow a message that waits for room."""
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
    """20 connections with 2,000 subscriptions each: every subscription gets each message once, in order."""
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


def test_a_fan_out_leaves_no_memory_held(limited: BrokerProcess) -> None:
    with subscriber(limited) as stuck, publisher(limited) as sender:
        before = memory_kib(limited.pid)
        sender.send(frames.send_counted(TOPIC, BODY, receipt="wide"))
        sent_to(stuck, 1)
        stuck.reset()
        sender.expect_receipt("wide")
        eventually(lambda: memory_kib(limited.pid) < before + (32 << 10), "the memory is freed", 20)
