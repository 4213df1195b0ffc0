"""Durable subscriptions in dialogues, under the header names of three brokers.

The dialect is how a subscription is made durable: `durable:true` and `id` (RabbitMQ), `activemq.subscriptionName`
(ActiveMQ) or `durable-subscription-name` (Artemis), the last two with the `client-id` of CONNECT.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import VERSIONS
from tests.support.parser import Frame
from tests.support.queues import bodies, fresh, until_receipt
from tests.support.wire import Wire

NAMED = {"activemq": "activemq.subscriptionName", "artemis": "durable-subscription-name"}
DIALECTS = ["rabbitmq", *NAMED]
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
EACH_DIALECT = pytest.mark.parametrize("dialect", DIALECTS)


class Durable:
    """One durable subscription in its dialect, over several connections."""

    def __init__(self, client: Clients, dialect: str, version: str, topic: str, name: str) -> None:
        self.client = client
        self.dialect = dialect
        self.version = version
        self.topic = topic
        self.name = name

    def connection(self) -> Wire:
        """A session that may hold it."""
        return self.client(self.version, *self.connect_headers)

    @property
    def connect_headers(self) -> list[frames.Header]:
        """The headers of CONNECT that its scope needs."""
        return [] if self.dialect == "rabbitmq" else [("client-id", f"client-of-{self.name}")]

    @property
    def headers(self) -> list[frames.Header]:
        """The headers of SUBSCRIBE and UNSUBSCRIBE that name it, without the id."""
        return [("durable", "true")] if self.dialect == "rabbitmq" else [(NAMED[self.dialect], self.name)]

    @property
    def id(self) -> str:
        """The subscription's id on its connection."""
        return self.name if self.dialect == "rabbitmq" else "any"

    def attach(self, wire: Wire, topic: str = "", **headers: frames.HeaderValue) -> list[Frame]:
        """Subscribes; returns the MESSAGEs before the RECEIPT."""
        receipt = fresh("attached")
        wire.send(frames.subscribe(topic or self.topic, self.id, *self.headers, receipt=receipt, **headers))
        return until_receipt(wire, receipt)

    def end(self, wire: Wire) -> list[Frame]:
        """Unsubscribes with the same headers; returns the MESSAGEs before the RECEIPT."""
        receipt = fresh("ended")
        wire.send(frames.unsubscribe(self.id, *self.headers, receipt=receipt))
        return until_receipt(wire, receipt)

    def create(self) -> None:
        """Creates the subscription and leaves it inactive."""
        wire = self.connection()
        assert self.attach(wire) == []
        wire.disconnect()

    def resume(self, publisher: Wire, wire: Wire | None = None) -> list[str]:
        """Resumes the subscription; returns the bodies of the kept messages, up to one that is sent now."""
        wire = wire or self.connection()
        found = bodies(self.attach(wire))
        end = fresh("the end of what was kept")
        publisher.send(frames.send(self.topic.replace("*", "end"), end))
        while (body := wire.expect_message(subscription=self.id).text) != end:
            found.append(body)
        return found
