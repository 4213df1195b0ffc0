"""What comes again, how often, when, to whom, and where it ends: PRODUCT.md 6 and 7, PROTOCOL.md 68 and 71."""

from __future__ import annotations

import time

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
    fresh,
    left_in,
    nack,
    nack_and_wait,
    shares,
    take,
    unsubscribe_and_wait,
)
from tests.support.wire import Wire
from tests.wire.conftest import OpenWebSocket

NUMBERS = [str(number) for number in range(20)]
NACKED = [(version, mode) for version, mode in CLIENT_MODES if version != "1.0"]
LONG_MS = 10_000
"""A delay that no test waits for: what comes, comes without it."""


@pytest.fixture
def quick(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that redelivers soon and gives up after three deliveries."""
    return shared_broker(redelivery_delay=2, max_deliveries=3)


@pytest.fixture
def patient(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that does not redeliver while the test runs."""
    return shared_broker(redelivery_delay=LONG_MS)


def dead_letters(destination: str) -> str:
    """The dead-letter queue of a destination."""
    return "/queue/dlq/" + destination.removeprefix("/queue/").removeprefix("/")


def one(wire: Wire, destination: str, id: str = "s", **headers: frames.HeaderValue) -> Frame:
    """Subscribes and sends one message: it is in flight."""
    wire.subscribe(destination, id, **{"ack": "client-individual", **headers})
    wire.send(frames.send(destination, "x"))
    return wire.expect_message("x", subscription=id, redelivered=None, delivery_count=None)


def refuse(wire: Wire, message: Frame, times: int) -> None:
    """NACKs the message and what comes of it, `times` in all; each but the last brings it again."""
    first = int(message.header("delivery-count") or 1)
    for count in range(first + 1, first + times):
        wire.send(nack(wire, message))
        message = wire.expect_message(message.body, redelivered="true", delivery_count=str(count))
    assert nack_and_wait(wire, message) == []


def buried(wire: Wire, destination: str, *texts: str) -> list[Frame]:
    """The dead letters of a destination, which must be these. They may be on their way yet."""
    wire.send(frames.subscribe(dead_letters(destination), "buried"))
    found = take(wire, *texts, subscription="buried")
    wire.barrier()
    assert unsubscribe_and_wait(wire, "buried") == []
    return found


def let_delay_pass(wire: Wire) -> None:
    """Returns when redelivery delays that began before are over: a message of its own went through two, the second
    twice as long. `wire` must have nothing else to read.
    """
    queue = f"/queue/{fresh('delay')}"
    message = one(wire, queue, "delay", ack="client")
    for _ in range(2):
        wire.send(nack(wire, message))
        message = wire.expect_message("x", subscription="delay")
    assert ack_and_wait(wire, message) == []
    assert unsubscribe_and_wait(wire, "delay") == []


# -- the headers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), NACKED)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_a_redelivery_says_so_and_counts(
    client: Clients, quick: BrokerProcess, topic: str, version: str, mode: str, kind: str
) -> None:
    destination = topic.replace("/topic/", kind)
    wire = client(version, to=quick)
    wire.subscribe(destination, "s", ack=mode)
    pairs = [("content-type", "text/x"), ("b", "1"), ("a", "2"), ("b", "3")]
    wire.send(frames.send(destination, "body", *pairs))
    first = wire.expect_message("body", redelivered=None, delivery_count=None)
    wire.send(nack(wire, first))
    second = wire.expect_message("body", redelivered="true", delivery_count="2")
    wire.send(nack(wire, second))
    third = wire.expect_message("body", redelivered="true", delivery_count="3")
    assert len({message["message-id"] for message in (first, second, third)}) == 1
    for message in (first, second, third):
        assert [pair for pair in message.headers if pair in pairs] == pairs
        assert (message["destination"], message["subscription"]) == (destination, "s")
        assert len(message.all("redelivered")) == len(message.all("delivery-count")) == (message is not first)
    if version == "1.2":
        assert len({message["ack"] for message in (first, second, third)}) == 3
    assert ack_and_wait(wire, third) == []
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_consumer_s_message_says_so_in_every_version(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.send(queue, "x"))
    for count in (None, "2", "3"):
        wire.send(frames.subscribe(queue, "s", ack="client"))
        wire.expect_message("x", delivery_count=count, redelivered=None if count is None else "true")
        assert unsubscribe_and_wait(wire, "s") == []


