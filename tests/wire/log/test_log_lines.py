"""Log lines about messages that end with the broker: docs/behaviour.md, sections 5 and 7."""

from __future__ import annotations

import re

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.queues import fill, take

ENDED = re.compile(r"INFO +(\d+) messages of queues end with the broker: they are not stored")


def test_the_log_says_how_many_messages_end_with_the_broker(client: Clients, start_broker: StartBroker) -> None:
    """It counts messages in queues, in flight, dead-lettered, and kept for durable subscribers, and no others."""
    broker = start_broker(drain="1s", max_deliveries=1, TTL="1h")
    wire, publisher = client(to=broker), client(to=broker)
    fill(publisher, "/queue/waiting", *"12345")
    fill(publisher, "/queue/held", *"123")
    wire.send(frames.subscribe("/queue/held", "s", ack="client-individual"))
    first, second, _ = take(wire, *"123")
    assert ack_and_wait(wire, first) == []
    wire.send(frames.nack(id=second["ack"], receipt="dead"))
    wire.expect_receipt("dead")
    wire.subscribe("/topic/kept", "durable", durable="true")
    wire.send(frames.unsubscribe("durable", receipt="left"))
    wire.expect_receipt("left")
    fill(publisher, "/topic/kept", "1", "2")
    fill(publisher, "/topic/stale", "nobody's")
    publisher.send(frames.begin("t"), frames.send("/queue/waiting", "open", transaction="t", receipt="open"))
    publisher.expect_receipt("open")
    for each in (wire, publisher):
        each.close()
    assert sum(int(count) for count in ENDED.findall(broker.log_of_ordered_end())) == 5 + 2 + 2


def test_the_log_says_nothing_of_empty_queues(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire = client(to=broker)
    wire.subscribe("/queue/a")
    fill(wire, "/queue/a", "x")
    wire.expect_message("x")
    wire.disconnect()
    assert ENDED.findall(broker.log_of_ordered_end()) == []
