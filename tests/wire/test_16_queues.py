"""Work queues: PRODUCT.md 5 and 6. FIFO, held until consumed, each message to one consumer."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.queues import (
    CLIENT_MODES,
    LOSSES,
    Witness,
    ack,
    ack_and_wait,
    bodies,
    fill,
    left_in,
    shares,
    take,
    unsubscribe_and_wait,
    until_receipt,
)
from tests.support.wire import Wire
from tests.wire.conftest import OpenWebSocket

NUMBERS = [str(number) for number in range(40)]
BY_COUNT = ["prefetch-count", "prefetch", "activemq.prefetchSize", "credit"]
BY_ANY = [*BY_COUNT, "consumer-window-size"]


@pytest.fixture
def apart(shared_broker: StartBroker) -> BrokerProcess:
    """A broker for patterns that match the queues of every test. What a test sends there it consumes."""
    return shared_broker(prefetch=999)


def consumer(
    clients: Clients, queue: str, topic: str, version: str = "1.2", mode: str = "client-individual", **headers: str
) -> Wire:
    """A client that consumes from the queue and, for the fence of `shares`, listens to the topic."""
    wire = clients(version)
    wire.subscribe(topic, "end")
    wire.subscribe(queue, "jobs", ack=mode, **headers)
    return wire


# -- held, in order, once ------------------------------------------------------------------------------------------


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
def test_a_consumer_that_waits_gets_each_message_at_once(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client(version)
    wire.subscribe(queue, ack=mode)
    for number in NUMBERS:
        publisher.send(frames.send(queue, number))
        message = wire.expect_message(number)
        if mode == "client":
            wire.send(ack(wire, message))
    wire.barrier(publisher)


def test_what_was_consumed_is_gone(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    fill(publisher, queue, *NUMBERS)
    wire.send(frames.subscribe(queue))
    take(wire, *NUMBERS)
    wire.disconnect()
    assert left_in(client(), queue) == []


def test_a_thousand_messages_keep_their_order(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    numbers = [str(number) for number in range(1000)]
    wire.subscribe(queue)
    publisher.send(*(frames.send(queue, number) for number in numbers))
    take(wire, *numbers)


def test_each_publisher_s_messages_keep_their_order(client: Clients, queue: str) -> None:
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


def test_who_acknowledges_gets_the_next_one(client: Clients, queue: str) -> None:
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


def test_subscriptions_of_one_connection_are_consumers_of_their_own(client: Clients, queue: str, topic: str) -> None:
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


def test_a_queue_and_a_topic_of_one_name_are_two(client: Clients, queue: str, topic: str) -> None:
    wire = client()
    wire.subscribe(topic, "topic")
    wire.send_and_wait(queue, "queued")
    wire.barrier()
    wire.send(frames.send(topic, "published"))
    wire.expect_message("published", subscription="topic")
    assert bodies(left_in(client(), queue)) == ["queued"]


@pytest.mark.parametrize("name", ["/queue/", "/queue/a b", "/queue/é", "/queue/a/b.c", "/queue//a", "/queue/:"])
def test_names_of_queues(client: Clients, topic: str, name: str) -> None:
    queue = name + topic.replace("/", "-")
    wire, publisher = client("1.0"), client("1.0")
    fill(publisher, queue, "x")
    wire.send(frames.subscribe(queue))
    wire.expect_message("x", destination=queue)


def test_queues_are_told_apart_octet_by_octet(client: Clients, queue: str) -> None:
    wire = client()
    wire.subscribe(queue)
    for other in (f"{queue}/", f"{queue}x", f"{queue}/a", f"/queue{queue}", f"{queue} ", f"{queue[:7]}/{queue[7:]}"):
        wire.send_and_wait(other, "not mine")
    wire.barrier()


def test_a_thousand_queues(client: Clients, queue: str) -> None:
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


# -- what a MESSAGE looks like -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), [*((version, "auto") for version in VERSIONS), *CLIENT_MODES])
def test_the_headers_of_a_message(client: Clients, queue: str, version: str, mode: str) -> None:
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


def test_a_1_0_subscription_without_id(client: Clients, queue: str) -> None:
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


def test_message_ids_are_unique_over_queues_and_consumers(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, f"{queue}-{index % 2}", topic) for index in range(4)]
    publisher = client()
    for index in range(2):
        fill(publisher, f"{queue}-{index}", *NUMBERS)
    found = [message["message-id"] for share in shares(publisher, wires, topic, 80) for message in share]
    assert len(found) == len(set(found)) == 80


@pytest.mark.parametrize("sender", VERSIONS)
@pytest.mark.parametrize("receiver", VERSIONS)
def test_every_version_works_for_every_other(client: Clients, queue: str, sender: str, receiver: str) -> None:
    publisher, wire = client(sender), client(receiver)
    publisher.send(frames.send(queue, "a\r\nb", ("k", "a:b" if sender == "1.0" else r"a\cb"), receipt="r"))
    publisher.expect_receipt("r")
    wire.send(frames.subscribe(queue, "s", ack="client"))
    message = wire.expect_message("a\r\nb", k="a:b", subscription="s")
    assert ack_and_wait(wire, message) == []
    assert unsubscribe_and_wait(wire, "s") == []
    assert left_in(wire, queue) == []


@pytest.mark.parametrize("sender", ESCAPING)
def test_a_queue_holds_a_message_in_no_version(client: Clients, queue: str, sender: str) -> None:
    """It is written for the consumer that gets it: taken back from a 1.0 client, it comes whole to a 1.2 one."""
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
def test_what_was_sent_before_the_end_of_the_connection_stays(client: Clients, queue: str, ending: str) -> None:
    wire, publisher = client(), client()
    publisher.send(*(frames.send(f"{queue}-{number}", "x") for number in range(50)))
    LOSSES[ending](publisher)
    if ending == "disconnect":
        publisher.expect_closed()
    wire.send(*(frames.subscribe(f"{queue}-{number}", str(number)) for number in range(50)))
    assert {wire.expect_message("x")["subscription"] for _ in range(50)} == {str(number) for number in range(50)}


def test_the_receipt_of_disconnect_says_that_all_was_taken(client: Clients, queue: str) -> None:
    publisher = client()
    publisher.send(*(frames.send(queue, number) for number in NUMBERS), frames.disconnect(receipt="r"))
    publisher.expect_receipt("r")
    publisher.expect_closed()
    assert bodies(left_in(client(), queue)) == NUMBERS


# -- credit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", BY_COUNT)
@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_no_more_than_the_prefetch_count_is_in_flight(
    client: Clients, queue: str, version: str, mode: str, header: str
) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(queue, "0", (header, "3"), ack=mode)
    fill(publisher, queue, *NUMBERS[:10])
    first, second, _ = take(wire, "0", "1", "2")
    wire.barrier(publisher)
    wire.send(ack(wire, first))
    wire.expect_message("3")
    wire.barrier(publisher)
    wire.send(ack(wire, second))
    wire.expect_message("4")
    wire.barrier(publisher)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_consumer_window_is_of_bytes(client: Clients, queue: str, topic: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(topic, "end")
    wire.subscribe(queue, ack=mode, consumer_window_size=3000)
    texts = [number.ljust(1000, ".") for number in NUMBERS[:8]]
    fill(publisher, queue, *texts)
    (messages,) = shares(publisher, [wire], topic, 3)
    assert len(messages) in (2, 3), "headers may count, and the message that crosses the mark"
    assert bodies(messages) == texts[: len(messages)]
    wire.send(ack(wire, messages[0]))
    wire.expect_message(texts[len(messages)])
    wire.barrier(publisher)


@pytest.mark.parametrize("size", [0, 1])
def test_a_window_smaller_than_a_message_lets_one_through(client: Clients, queue: str, size: int) -> None:
    wire, publisher = client(), client()
    wire.subscribe(queue, ack="client", consumer_window_size=size)
    fill(publisher, queue, *NUMBERS[:5])
    for number in NUMBERS[:5]:
        message = wire.expect_message(number)
        wire.barrier(publisher)
        wire.send(ack(wire, message))


def test_a_thousand_are_in_flight_unless_asked_otherwise(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    numbers = [str(number) for number in range(1001)]
    wire.subscribe(queue, ack="client")
    fill(publisher, queue, *numbers)
    messages = take(wire, *numbers[:1000])
    wire.barrier(publisher)
    wire.send(ack(wire, messages[0]))
    wire.expect_message("1000")


@pytest.mark.parametrize("header", BY_COUNT)
def test_prefetch_0_is_without_limit(client: Clients, queue: str, header: str) -> None:
    wire, publisher = client(), client()
    numbers = [str(number) for number in range(1500)]
    wire.subscribe(queue, "0", (header, "0"), ack="client-individual")
    fill(publisher, queue, *numbers)
    take(wire, *numbers)


def test_a_window_of_minus_one_leaves_the_count_alone(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    numbers = [str(number) for number in range(1001)]
    wire.subscribe(queue, ack="client", consumer_window_size=-1)
    fill(publisher, queue, *numbers)
    take(wire, *numbers[:1000])
    wire.barrier(publisher)


@pytest.mark.parametrize(("credit", "count"), [("2,1000000", 2), ("100,1500", 2), ("1,1", 1)])
def test_credit_may_be_of_messages_and_of_bytes(client: Clients, queue: str, credit: str, count: int) -> None:
    wire, publisher = client(), client()
    wire.subscribe(queue, ack="client", credit=credit)
    texts = [number.ljust(1000, ".") for number in NUMBERS[:8]]
    fill(publisher, queue, *texts)
    messages = take(wire, *texts[:count])
    wire.barrier(publisher)
    wire.send(ack(wire, messages[-1]))
    take(wire, *texts[count : 2 * count])
    wire.barrier(publisher)


def test_the_setting_prefetch_is_the_default(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(prefetch=5)
    few, many, publisher = client(to=broker), client(to=broker), client(to=broker)
    fill(publisher, queue, *NUMBERS)
    few.send(frames.subscribe(queue, ack="client"))
    take(few, *NUMBERS[:5])
    few.barrier(publisher)
    many.send(frames.subscribe(queue, ack="client", prefetch_count=7))
    take(many, *NUMBERS[5:12])
    many.barrier(publisher)


def test_auto_consumers_need_no_credit(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(queue, ack="auto", prefetch_count=1)
    fill(publisher, queue, *NUMBERS)
    take(wire, *NUMBERS)


def test_who_has_no_credit_is_passed_over(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, queue, topic, prefetch_count=count) for count in ("2", "5", "100")]
    publisher = client()
    fill(publisher, queue, *NUMBERS)
    found = shares(publisher, wires, topic, 40)
    assert [len(share) for share in found] == [2, 5, 33]
    assert sorted(int(message.text) for share in found for message in share) == list(range(40))
    for share in found:
        numbers = [int(message.text) for message in share]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("header", BY_ANY)
@pytest.mark.parametrize("value", ["x", "-2", "1.5", "0x10", "1 000", "99999999999999999999999"])
def test_a_prefetch_that_is_no_number_is_an_error(client: Clients, queue: str, header: str, value: str) -> None:
    wire = client()
    wire.send(frames.subscribe(queue, "0", (header, value), ack="client", receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")


# -- TCP and WebSocket ---------------------------------------------------------------------------------------------


def test_consumers_over_tcp_and_websocket_are_equals(
    client: Clients, ws: OpenWebSocket, queue: str, topic: str
) -> None:
    wires: list[Wire] = [client(), ws(), client("1.1"), ws("1.1"), client("1.0"), ws("1.0")]
    for wire in wires:
        wire.subscribe(topic, "end")
        wire.subscribe(queue, ack="client")
    publisher = client()
    numbers = [str(number) for number in range(60)]
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
def test_from_websocket_to_tcp_and_back(client: Clients, ws: OpenWebSocket, queue: str, version: str) -> None:
    one, other = ws(version), client(version)
    for sender, receiver in ((one, other), (other, one)):
        fill(sender, queue, *NUMBERS)
        receiver.send(frames.subscribe(queue, "s"))
        take(receiver, *NUMBERS, subscription="s")
        assert unsubscribe_and_wait(receiver, "s") == []


# -- wildcards -----------------------------------------------------------------------------------------------------

PATTERNS: list[tuple[str, list[str], list[str]]] = [
    ("/*", ["/a", "/a/b", "/a.b"], [".a", "x"]),
    ("/a*", ["/a", "/ab", "/a/b"], ["/b", "/ba"]),
    ("/*/c", ["/a/c", "/b/c"], ["/c", "/a/b/c", "/a/d"]),
    ("/a.*.c", ["/a.b.c"], ["/a.c", "/a/b/c"]),
    ("/>", ["/a", "/a/b"], ["", ".a"]),
    ("/**", ["/a", "/a/b"], ["", ".a"]),
    ("/#", ["", "/a", "/a/b"], [".a", "x"]),
]


@pytest.mark.parametrize(("pattern", "matches", "others"), PATTERNS)
def test_a_pattern_consumes_from_queues_that_are_there_and_that_come(
    client: Clients, queue: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    publisher, wire = client(), client()
    names = [*matches, *others]
    for name in names[::2]:
        publisher.send_and_wait(queue + name, f"early {name}")
    wire.send(frames.subscribe(queue + pattern, "pattern"))
    expected = {f"early {name}" for name in names[::2] if name in matches}
    assert {wire.expect_message().text for _ in expected} == expected
    wire.barrier(publisher)
    for name in names:
        publisher.send_and_wait(queue + name, f"late {name}")
        if name in matches:
            wire.expect_message(f"late {name}", destination=queue + name, subscription="pattern")
    wire.barrier(publisher)
    assert unsubscribe_and_wait(wire, "pattern") == []
    for name in names:
        publisher.send_and_wait(queue + name, "after")
    wire.barrier(publisher)
    for name in others:
        waiting = [f"early {name}"] if name in names[::2] else []
        assert bodies(left_in(wire, queue + name)) == [*waiting, f"late {name}", "after"]


def test_a_pattern_and_a_name_share_the_messages(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, queue + name, topic) for name in ("/a", "/*", "/>", "/b")]
    publisher = client()
    fill(publisher, queue + "/a", *NUMBERS)
    *found, nothing = [[int(text) for text in bodies(share)] for share in shares(publisher, wires, topic, 40)]
    assert nothing == []
    assert sorted(found) == [[*range(start, 40, 3)] for start in range(3)]


def test_a_pattern_keeps_each_queue_s_order(client: Clients, queue: str) -> None:
    publisher, wire = client(), client()
    for name in "abcd":
        fill(publisher, f"{queue}/{name}", *NUMBERS)
    wire.send(frames.subscribe(f"{queue}/*", ack="client"))
    found = [wire.expect_message() for _ in range(160)]
    for name in "abcd":
        assert [message.text for message in found if message["destination"] == f"{queue}/{name}"] == NUMBERS
    assert ack_and_wait(wire, found[-1]) == []
    assert unsubscribe_and_wait(wire, "0") == []
    for name in "abcd":
        assert left_in(wire, f"{queue}/{name}") == []


def test_the_prefetch_of_a_pattern_is_for_all_its_queues(client: Clients, queue: str) -> None:
    publisher, wire = client(), client()
    for index in range(8):
        fill(publisher, f"{queue}/{index}", *NUMBERS[:5])
    wire.send(frames.subscribe(f"{queue}/*", "jobs", ack="client", prefetch_count=3))
    for _ in range(13):
        found = [wire.expect_message() for _ in range(3)]
        wire.barrier(publisher)
        wire.send(ack(wire, found[-1]))
    wire.expect_message()
    wire.barrier(publisher)


def test_a_pattern_is_of_its_kind(client: Clients, queue: str, topic: str) -> None:
    publisher, wire = client(), client()
    wire.subscribe(f"{queue}/*", "queues")
    wire.subscribe(f"{topic}/*", "topics")
    publisher.send_and_wait(f"{queue}/a", "queued")
    wire.expect_message("queued", subscription="queues")
    publisher.send(frames.send(f"{topic}/a", "published"))
    wire.expect_message("published", subscription="topics")
    wire.barrier(publisher)


def test_star_takes_no_queues(client: Clients, apart: BrokerProcess, queue: str) -> None:
    wire, publisher = client(to=apart), client(to=apart)
    for number, pattern in enumerate(("*", ">", "**", "/*", "/>", "/*/" + queue.removeprefix("/queue/"))):
        wire.subscribe(pattern, str(number))
    publisher.send_and_wait(queue, "x")
    publisher.send(frames.send("end", "end"))
    assert {wire.expect_message("end")["subscription"] for _ in range(3)} == {"0", "1", "2"}
    assert bodies(left_in(publisher, queue)) == ["x"]


@pytest.mark.parametrize("pattern", ["*", ">", "**", "#", "d*", "*/NAME"])
def test_all_queues_are_not_the_dead_ones(client: Clients, apart: BrokerProcess, queue: str, pattern: str) -> None:
    wire, publisher, name = client(to=apart), client(to=apart), queue.removeprefix("/queue/")
    publisher.send_and_wait(f"/queue/dlq/{name}", "early")
    wire.subscribe("/queue/" + pattern.replace("NAME", name), "all")
    publisher.send_and_wait(f"/queue/dlq/{name}", "late")
    publisher.send_and_wait(f"/queue/dlq/b/{name}", "late")
    wire.barrier(publisher)
    publisher.send_and_wait(f"/queue/d/{name}", "mine")
    wire.expect_message("mine", destination=f"/queue/d/{name}")
    assert unsubscribe_and_wait(wire, "all") == []
    assert bodies(left_in(publisher, f"/queue/dlq/{name}")) == ["early", "late"]
    assert bodies(left_in(publisher, f"/queue/dlq/b/{name}")) == ["late"]


@pytest.mark.parametrize("pattern", ["*", ">", "**", "t*"])
def test_the_dead_ones_are_matched_when_spelled_out(
    client: Clients, apart: BrokerProcess, queue: str, pattern: str
) -> None:
    wire, publisher, name = client(to=apart), client(to=apart), queue.removeprefix("/queue/")
    dead = {f"/queue/dlq/{name}", f"/queue/dlq/{name}/a"}
    for destination in dead:
        publisher.send_and_wait(destination, "dead")
    publisher.send_and_wait(queue, "alive")
    wire.send(frames.subscribe(f"/queue/dlq/{pattern}", "dead"))
    assert {wire.expect_message("dead")["destination"] for _ in range(2)} == dead
    wire.barrier(publisher)
    assert unsubscribe_and_wait(wire, "dead") == []
    assert bodies(left_in(publisher, queue)) == ["alive"]


def test_all_queues_are_not_the_temporary_ones(client: Clients, apart: BrokerProcess) -> None:
    wire, owner = client(to=apart), client(to=apart)
    patterns = ("/queue/*", "/queue/>", "/queue/**", "/queue/#", "/queue/t*")
    for number, pattern in enumerate(patterns):
        wire.subscribe(pattern, str(number))
    owner.subscribe("/temp-queue/x", "temp")
    owner.send(frames.send("/temp-queue/x", "private"))
    owner.expect_message("private", subscription="temp")
    wire.barrier(owner)
    for number in range(len(patterns)):
        assert unsubscribe_and_wait(wire, str(number)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("suffix", ["/*", "/*/a", "/a*", "/>", "/**", "/#"])
def test_send_to_a_pattern_is_an_error(client: Clients, queue: str, version: str, suffix: str) -> None:
    wire = client(version)
    wire.send(frames.send(queue + suffix, "x", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


# -- consumers that leave ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_what_a_lost_consumer_held_comes_back_to_its_old_place(
    client: Clients, queue: str, version: str, mode: str, loss: str
) -> None:
    doomed, publisher, watcher, heir = client(version), client(), client(), client()
    witness = Witness(doomed, watcher)
    doomed.subscribe(queue, "jobs", ack=mode, prefetch_count=4)
    fill(publisher, queue, *NUMBERS[:8])
    held = take(doomed, *NUMBERS[:4])
    doomed.send(ack(doomed, held[0]))
    doomed.expect_message("4")
    LOSSES[loss](doomed)
    witness.wait()
    heir.send(frames.subscribe(queue, "heir"))
    take(heir, *NUMBERS[1:5], redelivered="true", delivery_count="2")
    take(heir, *NUMBERS[5:8], redelivered=None, delivery_count=None)
    heir.barrier(publisher)


def test_a_consumer_without_heart_beat_is_lost(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(heartbeat="100,100")
    heir = client(to=broker)
    doomed = client("1.2", to=broker, heart_beat="100,0")
    doomed.subscribe(queue, ack="client")
    fill(heir, queue, "0", "1")
    heir.subscribe(queue, ack="client")
    assert bodies([heir.expect_message(redelivered="true") for _ in range(2)]) == ["0", "1"]


@pytest.mark.parametrize("loss", ["reset", "unsubscribe"])
def test_what_two_held_in_turns_comes_back_in_order(client: Clients, queue: str, loss: str) -> None:
    doomed, heir, publisher, watcher = client(), client(), client(), client()
    witness = Witness(doomed, watcher)
    doomed.subscribe(queue, "jobs", ack="client-individual", prefetch_count=4)
    heir.subscribe(queue, "jobs", ack="client-individual", prefetch_count=4)
    fill(publisher, queue, *NUMBERS[:12])
    lost = [doomed.expect_message() for _ in range(4)]
    held = [heir.expect_message() for _ in range(4)]
    assert sorted(int(message.text) for message in (*lost, *held)) == list(range(8))
    if loss == "unsubscribe":
        assert unsubscribe_and_wait(doomed, "jobs") == []
    doomed.reset()
    witness.wait()
    for number in bodies(lost):
        heir.send(ack(heir, held.pop(0)))
        held.append(heir.expect_message(number, redelivered="true"))
    for number in NUMBERS[8:12]:
        heir.send(ack(heir, held.pop(0)))
        held.append(heir.expect_message(number, redelivered=None))


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_thousand_in_flight_with_a_lost_consumer(client: Clients, queue: str, mode: str) -> None:
    doomed, publisher, watcher, heir = client(), client(), client(), client()
    numbers = [str(number) for number in range(1200)]
    witness = Witness(doomed, watcher)
    doomed.subscribe(queue, ack=mode)
    fill(publisher, queue, *numbers)
    take(doomed, *numbers[:1000])
    doomed.reset()
    witness.wait()
    heir.send(frames.subscribe(queue))
    take(heir, *numbers[:1000], redelivered="true")
    take(heir, *numbers[1000:], redelivered=None)


def test_a_waiting_consumer_takes_over_at_once(client: Clients, queue: str) -> None:
    doomed, heir, publisher = client(), client(), client()
    doomed.subscribe(queue, ack="client")
    fill(publisher, queue, *NUMBERS[:5])
    take(doomed, *NUMBERS[:5])
    heir.subscribe(queue, ack="client")
    doomed.reset()
    take(heir, *NUMBERS[:5], redelivered="true", delivery_count="2")


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_unsubscribe_gives_back_what_is_in_flight(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(queue, "jobs", ack=mode, prefetch_count=3)
    fill(publisher, queue, *NUMBERS[:6])
    held = take(wire, *NUMBERS[:3])
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


def test_the_message_id_stays(client: Clients, queue: str) -> None:
    wire = client()
    fill(wire, queue, "x")
    ids = set()
    for _ in range(3):
        wire.send(frames.subscribe(queue, ack="client"))
        ids.add(wire.expect_message("x")["message-id"])
        assert unsubscribe_and_wait(wire, "0") == []
    assert len(ids) == 1


# -- consumers that need not acknowledge ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["reset", "close", "disconnect"])
def test_what_an_auto_consumer_has_read_does_not_come_again(client: Clients, queue: str, loss: str) -> None:
    doomed, publisher, watcher = client(), client(), client()
    witness = Witness(doomed, watcher)
    doomed.subscribe(queue, "jobs")
    fill(publisher, queue, *NUMBERS)
    take(doomed, *NUMBERS)
    LOSSES[loss](doomed)
    witness.wait()
    assert left_in(publisher, queue) == []


@pytest.mark.parametrize("loss", ["reset", "close"])
def test_half_a_message_is_no_delivery(client: Clients, queue: str, loss: str) -> None:
    """No kernel buffers 12 MiB: the consumer dies while the first message is on its way, the others behind it."""
    publisher, watcher, heir = client(), client(), client()
    doomed = client.raw(receive_buffer=4096)
    doomed.connect()
    witness = Witness(doomed, watcher)
    big = b"x" * (12 << 20)
    publisher.send_and_wait(queue, big)
    fill(publisher, queue, "1", "2")
    doomed.send(frames.subscribe(queue, "jobs"))
    assert doomed.receive_some()
    LOSSES[loss](doomed)
    witness.wait()
    heir.send(frames.subscribe(queue))
    heir.expect_message(big)
    take(heir, "1", "2", redelivered=None)
    heir.barrier(publisher)


def test_what_a_dead_auto_consumer_did_not_get_comes_in_order(client: Clients, queue: str) -> None:
    publisher, watcher, heir = client(), client(), client()
    doomed = client.raw(receive_buffer=4096)
    doomed.connect()
    witness = Witness(doomed, watcher)
    doomed.subscribe(queue, "jobs")
    filler = "." * 200_000
    for number in range(100):
        publisher.send(frames.send(queue, f"{number}{filler}"))
    publisher.send_and_wait(queue, "end")
    doomed.reset()
    witness.wait()
    heir.send(frames.subscribe(queue))
    found = []
    while (message := heir.expect_message()).text != "end":
        found.append(int(message.text.rstrip(".")))
    assert len(found) > 50, "kernels buffer some MB of the 20"
    assert found == list(range(found[0], 100))


@pytest.mark.parametrize("ending", ["UNSUBSCRIBE", "DISCONNECT"])
@pytest.mark.parametrize("over", ["tcp", "websocket"])
def test_what_comes_before_the_last_receipt_is_consumed_and_nothing_else(
    client: Clients, ws: OpenWebSocket, queue: str, ending: str, over: str
) -> None:
    publisher, heir, watcher = client(), client(), client()
    wire = client() if over == "tcp" else ws()
    witness = Witness(wire, watcher)
    wire.subscribe(queue)
    filler = "." * 200_000
    for number in range(60):
        publisher.send(frames.send(queue, f"{number}{filler}"))
    publisher.send_and_wait(queue, "60")
    wire.send(frames.frame(ending, ("id", "0"), ("receipt", "last")))
    found = until_receipt(wire, "last")
    wire.close()
    witness.wait()
    found += left_in(heir, queue)
    assert [int(message.text.rstrip(".")) for message in found] == list(range(61))


def test_a_consumer_that_does_not_read_holds_nobody_up(client: Clients, queue: str, topic: str) -> None:
    """A full outbox is missing credit: the others get the rest, and nobody is disconnected."""
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
    assert len(found) > 60, "kernels buffer some MB of the 24"
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
        witness = Witness(wire, watcher)
        wire.send(frames.subscribe(queue, "jobs", ack="client-individual", prefetch_count=5))
        pending: list[Frame] = []
        for _ in range(15):
            message = pending.pop(0) if pending else wire.expect_message()
            pending += ack_and_wait(wire, message)
            acknowledged.append(int(message.text))
        if leave == "unsubscribe":
            unsubscribe_and_wait(wire, "jobs")
        LOSSES[leave if leave in LOSSES else "reset"](wire)
        witness.wait()
    rest = [int(message.text) for message in left_in(publisher, queue)]
    assert sorted(acknowledged + rest) == list(range(200))
    assert rest == sorted(rest)


# -- limits --------------------------------------------------------------------------------------------------------


def _taken(wire: Wire, queue: str, count: int) -> list[Frame]:
    """All that is in the queue, which may be too full for the last message of `left_in`."""
    wire.send(frames.subscribe(queue, "left"))
    found = [wire.expect_message() for _ in range(count)]
    wire.barrier()
    return found


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


def test_a_full_queue_refuses_without_receipts_too(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_queue_length=3)
    publisher = client(to=broker)
    publisher.send(*(frames.send(queue, number) for number in NUMBERS))
    publisher.expect_error("E-QUEUE-FULL")
    assert bodies(_taken(client(to=broker), queue, 3)) == NUMBERS[:3]


def test_receipts_of_what_was_accepted_come_before_the_error(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(max_queue_length=3)
    publisher = client(to=broker)
    publisher.send(*(frames.send(queue, number, receipt=number) for number in NUMBERS))
    for number in NUMBERS[:3]:
        publisher.expect_receipt(number)
    publisher.expect_error("E-QUEUE-FULL", receipt_id="3")
    assert bodies(_taken(client(to=broker), queue, 3)) == NUMBERS[:3]


@pytest.mark.parametrize("refused", [{}, {"receipt": "refused"}], ids=["silent", "receipt"])
def test_a_refused_send_among_others_ends_the_connection(
    client: Clients, shared_broker: StartBroker, queue: str, refused: dict[str, str]
) -> None:
    """Each queue's home answers for itself; whatever was taken meanwhile, the ERROR comes, and comes last."""
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


