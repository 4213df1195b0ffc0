"""Dead letters by ack_timeout, failed deliveries and expiry.

See docs/behaviour.md, sections 6 and 7; docs/specification.md, item 71.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack, ack_and_wait, nack, nack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.expiry import EXPIRY_HEADERS, lifetime
from tests.support.frames import ESCAPING
from tests.support.losses import LOSSES, LossDetector
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, dead_letters, fill, left_in, numbered, take, unsubscribe_and_wait
from tests.support.redelivery import deliver_one, expect_dead_letters, nack_repeatedly, wait_out_redelivery_delay
from tests.support.wire import Wire

NUMBERS = numbered(20)


@pytest.fixture
def short_timeout(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that gives up after three deliveries, each of which times out after 20 ms."""
    return shared_broker(redelivery_delay=2, ack_timeout=20, max_deliveries=3)


# -- ack_timeout ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_message_not_acknowledged_in_time_goes_to_another_consumer(
    client: Clients, impatient: BrokerProcess, queue: str, version: str, mode: str
) -> None:
    wire, successor = client(version, to=impatient), client(to=impatient)
    deliver_one(wire, queue, ack="client")
    successor.send(frames.subscribe(queue, "successor"))
    successor.expect_message("x", redelivered="true")
    successor.barrier(wire)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_a_message_that_is_never_acknowledged_is_dead_lettered(
    client: Clients, short_timeout: BrokerProcess, destination: str, mode: str
) -> None:
    wire, dlq = client(to=short_timeout), client(to=short_timeout)
    dlq.subscribe(dead_letters(destination))
    deliver_one(wire, destination, ack=mode)
    wire.expect_message("x", redelivered="true", delivery_count="2")
    wire.expect_message("x", redelivered="true", delivery_count="3")
    dlq.expect_message("x", dead_letter_reason="max-deliveries", delivery_count="3")
    wire.barrier(dlq)


def test_auto_deliveries_have_no_timeout(client: Clients, short_timeout: BrokerProcess, queue: str) -> None:
    wire, clock = client(to=short_timeout), client(to=short_timeout)
    deliver_one(wire, queue, ack="auto")
    deliver_one(clock, f"{queue}-2")
    clock.expect_message("x", redelivered="true")
    wire.barrier(clock)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_message_acknowledged_in_time_is_not_redelivered(
    client: Clients, shared_broker: StartBroker, queue: str, mode: str
) -> None:
    broker = shared_broker(redelivery_delay=2, ack_timeout="2s")
    wire, clock = client(to=broker), client(to=broker)
    wire.subscribe(queue, "s", ack=mode)
    wire.send(*(frames.send(queue, number) for number in NUMBERS))
    held = take(wire, *NUMBERS)
    assert ack_and_wait(wire, *(held[-1:] if mode == "client" else held)) == []
    deliver_one(clock, f"{queue}-2")
    clock.expect_message("x", redelivered="true")
    wire.barrier(clock)


def test_a_timeout_and_a_nack_both_count(client: Clients, short_timeout: BrokerProcess, queue: str) -> None:
    wire, dlq = client(to=short_timeout), client(to=short_timeout)
    dlq.subscribe(dead_letters(queue))
    wire.send(nack(wire, deliver_one(wire, queue)))
    wire.expect_message("x", delivery_count="2")
    wire.expect_message("x", delivery_count="3")
    dlq.expect_message("x", dead_letter_reason="max-deliveries", delivery_count="3")


# -- dead letters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("kind", ["/queue/", "/queue/a/", "/topic/", "#", "/plain/", "plain."])
def test_a_message_is_dead_lettered_after_max_deliveries(
    client: Clients, strict: BrokerProcess, destination: str, version: str, kind: str
) -> None:
    wire, publisher = client(version, to=strict), client(to=strict)
    wire.subscribe(destination, "s", ack="client")
    pairs = [("content-type", "text/x"), ("b", "1"), ("a", "2"), ("b", "3")]
    publisher.send(frames.send(destination, "x", *pairs))
    nack_repeatedly(wire, wire.expect_message("x"), 3)
    (dead,) = expect_dead_letters(client(version, to=strict), destination, "x")
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


