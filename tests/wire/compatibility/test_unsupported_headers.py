"""Headers that ask for what stompica does not have: they are refused by name, never ignored.

See docs/behaviour.md, section 6.
"""

from __future__ import annotations

import re

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.queues import fill

SUBSCRIBE = [
    ("x-queue-name", "mine"),
    ("x-queue-type", "stream"),
    ("x-single-active-consumer", "true"),
    ("x-message-ttl", "1000"),
    ("subscription-type", "MULTICAST"),
    ("auto-delete", "true"),
    ("activemq.retroactive", "true"),
]
SEND = [
    ("AMQ_SCHEDULED_DELAY", "1000"),
    ("AMQ_SCHEDULED_PERIOD", "1000"),
    ("AMQ_SCHEDULED_CRON", "0 * * * *"),
    ("_AMQ_LVQ_NAME", "last"),
    ("_AMQ_DUPL_ID", "1"),
    ("x-queue-type", "stream"),
    ("x-message-ttl", "1000"),
    ("auto-delete", "true"),
    ("destination-type", "MULTICAST"),
]
HARMLESS = [
    ("selector", ""),
    ("selector", " "),
    ("auto-delete", "false"),
    ("exclusive", "False"),
    ("x-queue-type", "classic"),
    ("x-single-active-consumer", "false"),
    ("subscription-type", "ANYCAST"),
    ("replay-delay", "0"),
]


@pytest.mark.parametrize(("name", "value"), SUBSCRIBE)
def test_a_subscribe_with_an_unsupported_header_is_refused(client: Clients, queue: str, name: str, value: str) -> None:
    wire = client()
    wire.send(frames.subscribe(queue, "0", (name, value), receipt="r"))
    assert f"'{name}'" in wire.expect_error("E-NOT-SUPPORTED", receipt_id="r").text


@pytest.mark.parametrize(("name", "value"), SEND)
@pytest.mark.parametrize("transaction", [None, "t"])
def test_a_send_with_an_unsupported_header_is_refused(
    client: Clients, queue: str, name: str, value: str, transaction: str | None
) -> None:
    wire = client()
    wire.send(frames.begin("t"), frames.send(queue, "x", (name, value), transaction=transaction, receipt="r"))
    assert f"'{name}'" in wire.expect_error("E-NOT-SUPPORTED", receipt_id="r").text


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_a_header_that_asks_for_what_happens_anyway_is_accepted(
    client: Clients, queue: str, name: str, value: str
) -> None:
    wire = client()
    wire.subscribe(queue, "0", **{name: value})
    wire.send(frames.send(queue, "x", ("auto-delete", "false"), ("destination-type", "anycast")))
    wire.expect_message("x")


def test_auto_delete_is_accepted_where_a_subscription_ends_anyway(client: Clients, topic: str) -> None:
    wire = client()
    wire.subscribe(topic, "0", auto_delete="true", subscription_type="MULTICAST")
    wire.send(frames.send(topic, "x", ("x-message-ttl", "1000")))
    wire.expect_message("x")


def test_a_message_group_shared_by_consumers_is_warned_of_once(client: Clients, start_broker: StartBroker) -> None:
    broker: BrokerProcess = start_broker()
    publisher, queue = client(to=broker), "/queue/grouped"
    warned = re.compile(r"WARN +JMSXGroupID .*'/queue/grouped'")

    def send_grouped() -> None:
        fill(publisher, queue, "plain")
        publisher.send_and_wait(queue, "x", JMSXGroupID="g")

    first = client(to=broker)
    first.subscribe(queue)
    send_grouped()
    assert warned.findall(broker.log_text()) == []
    client(to=broker).subscribe(queue)
    for _ in range(3):
        send_grouped()
    publisher.disconnect()
    broker.terminate()
    assert broker.wait() == 0
    assert len(warned.findall(broker.log_text())) == 1