def test_every_sender_to_a_full_queue_is_refused_alone(client: Clients, shared_broker: StartBroker, queue: str) -> None:
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
    assert bodies(_taken(client(to=broker), queue, 3)) == NUMBERS[:3]


def test_what_is_in_flight_counts_and_comes_back(client: Clients, shared_broker: StartBroker, queue: str) -> None:
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
    assert bodies(_taken(client(to=broker), queue, 3)) == ["0", "2", "3"]


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
    assert 5 <= len(accepted) <= 10, "headers count too"
    client(to=broker).send_and_wait(f"{queue}-2", "x")
    wire = client(to=broker)
    wire.send(frames.subscribe(queue, "s", ack="client"))
    assert ack_and_wait(wire, take(wire, *accepted)[-1]) == []
    client(to=broker).send_and_wait(queue, "again")
    wire.expect_message("again")


def test_a_message_over_all_bytes_is_refused_by_an_empty_queue(
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


# -- big ones ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["tcp", "websocket"])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1 << 20, 8 << 20])
def test_bodies_of_every_size(client: Clients, ws: OpenWebSocket, queue: str, size: int, over: str) -> None:
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


def test_big_bodies_are_shared_out(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, queue, topic) for _ in range(3)]
    publisher = client()
    sent = {number: bytes([number]) * (1 << 20) for number in range(1, 13)}
    for body in sent.values():
        publisher.send_and_wait(queue, body)
    found = [message.body for share in shares(publisher, wires, topic, 12) for message in share]
    assert sorted(found) == sorted(sent.values())


# -- the ancestor's way --------------------------------------------------------------------------------------------


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


def test_compat_stompica_matches_queues_by_star(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(compat="stompica")
    publisher, wire = client(to=broker), client(to=broker)
    wire.subscribe(f"{queue[:-1]}*", "prefix")
    publisher.send(frames.send(queue, "x"))
    wire.expect_message("x", destination=queue)