def test_what_was_never_delivered_is_no_redelivery(client: Clients, queue: str) -> None:
    """Only what was in flight says so, not what waited behind it."""
    wire, publisher = client(), client()
    wire.subscribe(queue, "s", ack="client", prefetch_count=2)
    fill(publisher, queue, *NUMBERS[:4])
    take(wire, "0", "1")
    assert unsubscribe_and_wait(wire, "s") == []
    assert [message.header("redelivered") for message in left_in(wire, queue)] == ["true", "true", None, None]


def test_redeliveries_over_websocket(ws: OpenWebSocket, quick: BrokerProcess, queue: str) -> None:
    wire = ws("1.2", to=quick)
    refuse(wire, one(wire, queue), 3)
    buried(wire, queue, "x")


def test_a_big_message_comes_again_whole(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire = client(to=quick)
    body = bytes(range(256)) * 8192
    wire.subscribe(queue, ack="client")
    wire.send(frames.send_counted(queue, body))
    wire.send(nack(wire, wire.expect_message(body)))
    wire.expect_message(body, redelivered="true")


# -- when ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
def test_a_message_that_waits_holds_nobody_up(
    client: Clients, patient: BrokerProcess, queue: str, version: str
) -> None:
    wire, publisher = client(version, to=patient), client(to=patient)
    wire.subscribe(queue, ack="client-individual", prefetch_count=2)
    fill(publisher, queue, *NUMBERS[:5])
    wire.send(nack(wire, wire.expect_message("0")))
    for number in NUMBERS[1:5]:
        wire.send(ack(wire, wire.expect_message(number, redelivered=None)))
    fill(publisher, queue, *NUMBERS[5:8])
    take(wire, "5", "6", redelivered=None)
    wire.barrier(publisher)


def test_it_comes_back_to_its_old_place(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire, other = client(to=quick), client(to=quick)
    wire.subscribe(queue, ack="client-individual", prefetch_count=1)
    fill(other, queue, *NUMBERS[:5])
    wire.send(nack(wire, wire.expect_message("0")))
    message = wire.expect_message("1", redelivered=None)
    let_delay_pass(other)
    for number, again in (("0", "true"), ("2", None), ("3", None), ("4", None)):
        wire.send(ack(wire, message))
        message = wire.expect_message(number, redelivered=again)
    assert ack_and_wait(wire, message) == []


def test_several_come_back_in_their_order(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire, other = client(to=quick), client(to=quick)
    wire.subscribe(queue, ack="client-individual", prefetch_count=4)
    fill(other, queue, *NUMBERS[:10])
    held = take(wire, *NUMBERS[:4])
    wire.send(*(nack(wire, held[at]) for at in (2, 0, 3, 1)))
    held = take(wire, *NUMBERS[4:8], redelivered=None)
    let_delay_pass(other)
    for number in ("0", "1", "2", "3"):
        wire.send(ack(wire, held.pop(0)))
        held.append(wire.expect_message(number, redelivered="true"))
    wire.send(ack(wire, held.pop(0)))
    wire.expect_message("8", redelivered=None)


def test_the_delay_doubles_with_each_failure(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    """Refused in one moment, the first for the second time, the second for the first: the second comes first."""
    wire = client(to=shared_broker(redelivery_delay=100))
    wire.subscribe(queue, ack="client-individual")
    wire.send(frames.send(queue, "0"))
    wire.send(nack(wire, wire.expect_message("0")), frames.send(queue, "1"))
    once = wire.expect_message("1", redelivered=None)
    twice = wire.expect_message("0", delivery_count="2")
    wire.send(nack(wire, twice), nack(wire, once))
    wire.expect_message("1", delivery_count="2")
    wire.expect_message("0", delivery_count="3")


@pytest.mark.parametrize("loss", ["unsubscribe", *LOSSES])
def test_a_lost_consumer_s_messages_come_at_once(
    client: Clients, patient: BrokerProcess, queue: str, loss: str
) -> None:
    wire, heir = client(to=patient), client(to=patient)
    one(wire, queue)
    heir.subscribe(queue, ack="client")
    if loss == "unsubscribe":
        assert unsubscribe_and_wait(wire, "s") == []
    else:
        LOSSES[loss](wire)
    heir.expect_message("x", redelivered="true")


def test_a_refused_message_waits_on_without_its_consumer(client: Clients, patient: BrokerProcess, queue: str) -> None:
    """That the one who refused it leaves does not make it come sooner."""
    wire, heir, watcher = client(to=patient), client(to=patient), client(to=patient)
    witness = Witness(wire, watcher)
    assert nack_and_wait(wire, one(wire, queue)) == []
    wire.reset()
    witness.wait()
    heir.subscribe(queue, ack="client")
    heir.barrier(watcher)


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_a_subscription_may_ask_for_a_longer_delay(
    client: Clients, quick: BrokerProcess, topic: str, kind: str
) -> None:
    destination = topic.replace("/topic/", kind)
    wire, other = client(to=quick), client(to=quick)
    slow = one(wire, destination, redelivery_delay=LONG_MS)
    assert nack_and_wait(wire, slow) == []
    let_delay_pass(other)
    wire.barrier(other)


def test_a_subscription_cannot_ask_for_a_shorter_delay(client: Clients, patient: BrokerProcess, queue: str) -> None:
    wire, other = client(to=patient), client(to=patient)
    assert nack_and_wait(wire, one(wire, queue, redelivery_delay=0)) == []
    other.subscribe(dead_letters(f"{queue}-2"), "clock")
    other.send(frames.send(f"{queue}-2", "tick", ("expiration", "100")))
    other.expect_message("tick")
    wire.barrier(other)


# -- to whom -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_a_refused_message_goes_to_another_consumer(
    client: Clients, quick: BrokerProcess, topic: str, version: str, kind: str
) -> None:
    destination = topic.replace("/topic/", kind)
    wires = [client(version, to=quick) for _ in range(2)]
    publisher = client(to=quick)
    for wire in wires:
        wire.subscribe(topic, "end")
        wire.subscribe(destination, "s", ack="client-individual")
    for number in NUMBERS[:4]:
        publisher.send_and_wait(destination, number)
        found = shares(publisher, wires, topic, 1)
        holder = 0 if found[0] else 1
        (message,) = found[holder]
        assert found[1 - holder] == []
        wires[holder].send(nack(wires[holder], message))
        again = wires[1 - holder].expect_message(number, redelivered="true", delivery_count="2")
        wires[1 - holder].send(nack(wires[1 - holder], again))
        last = wires[holder].expect_message(number, redelivered="true", delivery_count="3")
        assert ack_and_wait(wires[holder], last) == []


@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_another_consumer_may_be_on_the_same_connection(
    client: Clients, quick: BrokerProcess, topic: str, kind: str
) -> None:
    destination = topic.replace("/topic/", kind)
    wire = client(to=quick)
    for id in "ab":
        wire.subscribe(destination, id, ack="client-individual")
    for number in NUMBERS[:6]:
        wire.send(frames.send(destination, number))
        first = wire.expect_message(number)
        wire.send(nack(wire, first))
        second = wire.expect_message(number, redelivered="true")
        assert {first["subscription"], second["subscription"]} == {"a", "b"}
        assert ack_and_wait(wire, second) == []


@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_another_consumer_may_have_subscribed_by_a_pattern(
    client: Clients, quick: BrokerProcess, topic: str, kind: str
) -> None:
    destination = topic.replace("/topic/", kind)
    wire, other = client(to=quick), client(to=quick)
    message = one(wire, f"{destination}/a")
    other.subscribe(f"{destination}/*", "p", ack="client")
    wire.send(nack(wire, message))
    again = other.expect_message("x", redelivered="true", subscription="p")
    assert ack_and_wait(other, again) == []
    wire.barrier(other)


def test_all_that_one_refuses_goes_to_the_other(client: Clients, quick: BrokerProcess, queue: str, topic: str) -> None:
    wires = [client(to=quick) for _ in range(2)]
    for wire in wires:
        wire.subscribe(topic, "end")
        wire.subscribe(queue, "s", ack="client-individual")
    publisher = client(to=quick)
    fill(publisher, queue, *NUMBERS)
    refused, kept = shares(publisher, wires, topic, 20)
    assert len(refused) == len(kept) == 10
    wires[0].send(*(nack(wires[0], message) for message in refused))
    again = take(wires[1], *bodies(refused), redelivered="true")
    assert ack_and_wait(wires[1], *kept, *again) == []
    wires[0].barrier(publisher)


def test_a_lone_consumer_gets_it_again_itself(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire, elsewhere = client(to=quick), client(to=quick)
    elsewhere.subscribe(f"{queue}-2", ack="client")
    message = one(wire, queue)
    wire.send(nack(wire, message))
    assert ack_and_wait(wire, wire.expect_message("x", redelivered="true")) == []
    elsewhere.barrier(wire)


# -- ack_timeout ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_what_is_not_acknowledged_in_time_goes_to_another_consumer(
    client: Clients, shared_broker: StartBroker, queue: str, version: str, mode: str
) -> None:
    broker = shared_broker(redelivery_delay=2, ack_timeout=50, max_deliveries=1000)
    wire, heir = client(version, to=broker), client(to=broker)
    one(wire, queue, ack="client")
    heir.send(frames.subscribe(queue, "heir"))
    heir.expect_message("x", redelivered="true")
    heir.barrier(wire)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_what_is_never_acknowledged_ends_as_a_dead_letter(
    client: Clients, shared_broker: StartBroker, topic: str, mode: str, kind: str
) -> None:
    broker = shared_broker(redelivery_delay=2, ack_timeout=20, max_deliveries=3)
    destination = topic.replace("/topic/", kind)
    wire, grave = client(to=broker), client(to=broker)
    grave.subscribe(dead_letters(destination))
    one(wire, destination, ack=mode)
    wire.expect_message("x", redelivered="true", delivery_count="2")
    wire.expect_message("x", redelivered="true", delivery_count="3")
    grave.expect_message("x", dead_letter_reason="max-deliveries", delivery_count="3")
    wire.barrier(grave)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_what_is_acknowledged_in_time_stays_away(
    client: Clients, shared_broker: StartBroker, queue: str, mode: str
) -> None:
    broker = shared_broker(redelivery_delay=2, ack_timeout=250)
    wire, clock = client(to=broker), client(to=broker)
    wire.subscribe(queue, "s", ack=mode)
    wire.send(*(frames.send(queue, number) for number in NUMBERS))
    held = take(wire, *NUMBERS)
    assert ack_and_wait(wire, *(held[-1:] if mode == "client" else held)) == []
    one(clock, f"{queue}-2")
    clock.expect_message("x", redelivered="true")
    wire.barrier(clock)


def test_auto_deliveries_have_no_timeout(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(redelivery_delay=2, ack_timeout=20, max_deliveries=3)
    wire, clock = client(to=broker), client(to=broker)
    one(wire, queue, ack="auto")
    one(clock, f"{queue}-2")
    clock.expect_message("x", redelivered="true")
    wire.barrier(clock)


def test_a_timeout_and_a_nack_both_count(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(redelivery_delay=2, ack_timeout=20, max_deliveries=3)
    wire, grave = client(to=broker), client(to=broker)
    grave.subscribe(dead_letters(queue))
    wire.send(nack(wire, one(wire, queue)))
    wire.expect_message("x", delivery_count="2")
    wire.expect_message("x", delivery_count="3")
    grave.expect_message("x", dead_letter_reason="max-deliveries", delivery_count="3")


# -- dead letters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("kind", ["/queue/", "/queue/a/", "/topic/", "#", "/plain/", "plain."])
def test_after_max_deliveries_it_is_a_dead_letter(
    client: Clients, quick: BrokerProcess, topic: str, version: str, kind: str
) -> None:
    destination = topic.replace("/topic/", kind)
    wire, publisher = client(version, to=quick), client(to=quick)
    wire.subscribe(destination, "s", ack="client")
    pairs = [("content-type", "text/x"), ("b", "1"), ("a", "2"), ("b", "3")]
    publisher.send(frames.send(destination, "x", *pairs))
    refuse(wire, wire.expect_message("x"), 3)
    (dead,) = buried(client(version, to=quick), destination, "x")
    assert (dead.text, dead["destination"]) == ("x", dead_letters(destination))
    assert dead["dead-letter-reason"] == "max-deliveries"
    assert dead["original-destination"] == destination
    assert dead["delivery-count"] == "3"
    assert [pair for pair in dead.headers if pair in pairs] == pairs
    wire.barrier(publisher)
    assert unsubscribe_and_wait(wire, "s") == []
    assert left_in(publisher, f"/queue/{dead_letters(destination)}") == []
    if kind.startswith("/queue/"):
        assert left_in(publisher, destination) == []


def test_ten_deliveries_by_default(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    wire = client(to=shared_broker(redelivery_delay=0))
    refuse(wire, one(wire, queue), 10)
    (dead,) = buried(wire, queue, "x")
    assert dead["delivery-count"] == "10"


def test_dead_letters_keep_their_order(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire = client(to=quick)
    wire.subscribe(queue, "s", ack="client", max_deliveries=1)
    wire.send(*(frames.send(queue, number) for number in NUMBERS))
    held = take(wire, *NUMBERS)
    assert nack_and_wait(wire, held[9]) == []
    assert nack_and_wait(wire, held[19]) == []
    buried(client(to=quick), queue, *NUMBERS)


def test_a_waiting_consumer_of_dead_letters_gets_them_at_once(
    client: Clients, quick: BrokerProcess, queue: str
) -> None:
    wire, grave = client(to=quick), client("1.0", to=quick)
    grave.subscribe("/queue/dlq/*", "all", ack="client")
    refuse(wire, one(wire, queue), 3)
    while (dead := grave.expect_message())["original-destination"] != queue:
        pass
    assert dead["dead-letter-reason"] == "max-deliveries"


def test_the_others_go_on(client: Clients, quick: BrokerProcess, queue: str) -> None:
    """A message that kills its workers costs its three deliveries, no more."""
    publisher = client(to=quick)
    wire = client(to=quick)
    fill(publisher, queue, *NUMBERS)
    wire.send(frames.subscribe(queue, "s", ack="client-individual", prefetch_count=3))
    done: list[str] = []
    failures = 0
    while len(done) < len(NUMBERS) - 1 or failures < 3:
        message = wire.expect_message()
        if message.text == "7":
            failures += 1
            wire.send(nack(wire, message))
        else:
            done.append(message.text)
            wire.send(ack(wire, message))
    assert sorted(done, key=int) == [number for number in NUMBERS if number != "7"]
    grave = client(to=quick)
    grave.send(frames.subscribe(dead_letters(queue)))
    grave.expect_message("7")


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
@pytest.mark.parametrize(("asked", "granted"), [(1, 1), (2, 2), (3, 3), (100, 3)])
def test_a_subscription_may_ask_for_fewer_deliveries(
    client: Clients, quick: BrokerProcess, topic: str, kind: str, asked: int, granted: int
) -> None:
    destination = topic.replace("/topic/", kind)
    wire = client(to=quick)
    refuse(wire, one(wire, destination, max_deliveries=asked), granted)
    (dead,) = buried(client(to=quick), destination, "x")
    assert (dead["dead-letter-reason"], dead["delivery-count"]) == ("max-deliveries", str(granted))


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
@pytest.mark.parametrize(("asked", "granted"), [(1, 1), (2, 2), (100, 3)])
def test_a_message_may_ask_for_fewer_deliveries(
    client: Clients, quick: BrokerProcess, topic: str, kind: str, asked: int, granted: int
) -> None:
    destination = topic.replace("/topic/", kind)
    wire, publisher = client(to=quick), client(to=quick)
    wire.subscribe(destination, "s", ack="client")
    publisher.send(frames.send(destination, "x", max_exceptions=asked))
    refuse(wire, wire.expect_message("x", max_exceptions=str(asked)), granted)
    (dead,) = buried(client(to=quick), destination, "x")
    reason = "max-exceptions" if asked < 3 else "max-deliveries"
    assert (dead["dead-letter-reason"], dead["delivery-count"]) == (reason, str(granted))


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("max-deliveries", value) for value in ("x", "-1", "0", "1.5", "99999999999999999999999")),
        *(("redelivery-delay", value) for value in ("x", "-1", "soon", "99999999999999999999999")),
    ],
)
def test_a_bad_value_in_subscribe(client: Clients, queue: str, header: str, value: str) -> None:
    wire = client()
    wire.send(frames.subscribe(queue, "0", (header, value), ack="client", receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "99999999999999999999999"])
def test_a_bad_max_exceptions_in_send(client: Clients, queue: str, value: str) -> None:
    wire = client()
    wire.send(frames.send(queue, "x", max_exceptions=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
    assert left_in(client(), queue) == []


def test_nothing_is_dead_lettered_twice(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire, other = client(to=quick), client(to=quick)
    refuse(wire, one(wire, queue), 3)
    assert unsubscribe_and_wait(wire, "s") == []
    wire.send(frames.subscribe(dead_letters(queue), "grave", ack="client", max_deliveries=1))
    dead = wire.expect_message("x", subscription="grave")
    assert nack_and_wait(wire, dead) == []
    let_delay_pass(other)
    wire.barrier(other)
    for again in (dead_letters(dead_letters(queue)), "/queue/dlq/" + dead_letters(queue)[1:], queue):
        assert left_in(other, again) == []


def test_a_message_sent_to_a_dead_letter_queue_is_no_better(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire = client(to=quick)
    refuse(wire, one(wire, dead_letters(queue)), 3)
    wire.barrier()
    assert left_in(client(to=quick), dead_letters(dead_letters(queue))) == []


def test_a_dead_letter_is_held_like_any_message(client: Clients, quick: BrokerProcess, queue: str) -> None:
    wire, grave = client(to=quick), client(to=quick)
    refuse(wire, one(wire, queue), 3)
    for _ in range(5):
        grave.send(frames.subscribe(dead_letters(queue), "grave", ack="client"))
        grave.expect_message("x", original_destination=queue, dead_letter_reason="max-deliveries")
        assert unsubscribe_and_wait(grave, "grave") == []
    buried(grave, queue, "x")


def test_a_dead_letter_without_anybody_is_kept_for_topics_too(
    client: Clients, quick: BrokerProcess, topic: str
) -> None:
    wire, other = client(to=quick), client(to=quick)
    other.subscribe(topic, "other")
    wire.subscribe(topic, "s", ack="client", max_deliveries=1)
    wire.send(frames.send(topic, "0"))
    assert nack_and_wait(wire, wire.expect_message("0")) == []
    wire.disconnect()
    other.expect_message("0")
    other.barrier()
    buried(client(to=quick), topic, "0")


@pytest.mark.parametrize("loss", ["unsubscribe", "reset", "disconnect"])
def test_a_lost_consumer_is_no_failure(client: Clients, quick: BrokerProcess, queue: str, loss: str) -> None:
    publisher, watcher = client(to=quick), client(to=quick)
    publisher.send_and_wait(queue, "x")
    for count in range(1, 7):
        wire = client(to=quick)
        witness = Witness(wire, watcher) if loss != "unsubscribe" else None
        wire.send(frames.subscribe(queue, "s", ack="client"))
        wire.expect_message("x", delivery_count=None if count == 1 else str(count))
        if witness is None:
            assert unsubscribe_and_wait(wire, "s") == []
        else:
            LOSSES[loss](wire)
            witness.wait()
    wire = client(to=quick)
    wire.send(frames.subscribe(queue, "s", ack="client"))
    refuse(wire, wire.expect_message("x", delivery_count="7"), 3)
    buried(publisher, queue, "x")


# -- expiry --------------------------------------------------------------------------------------------------------


def test_what_expired_on_arrival_is_a_dead_letter(client: Clients, queue: str) -> None:
    wire, grave = client(), client()
    wire.subscribe(queue, "s")
    grave.subscribe(dead_letters(queue))
    wire.send_and_wait(queue, "x", ("k", "v"), expires=1)
    grave.expect_message("x", dead_letter_reason="expired", original_destination=queue, k="v", redelivered=None)
    wire.barrier(grave)


@pytest.mark.parametrize("header", ["expires", "expiration", "ttl"])
def test_what_waits_too_long_is_a_dead_letter(client: Clients, queue: str, header: str) -> None:
    publisher, grave = client(), client()
    grave.subscribe(dead_letters(queue))
    value = int(time.time() * 1000) + 100 if header == "expires" else 100
    publisher.send(frames.send(queue, "mortal", (header, str(value))), frames.send(queue, "lasting"))
    grave.expect_message("mortal", dead_letter_reason="expired", original_destination=queue)
    assert bodies(left_in(publisher, queue)) == ["lasting"]
    grave.barrier(publisher)


def test_what_expires_while_it_waits_for_its_delay(client: Clients, patient: BrokerProcess, queue: str) -> None:
    wire, grave = client(to=patient), client(to=patient)
    grave.subscribe(dead_letters(queue))
    wire.subscribe(queue, "s", ack="client")
    wire.send(frames.send(queue, "x", ttl=120))
    assert nack_and_wait(wire, wire.expect_message("x")) == []
    grave.expect_message("x", dead_letter_reason="expired", delivery_count="1")
    wire.barrier(grave)


@pytest.mark.parametrize("way", ["unsubscribe", "NACK"])
def test_what_expires_in_flight_ends_when_it_comes_back(
    client: Clients, quick: BrokerProcess, queue: str, way: str
) -> None:
    wire, grave = client(to=quick), client(to=quick)
    for number in range(2):
        grave.subscribe(dead_letters(f"{queue}-{number}"), str(number))
    wire.subscribe(f"{queue}-0", "s", ack="client")
    wire.send(frames.send(f"{queue}-0", "x", ttl=120))
    message = wire.expect_message("x")
    wire.send(frames.send(f"{queue}-1", "clock", ttl=120))
    grave.expect_message("clock")
    grave.barrier(wire)
    if way == "NACK":
        wire.send(nack(wire, message))
    else:
        assert unsubscribe_and_wait(wire, "s") == []
    grave.expect_message("x", dead_letter_reason="expired", original_destination=f"{queue}-0")
    assert way != "NACK" or unsubscribe_and_wait(wire, "s") == []
    assert left_in(wire, f"{queue}-0") == []


def test_a_delivery_in_flight_may_be_acknowledged_after_it_expired(client: Clients, queue: str) -> None:
    wire, grave = client(), client()
    for number in range(2):
        grave.subscribe(dead_letters(f"{queue}-{number}"), str(number))
    wire.subscribe(f"{queue}-0", "s", ack="client")
    wire.send(frames.send(f"{queue}-0", "x", ttl=120))
    message = wire.expect_message("x")
    wire.send(frames.send(f"{queue}-1", "clock", ttl=120))
    grave.expect_message("clock")
    assert ack_and_wait(wire, message) == []
    grave.barrier(wire)


def test_an_expired_dead_letter_does_not_expire_again(client: Clients, quick: BrokerProcess, queue: str) -> None:
    publisher, wire = client(to=quick), client(to=quick)
    publisher.send_and_wait(queue, "x", expires=1)
    for _ in range(2):
        wire.send(frames.subscribe(dead_letters(queue), "s", ack="client"))
        dead = wire.expect_message("x", dead_letter_reason="expired")
        wire.send(nack(wire, dead))
        wire.expect_message("x", dead_letter_reason="expired", redelivered="true")
        assert unsubscribe_and_wait(wire, "s") == []
    buried(wire, queue, "x")