def test_max_deliveries_is_ten_by_default(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    wire = client(to=shared_broker(redelivery_delay=0))
    nack_repeatedly(wire, deliver_one(wire, queue), 10)
    (dead,) = expect_dead_letters(wire, queue, "x")
    assert dead["delivery-count"] == "10"


def test_dead_letters_keep_their_order(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire = client(to=strict)
    wire.subscribe(queue, "s", ack="client", max_deliveries=1)
    wire.send(*(frames.send(queue, number) for number in NUMBERS))
    held = take(wire, *NUMBERS)
    assert nack_and_wait(wire, held[9]) == []
    assert nack_and_wait(wire, held[19]) == []
    expect_dead_letters(client(to=strict), queue, *NUMBERS)


def test_a_waiting_consumer_of_dead_letters_gets_them_at_once(
    client: Clients, strict: BrokerProcess, queue: str
) -> None:
    wire, dlq = client(to=strict), client("1.0", to=strict)
    dlq.subscribe("/queue/dlq/*", "all", ack="client")
    nack_repeatedly(wire, deliver_one(wire, queue), 3)
    while (dead := dlq.expect_message())["original-destination"] != queue:
        pass
    assert dead["dead-letter-reason"] == "max-deliveries"


def test_a_failing_message_does_not_stop_the_others(client: Clients, strict: BrokerProcess, queue: str) -> None:
    """A message that every consumer fails on is delivered three times, and no more."""
    publisher = client(to=strict)
    wire = client(to=strict)
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
    dlq = client(to=strict)
    dlq.send(frames.subscribe(dead_letters(queue)))
    dlq.expect_message("7")


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
@pytest.mark.parametrize(("asked", "granted"), [(1, 1), (2, 2), (3, 3), (100, 3)])
def test_a_subscription_may_ask_for_fewer_deliveries(
    client: Clients, strict: BrokerProcess, destination: str, asked: int, granted: int
) -> None:
    wire = client(to=strict)
    nack_repeatedly(wire, deliver_one(wire, destination, max_deliveries=asked), granted)
    (dead,) = expect_dead_letters(client(to=strict), destination, "x")
    assert (dead["dead-letter-reason"], dead["delivery-count"]) == ("max-deliveries", str(granted))


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
@pytest.mark.parametrize(("asked", "granted"), [(1, 1), (2, 2), (100, 3)])
def test_a_message_may_ask_for_fewer_deliveries(
    client: Clients, strict: BrokerProcess, destination: str, asked: int, granted: int
) -> None:
    wire, publisher = client(to=strict), client(to=strict)
    wire.subscribe(destination, "s", ack="client")
    publisher.send(frames.send(destination, "x", max_exceptions=asked))
    nack_repeatedly(wire, wire.expect_message("x", max_exceptions=str(asked)), granted)
    (dead,) = expect_dead_letters(client(to=strict), destination, "x")
    reason = "max-exceptions" if asked < 3 else "max-deliveries"
    assert (dead["dead-letter-reason"], dead["delivery-count"]) == (reason, str(granted))


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("max-deliveries", value) for value in ("x", "-1", "0", "1.5", "99999999999999999999999")),
        *(("redelivery-delay", value) for value in ("x", "-1", "soon", "99999999999999999999999")),
    ],
)
def test_a_bad_value_in_subscribe_is_an_error(client: Clients, queue: str, header: str, value: str) -> None:
    wire = client()
    wire.send(frames.subscribe(queue, "0", (header, value), ack="client", receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "99999999999999999999999"])
