"""A `reply-to` that names a temporary queue brings replies without a SUBSCRIBE, as in RabbitMQ.

See docs/behaviour.md, section 5.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.wire import Wire

ANSWERS = "/temp-queue/answers"


class Service:
    """Replies to requests in a queue of its own."""

    def __init__(self, client: Clients, queue: str) -> None:
        self.queue = queue
        self.wire = client()
        self.wire.subscribe(queue)

    def answer(self, body: str) -> None:
        """Takes one request and replies to it."""
        self.wire.send_and_wait(self.wire.expect_message()["reply-to"], body)


@pytest.fixture
def service(client: Clients, queue: str) -> Service:
    """A service of this test's own."""
    return Service(client, queue)


def ask(wire: Wire, service: Service, **headers: frames.HeaderValue) -> None:
    """Sends a request."""
    wire.send(frames.send(service.queue, "?", reply_to=ANSWERS, **headers))


@pytest.mark.parametrize("version", VERSIONS)
def test_replies_come_without_a_subscribe(client: Clients, service: Service, version: str) -> None:
    wire = client(version)
    for number in range(3):
        ask(wire, service)
        service.answer(str(number))
        message = wire.expect_message(str(number), subscription=ANSWERS, destination=ANSWERS)
        assert "ack" not in dict(message.headers), "there is nothing to acknowledge"
    wire.barrier(service.wire)


def test_reply_to_works_in_a_transaction(client: Clients, service: Service) -> None:
    wire = client()
    wire.send(frames.begin("t"))
    ask(wire, service, transaction="t")
    wire.send(frames.commit("t"))
    service.answer("x")
    wire.expect_message("x", subscription=ANSWERS)


@pytest.mark.parametrize("pattern", [ANSWERS, "/temp-queue/*"])
def test_an_existing_subscription_gets_the_replies_alone(client: Clients, service: Service, pattern: str) -> None:
    wire = client()
    wire.subscribe(pattern, "mine")
    for _ in range(2):
        ask(wire, service)
        service.answer("x")
        wire.expect_message("x", subscription="mine", destination=ANSWERS)
    wire.barrier(service.wire)


def test_a_pattern_gets_the_replies_of_queues_older_than_it(client: Clients, service: Service) -> None:
    """This holds even before the home has applied the pattern to each of them."""
    wire, numbers = client(), range(3000)
    wire.send(*(frames.subscribe(f"{ANSWERS}/{number}", str(number)) for number in numbers))
    wire.send(*(frames.unsubscribe(str(number)) for number in numbers))
    wire.barrier()
    asked = [frames.send(service.queue, "?", reply_to=f"{ANSWERS}/{number}") for number in numbers[-20:]]
    wire.send(frames.subscribe(ANSWERS + "/*", "mine"), *asked)
    answers = [frames.send(service.wire.expect_message()["reply-to"], "x") for _ in asked]
    service.wire.send(*answers)
    for _ in asked:
        wire.expect_message("x", subscription="mine")


@pytest.mark.parametrize("pattern", [ANSWERS, "/temp-queue/*"])
def test_a_later_subscription_gets_the_replies_from_then_on(client: Clients, service: Service, pattern: str) -> None:
    wire = client()
    ask(wire, service)
    service.answer("1")
    wire.expect_message("1", subscription=ANSWERS)
    wire.subscribe(pattern, "mine")
    for _ in range(2):
        ask(wire, service)
        service.answer("2")
        wire.expect_message("2", subscription="mine")
    wire.barrier(service.wire)


def test_a_client_may_subscribe_with_the_queue_name_as_id(client: Clients, service: Service) -> None:
    wire = client()
    ask(wire, service)
    wire.subscribe(ANSWERS, ANSWERS, ack="client")
    service.answer("x")
    assert wire.expect_message("x", subscription=ANSWERS)["ack"]


def test_unsubscribe_stops_replies_until_the_next_request(client: Clients, service: Service) -> None:
    wire = client()
    ask(wire, service)
    wire.send(frames.unsubscribe(ANSWERS, receipt="u"))
    wire.expect_receipt("u")
    service.answer("1")
    wire.barrier(service.wire)
    ask(wire, service)
    wire.expect_message("1", subscription=ANSWERS)
    service.answer("2")
    wire.expect_message("2", subscription=ANSWERS)


def test_a_reply_subscription_counts_against_the_limit(client: Clients, shared_broker: StartBroker) -> None:
    broker = shared_broker(max_subscriptions=2)
    wire = client(to=broker)
    for number in range(2):
        wire.send(frames.send("/queue/a", "?", reply_to=f"{ANSWERS}-{number}"))
    wire.send(frames.send("/queue/a", "?", reply_to=f"{ANSWERS}-0", receipt="again"))
    wire.expect_receipt("again")
    wire.send(frames.send("/queue/a", "?", reply_to=f"{ANSWERS}-2"))
    wire.expect_error("E-SUB-COUNT")


def test_a_temporary_topic_requires_a_subscribe(client: Clients, service: Service) -> None:
    wire = client()
    wire.send(frames.send(service.queue, "?", reply_to="/temp-topic/answers"))
    service.answer("for nobody")
    wire.subscribe("/temp-topic/answers", "mine")
    wire.send(frames.send(service.queue, "?", reply_to="/temp-topic/answers"))
    service.answer("x")
    wire.expect_message("x", subscription="mine")
