"""Older header names of durable subscriptions, and UNSUBSCRIBE by such a name alone: docs/behaviour.md, section 6."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS, Header
from tests.support.queues import bodies, fill, fresh, until_receipt
from tests.support.wire import Wire

NAMES = ["activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name"]
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
EACH_NAME = pytest.mark.parametrize("header", NAMES)


def attach(wire: Wire, topic: str, id: str, *headers: Header) -> list[str]:
    """Subscribes; returns the bodies of the messages up to one that is sent now."""
    receipt, end = fresh("attached"), fresh("end")
    wire.send(frames.subscribe(topic, id, *headers, receipt=receipt))
    found = bodies(until_receipt(wire, receipt))
    wire.send(frames.send(topic, end))
    while (body := wire.expect_message().text) != end:
        found.append(body)
    return found


def end(wire: Wire, id: str | None, *headers: Header) -> None:
    """Unsubscribes; no message may come before the RECEIPT."""
    receipt = fresh("ended")
    wire.send(frames.unsubscribe(id, *headers, receipt=receipt))
    assert until_receipt(wire, receipt) == []


@EACH_VERSION
@EACH_NAME
def test_unsubscribe_by_name_ends_an_active_subscription(
    client: Clients, topic: str, name: str, version: str, header: str
) -> None:
    wire, publisher = client(version, ("client-id", name)), client()
    assert attach(wire, topic, "0", (header, name)) == []
    end(wire, None, (header, name))
    fill(publisher, topic, "gone")
    assert attach(wire, topic, "0", (header, name)) == [], "nothing was kept, and the subscription has ended"


@EACH_VERSION
@EACH_NAME
@pytest.mark.parametrize("id", [None, "other"], ids=["without id", "with id"])
def test_unsubscribe_by_name_ends_an_inactive_subscription(
    client: Clients, topic: str, name: str, version: str, header: str, id: str | None
) -> None:
    holder, publisher = client(version, ("client-id", name)), client()
    assert attach(holder, topic, "0", (header, name)) == []
    holder.disconnect()
    fill(publisher, topic, "thrown away")
    wire = client(version, ("client-id", name))
    end(wire, id, (header, name))
    assert attach(wire, topic, "0", (header, name)) == []


@EACH_NAME
def test_unsubscribe_by_name_ignores_a_different_id(client: Clients, topic: str, name: str, header: str) -> None:
    wire, publisher = client("1.2", ("client-id", name)), client()
    assert attach(wire, topic, "0", (header, name)) == []
    end(wire, "never used", (header, name))
    fill(publisher, topic, "gone")
    wire.barrier(publisher)
    assert attach(wire, topic, "0", (header, name)) == []


@EACH_VERSION
def test_an_unknown_name_is_an_error(client: Clients, name: str, version: str) -> None:
    wire = client(version, ("client-id", name))
    wire.send(frames.unsubscribe(None, ("durable-subscription-name", name), receipt="r"))
    wire.expect_error("E-SUB-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", ESCAPING)
def test_unsubscribe_without_a_name_requires_an_id(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.unsubscribe(None, ("destination", topic)))
    wire.expect_error("E-ID-MISSING")


def test_unsubscribe_by_name_keeps_other_subscriptions(client: Clients, topic: str, name: str) -> None:
    wire, publisher = client("1.2", ("client-id", name)), client()
    wire.subscribe(topic, "plain")
    assert attach(wire, topic + "/x", "0", ("durable-subscription-name", name)) == []
    end(wire, None, ("durable-subscription-name", name))
    fill(publisher, topic, "for the plain one")
    wire.expect_message("for the plain one", subscription="plain")


@EACH_NAME
def test_all_name_headers_mean_the_same_subscription(client: Clients, topic: str, name: str, header: str) -> None:
    holder, publisher = client("1.2", ("client-id", name)), client()
    assert attach(holder, topic, "0", (header, name)) == []
    holder.disconnect()
    fill(publisher, topic, "kept")
    wire = client("1.2", ("client-id", name))
    assert attach(wire, topic, "0", ("activemq.subscriptionName", name)) == ["kept"]
    end(wire, None, (header, name))


@EACH_VERSION
def test_persistent_true_means_durable_true(client: Clients, topic: str, name: str, version: str) -> None:
    holder, publisher = client(version), client()
    assert attach(holder, topic, name, ("persistent", "true")) == []
    holder.disconnect()
    fill(publisher, topic, "kept")
    wire = client(version)
    assert attach(wire, topic, name, ("durable", "true")) == ["kept"]
    end(wire, name, ("persistent", "true"))
    fill(publisher, topic, "gone")
    assert attach(wire, topic, name, ("persistent", "true")) == []


def test_persistent_true_requires_an_id(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.send(frames.subscribe(topic, None, ("persistent", "true")))
    wire.expect_error("E-ID-MISSING")


def test_a_1_0_unsubscribe_by_destination_ends_a_durable_subscription(client: Clients, topic: str, name: str) -> None:
    wire, publisher = client("1.0"), client()
    assert attach(wire, topic, name, ("durable", "true")) == []
    end(wire, None, ("destination", topic), ("durable", "true"))
    fill(publisher, topic, "gone")
    assert attach(wire, topic, name, ("durable", "true")) == []