def test_a_bad_max_exceptions_in_send_is_an_error(client: Clients, queue: str, value: str) -> None:
    wire = client()
    wire.send(frames.send(queue, "x", max_exceptions=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
    assert left_in(client(), queue) == []


def test_no_message_is_dead_lettered_twice(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire, other = client(to=strict), client(to=strict)
    nack_repeatedly(wire, deliver_one(wire, queue), 3)
    assert unsubscribe_and_wait(wire, "s") == []
    wire.send(frames.subscribe(dead_letters(queue), "dlq", ack="client", max_deliveries=1))
    dead = wire.expect_message("x", subscription="dlq")
    assert nack_and_wait(wire, dead) == []
    wait_out_redelivery_delay(other)
    wire.barrier(other)
    for again in (dead_letters(dead_letters(queue)), "/queue/dlq/" + dead_letters(queue)[1:], queue):
        assert left_in(other, again) == []


def test_a_message_sent_to_a_dead_letter_queue_is_not_dead_lettered(
    client: Clients, strict: BrokerProcess, queue: str
) -> None:
    wire = client(to=strict)
    nack_repeatedly(wire, deliver_one(wire, dead_letters(queue)), 3)
    wire.barrier()
    assert left_in(client(to=strict), dead_letters(dead_letters(queue))) == []


def test_a_dead_letter_is_held_like_any_other_message(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire, dlq = client(to=strict), client(to=strict)
    nack_repeatedly(wire, deliver_one(wire, queue), 3)
    for _ in range(5):
        dlq.send(frames.subscribe(dead_letters(queue), "dlq", ack="client"))
        dlq.expect_message("x", original_destination=queue, dead_letter_reason="max-deliveries")
        assert unsubscribe_and_wait(dlq, "dlq") == []
    expect_dead_letters(dlq, queue, "x")


def test_a_dead_letter_of_a_topic_is_kept_without_a_consumer(
    client: Clients, strict: BrokerProcess, topic: str
) -> None:
    wire, other = client(to=strict), client(to=strict)
    other.subscribe(topic, "other")
    wire.subscribe(topic, "s", ack="client", max_deliveries=1)
    wire.send(frames.send(topic, "0"))
    assert nack_and_wait(wire, wire.expect_message("0")) == []
    wire.disconnect()
    other.expect_message("0")
    other.barrier()
    expect_dead_letters(client(to=strict), topic, "0")


@pytest.mark.parametrize("loss", ["unsubscribe", "reset", "disconnect"])
def test_a_lost_consumer_does_not_count_as_a_failure(
    client: Clients, strict: BrokerProcess, queue: str, loss: str
) -> None:
    publisher, watcher = client(to=strict), client(to=strict)
    publisher.send_and_wait(queue, "x")
    for count in range(1, 7):
        wire = client(to=strict)
        detector = LossDetector(wire, watcher) if loss != "unsubscribe" else None
        wire.send(frames.subscribe(queue, "s", ack="client"))
        wire.expect_message("x", delivery_count=None if count == 1 else str(count))
        if detector is None:
            assert unsubscribe_and_wait(wire, "s") == []
        else:
            LOSSES[loss](wire)
            detector.wait()
    wire = client(to=strict)
    wire.send(frames.subscribe(queue, "s", ack="client"))
    nack_repeatedly(wire, wire.expect_message("x", delivery_count="7"), 3)
    expect_dead_letters(publisher, queue, "x")


@pytest.mark.parametrize("version", ESCAPING)
def test_a_dead_letter_begins_with_three_headers_of_its_own(
    client: Clients, strict: BrokerProcess, queue: str, version: str
) -> None:
    wire, dlq = client(version, to=strict), client(version, to=strict)
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("content-type", "text/x")]
    wire.send_and_wait(queue, b"\0body\0", *pairs)
    wire.send(frames.subscribe(queue, "s", ack="client-individual", max_deliveries=1))
    message = wire.expect_message(b"\0body\0")
    assert nack_and_wait(wire, message) == []
    dlq.send(frames.subscribe(dead_letters(queue)))
    dead = dlq.expect_message(b"\0body\0", redelivered=None)
    assert dead["message-id"] == message["message-id"]
    told = [("dead-letter-reason", "max-deliveries"), ("original-destination", queue), ("delivery-count", "1")]
    assert [pair for pair in dead.headers if pair in told + pairs] == told + pairs


def test_dead_letters_of_a_temporary_queue_use_its_full_name(client: Clients, shared_broker: StartBroker) -> None:
    broker = shared_broker(max_deliveries=1)
    owner, other = client(to=broker), client(to=broker)
    owner.subscribe("/temp-queue/x", "t", ack="client-individual")
    owner.send(frames.send("/temp-queue/x", "x", reply_to="/temp-queue/x"))
    message = owner.expect_message("x")
    address = message["reply-to"]
    assert nack_and_wait(owner, message) == []
    other.send(frames.subscribe(f"/queue/dlq{address}"))
    other.expect_message("x", original_destination=address, dead_letter_reason="max-deliveries")


# -- expiry --------------------------------------------------------------------------------------------------------


def test_a_message_expired_on_arrival_is_dead_lettered(client: Clients, queue: str) -> None:
    wire, dlq = client(), client()
    wire.subscribe(queue, "s")
    dlq.subscribe(dead_letters(queue))
    wire.send_and_wait(queue, "x", ("k", "v"), expires=1)
    dlq.expect_message("x", dead_letter_reason="expired", original_destination=queue, k="v", redelivered=None)
    wire.barrier(dlq)


@pytest.mark.parametrize("header", EXPIRY_HEADERS)
def test_a_message_that_waits_too_long_is_dead_lettered(client: Clients, queue: str, header: str) -> None:
    publisher, dlq = client(), client()
    dlq.subscribe(dead_letters(queue))
    publisher.send(frames.send(queue, "short-lived", lifetime(header, 100)), frames.send(queue, "long-lived"))
    dlq.expect_message("short-lived", dead_letter_reason="expired", original_destination=queue)
    assert bodies(left_in(publisher, queue)) == ["long-lived"]
    dlq.barrier(publisher)


def test_a_message_that_expires_during_its_redelivery_delay_is_dead_lettered(
    client: Clients, patient: BrokerProcess, queue: str
) -> None:
    wire, dlq = client(to=patient), client(to=patient)
    dlq.subscribe(dead_letters(queue))
    wire.subscribe(queue, "s", ack="client")
    wire.send(frames.send(queue, "x", ttl=500))
    assert nack_and_wait(wire, wire.expect_message("x")) == []
    dlq.expect_message("x", dead_letter_reason="expired", delivery_count="1")
    wire.barrier(dlq)


def expire_in_flight(wire: Wire, dlq: Wire, queue: str, other_queue: str) -> Frame:
    """Returns a delivery of `queue` when its time to live is over, which the dead letter of `other_queue` shows."""
    for name in (queue, other_queue):
        dlq.subscribe(dead_letters(name), name)
    wire.subscribe(queue, "s", ack="client")
    wire.send(frames.send(queue, "x", ttl=500))
    message = wire.expect_message("x")
    wire.send(frames.send(other_queue, "clock", ttl=500))
    dlq.expect_message("clock")
    return message


@pytest.mark.parametrize("way", ["unsubscribe", "NACK"])
def test_a_message_that_expires_in_flight_is_dead_lettered_when_returned(
    client: Clients, strict: BrokerProcess, queue: str, way: str
) -> None:
    wire, dlq = client(to=strict), client(to=strict)
    message = expire_in_flight(wire, dlq, f"{queue}-0", f"{queue}-1")
    dlq.barrier(wire)
    if way == "NACK":
        wire.send(nack(wire, message))
    else:
        assert unsubscribe_and_wait(wire, "s") == []
    dlq.expect_message("x", dead_letter_reason="expired", original_destination=f"{queue}-0")
    assert way != "NACK" or unsubscribe_and_wait(wire, "s") == []
    assert left_in(wire, f"{queue}-0") == []


def test_an_expired_delivery_in_flight_may_be_acknowledged(client: Clients, queue: str) -> None:
    wire, dlq = client(), client()
    message = expire_in_flight(wire, dlq, f"{queue}-0", f"{queue}-1")
    assert ack_and_wait(wire, message) == []
    dlq.barrier(wire)


def test_an_expired_dead_letter_does_not_expire_again(client: Clients, strict: BrokerProcess, queue: str) -> None:
    publisher, wire = client(to=strict), client(to=strict)
    publisher.send_and_wait(queue, "x", expires=1)
    for _ in range(2):
        wire.send(frames.subscribe(dead_letters(queue), "s", ack="client"))
        dead = wire.expect_message("x", dead_letter_reason="expired")
        wire.send(nack(wire, dead))
        wire.expect_message("x", dead_letter_reason="expired", redelivered="true")
        assert unsubscribe_and_wait(wire, "s") == []
    expect_dead_letters(wire, queue, "x")
