"""Queues: FIFO, messages wait until consumed, each goes to one consumer; docs/behaviour.md, sections 5 and 6."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack, ack_and_wait
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES
from tests.support.parser import Frame
from tests.support.queues import NUMBERS, bodies, consumer, fill, left_in, numbered, shares, take, unsubscribe_and_wait
from tests.support.wire import Wire

# -- waiting, order, one consumer for each message -----------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_wait_for_a_consumer_and_come_in_order(client: Clients, queue: str, version: str) -> None:
    publisher = client(version)
    fill(publisher, queue, *NUMBERS)
    publisher.disconnect()
    wire = client(version)
    wire.send(frames.subscribe(queue))
    take(wire, *NUMBERS, destination=queue)
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["auto", "client"])
def test_a_waiting_consumer_gets_each_message_at_once(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client(version)
    wire.subscribe(queue, ack=mode)
    for number in NUMBERS:
        publisher.send(frames.send(queue, number))
        message = wire.expect_message(number)
        if mode == "client":
            wire.send(ack(wire, message))
    wire.barrier(publisher)


def test_consumed_messages_are_gone(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    fill(publisher, queue, *NUMBERS)
    wire.send(frames.subscribe(queue))
    take(wire, *NUMBERS)
    wire.disconnect()
    assert left_in(client(), queue) == []


def test_a_thousand_messages_keep_their_order(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    numbers = numbered(1000)
    wire.subscribe(queue)
    publisher.send(*(frames.send(queue, number) for number in numbers))
    take(wire, *numbers)


def test_messages_of_each_publisher_keep_their_order(client: Clients, queue: str) -> None:
    wire, publishers = client(), [client() for _ in range(4)]
    wire.subscribe(queue)
    for start in range(0, 100, 10):
        for name, publisher in enumerate(publishers):
            publisher.send(*(frames.send(queue, f"{name}-{number}") for number in range(start, start + 10)))
    found = [wire.expect_message().text.split("-") for _ in range(400)]
    for name in range(4):
        assert [int(number) for sender, number in found if sender == str(name)] == list(range(100))


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_each_message_goes_to_one_consumer_in_turn(client: Clients, queue: str, topic: str, mode: str) -> None:
    wires = [consumer(client, queue, topic, mode=mode) for _ in range(4)]
    publisher = client()
    fill(publisher, queue, *NUMBERS)
    found = [[int(text) for text in bodies(share)] for share in shares(publisher, wires, topic, 40)]
    assert sorted(found) == [list(range(start, 40, 4)) for start in range(4)]


def test_a_consumer_that_acknowledges_gets_the_next_message(client: Clients, queue: str) -> None:
    publisher = client()
    fill(publisher, queue, *NUMBERS)
    held: list[tuple[Wire, Frame]] = []
    for number in NUMBERS[:3]:
        wire = client()
        wire.send(frames.subscribe(queue, ack="client-individual", prefetch_count=1))
        held.append((wire, wire.expect_message(number)))
    for number in NUMBERS[3:]:
        wire, message = held.pop(int(number) % 3)
        wire.send(ack(wire, message))
        held.append((wire, wire.expect_message(number)))
    for wire, _ in held:
        wire.barrier(publisher)


def test_subscriptions_of_one_connection_are_separate_consumers(client: Clients, queue: str, topic: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(topic, "end")
    for id in "abcd":
        wire.subscribe(queue, id)
    fill(publisher, queue, *NUMBERS)
    (found,) = shares(publisher, [wire], topic, 40)
    assert sorted(int(message.text) for message in found) == list(range(40))
    for id in "abcd":
        numbers = [int(message.text) for message in found if message["subscription"] == id]
        assert numbers == list(range(numbers[0], 40, 4))


def test_a_queue_and_a_topic_of_one_name_are_separate(client: Clients, queue: str, topic: str) -> None:
    wire = client()
    wire.subscribe(topic, "topic")
    wire.send_and_wait(queue, "queued")
    wire.barrier()
    wire.send(frames.send(topic, "published"))
    wire.expect_message("published", subscription="topic")
    assert bodies(left_in(client(), queue)) == ["queued"]


@pytest.mark.parametrize("name", ["/queue/", "/queue/a b", "/queue/é", "/queue/a/b.c", "/queue//a", "/queue/:"])
def test_a_queue_may_have_any_name(client: Clients, topic: str, name: str) -> None:
    queue = name + topic.replace("/", "-")
    wire, publisher = client("1.0"), client("1.0")
    fill(publisher, queue, "x")
    wire.send(frames.subscribe(queue))
    wire.expect_message("x", destination=queue)


def test_queue_names_are_compared_octet_by_octet(client: Clients, queue: str) -> None:
    wire = client()
    wire.subscribe(queue)
    for other in (f"{queue}/", f"{queue}x", f"{queue}/a", f"/queue{queue}", f"{queue} ", f"{queue[:7]}/{queue[7:]}"):
        wire.send_and_wait(other, "not mine")
    wire.barrier()


def test_a_thousand_queues_keep_their_messages_apart(client: Clients, queue: str) -> None:
    publisher, wire = client(), client()
    for number in ("0", "1"):
        publisher.send(*(frames.send(f"{queue}-{index}", number) for index in range(1000)))
    publisher.send_and_wait(f"{queue}-0", "2")
    wire.send(*(frames.subscribe(f"{queue}-{index}", str(index)) for index in range(1000)))
    found: dict[str, list[str]] = {}
    for _ in range(2001):
        message = wire.expect_message()
        assert message["destination"] == f"{queue}-{message['subscription']}"
        found.setdefault(message["subscription"], []).append(message.text)
    assert found == {str(index): ["0", "1"] if index else ["0", "1", "2"] for index in range(1000)}
    wire.barrier()


# -- the form of MESSAGE -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), [*((version, "auto") for version in VERSIONS), *CLIENT_MODES])
def test_a_message_carries_the_headers_of_its_send(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client(version)
    wire.subscribe(queue, "s-1", ack=mode)
    pairs = [("content-type", "text/x"), ("b", "1"), ("a", "2"), ("b", "3")]
    publisher.send(frames.send(queue, "x", *pairs, receipt="r"))
    publisher.expect_receipt("r")
    message = wire.expect_message("x", destination=queue, subscription="s-1", receipt=None, receipt_id=None)
    assert [pair for pair in message.headers if pair in pairs] == pairs
    assert message["message-id"]
    assert message["content-length"] == "1"
    assert ("ack" in message) == (version == "1.2" and mode != "auto")
    for absent in ("redelivered", "delivery-count", "timestamp", "transaction", "dead-letter-reason"):
        assert absent not in message


def test_a_1_0_subscription_needs_no_id(client: Clients, queue: str) -> None:
    wire = client("1.0")
    wire.subscribe(queue, None, ack="client")
    wire.send(frames.send(queue, "x"))
    message = wire.expect_message("x", subscription=None, ack=None)
    ack_and_wait(wire, message)
    wire.send(frames.unsubscribe(None, destination=queue, receipt="u"))
    wire.expect_receipt("u")
    assert left_in(wire, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_server_s_headers_cannot_be_forged(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(queue, "mine", ack="client")
    owned = ["message-id", "subscription", "ack", "redelivered", "delivery-count"]
    owned += ["dead-letter-reason", "original-destination"]
    wire.send(frames.send(queue, "x", *((name, "forged") for name in owned), ("destination", "/queue/forged")))
    message = wire.expect_message("x", subscription="mine", destination=queue, redelivered=None, delivery_count=None)
    assert all("forged" not in value for _, value in message.headers), message


def test_message_ids_are_unique_across_queues_and_consumers(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, f"{queue}-{index % 2}", topic) for index in range(4)]
    publisher = client()
    for index in range(2):
        fill(publisher, f"{queue}-{index}", *NUMBERS)
    found = [message["message-id"] for share in shares(publisher, wires, topic, 80) for message in share]
    assert len(found) == len(set(found)) == 80


@pytest.mark.parametrize("sender", VERSIONS)
@pytest.mark.parametrize("receiver", VERSIONS)
def test_every_version_can_consume_messages_of_every_other(
    client: Clients, queue: str, sender: str, receiver: str
) -> None:
    publisher, wire = client(sender), client(receiver)
    publisher.send(frames.send(queue, "a\r\nb", ("k", "a:b" if sender == "1.0" else r"a\cb"), receipt="r"))
    publisher.expect_receipt("r")
    wire.send(frames.subscribe(queue, "s", ack="client"))
    message = wire.expect_message("a\r\nb", k="a:b", subscription="s")
    assert ack_and_wait(wire, message) == []
    assert unsubscribe_and_wait(wire, "s") == []
    assert left_in(wire, queue) == []


@pytest.mark.parametrize("sender", ESCAPING)
def test_a_queued_message_is_encoded_for_the_consumer_that_gets_it(client: Clients, queue: str, sender: str) -> None:
    """A message that a 1.0 client got without some headers is redelivered with them to a 1.2 client."""
    old, publisher = client("1.0"), client(sender)
    fill_headers = [("k", r"a\nb"), ("l", ""), ("m", "c")]
    publisher.send(frames.send(queue, "x", *fill_headers, receipt="r"))
    publisher.expect_receipt("r")
    old.send(frames.subscribe(queue, ack="client"))
    old.expect_message("x", k=None, l=None, m="c")
    assert unsubscribe_and_wait(old, "0") == []
    wire = client("1.2")
    wire.send(frames.subscribe(queue))
    wire.expect_message("x", k="a\nb", l="", m="c", redelivered="true")


# -- receipts ------------------------------------------------------------------------------------------------------


def test_receipts_come_in_the_order_of_the_frames(client: Clients, queue: str, topic: str) -> None:
    wire = client()
    wire.send(
        *(
            frames.send(f"{queue}-{number % 7}" if number % 3 else f"{topic}-{number % 5}", "x", receipt=str(number))
            for number in range(200)
        )
    )
    for number in range(200):
        wire.expect_receipt(str(number))


@pytest.mark.parametrize("ending", ["disconnect", "close", "half-close"])
def test_messages_sent_before_the_connection_ends_are_kept(client: Clients, queue: str, ending: str) -> None:
    wire, publisher = client(), client()
    publisher.send(*(frames.send(f"{queue}-{number}", "x") for number in range(50)))
    LOSSES[ending](publisher)
    if ending == "disconnect":
        publisher.expect_closed()
    wire.send(*(frames.subscribe(f"{queue}-{number}", str(number)) for number in range(50)))
    assert {wire.expect_message("x")["subscription"] for _ in range(50)} == {str(number) for number in range(50)}


def test_the_receipt_of_disconnect_covers_all_messages(client: Clients, queue: str) -> None:
    publisher = client()
    publisher.send(*(frames.send(queue, number) for number in NUMBERS), frames.disconnect(receipt="r"))
    publisher.expect_receipt("r")
    publisher.expect_closed()
    assert bodies(left_in(client(), queue)) == NUMBERS
