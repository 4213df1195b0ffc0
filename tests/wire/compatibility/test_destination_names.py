"""Destination names of other brokers: docs/behaviour.md, section 5."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.queues import fill

SAME = {"/queue/": "/amq/queue/", "/topic/": "/exchange/amq.topic/"}
ELSEWHERE = ["/exchange/amq.direct/a", "/exchange/logs", "/reply-queue/amq.gen-1", "queue://a", "topic://a/b"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_rabbitmq_name_means_the_own_name(
    client: Clients, destination: str, version: str, kind: str, command: str
) -> None:
    """It is used by the sender or by the subscriber, as `command` says."""
    names = dict.fromkeys(("SEND", "SUBSCRIBE"), destination) | {command: destination.replace(kind, SAME[kind])}
    wire, publisher = client(version), client(version)
    wire.subscribe(names["SUBSCRIBE"])
    publisher.send_and_wait(names["SEND"], "x")
    wire.expect_message("x", destination=destination)


@pytest.mark.parametrize("kind", SAME)
def test_a_1_0_subscription_may_be_ended_by_its_rabbitmq_name(client: Clients, destination: str, kind: str) -> None:
    own = destination
    name = own.replace(kind, SAME[kind])
    wire, publisher = client("1.0"), client()
    wire.send(frames.subscribe(name, None, receipt="s"))
    wire.expect_receipt("s")
    wire.send(frames.unsubscribe(None, ("destination", name), receipt="u"))
    wire.expect_receipt("u")
    fill(publisher, own, "for nobody")
    wire.barrier(publisher)


def test_a_pattern_may_be_a_rabbitmq_name(client: Clients, topic: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(topic.replace("/topic/", "/exchange/amq.topic/") + ".*.b")
    publisher.send_and_wait(topic + ".a.b", "x")
    wire.expect_message("x", destination=topic + ".a.b")


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_destination_only_other_brokers_have_is_refused(client: Clients, name: str, command: str) -> None:
    wire = client()
    wire.send(frames.frame(command, ("destination", name), id="0", receipt="r"))
    error = wire.expect_error("E-DEST-INVALID", receipt_id="r")
    assert (name in error.text and "'/topic/" in error.text) or "'reply-to:/temp-queue/" in error.text, error


def test_compat_takes_every_name_as_a_topic(client: Clients, shared_broker: StartBroker) -> None:
    broker = shared_broker(compat="stompica")
    wire = client(to=broker)
    for number, name in enumerate([*SAME.values(), *ELSEWHERE]):
        wire.subscribe(name, str(number))
        wire.send(frames.send(name, "x"))
        wire.expect_message("x", destination=name)
