"""UNSUBSCRIBE that ends a durable subscription: docs/behaviour.md, section 6."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients
from tests.support.durable import EACH_DIALECT, EACH_VERSION, Durable
from tests.support.queues import fill
from tests.support.wire import Wire


@EACH_VERSION
@EACH_DIALECT
def test_unsubscribe_with_the_same_headers_ends_it(durable: Durable, publisher: Wire, topic: str) -> None:
    wire = durable.connection()
    assert durable.attach(wire) == []
    assert durable.end(wire) == []
    fill(publisher, topic, "gone")
    assert durable.resume(publisher, wire) == []


@EACH_VERSION
@EACH_DIALECT
def test_a_subscription_can_be_ended_while_it_is_inactive(durable: Durable, publisher: Wire, topic: str) -> None:
    durable.create()
    fill(publisher, topic, "thrown away")
    wire = durable.connection()
    assert durable.end(wire) == []
    fill(publisher, topic, "gone")
    assert durable.resume(publisher, wire) == []


@EACH_DIALECT
def test_each_name_keeps_its_own_messages(client: Clients, topic: str, name: str, dialect: str) -> None:
    one, other = (Durable(client, dialect, "1.2", topic, f"{name}-{part}") for part in "ab")
    publisher = client()
    one.create()
    fill(publisher, topic, "1")
    other.create()
    fill(publisher, topic, "2")
    assert one.resume(publisher) == ["1", "2"]
    assert [body for body in other.resume(publisher) if "end of" not in body] == ["2"]


@pytest.mark.parametrize("mode", ["auto", "client"])
def test_a_durable_subscription_can_be_ended_while_another_holds_it(client: Clients, topic: str, mode: str) -> None:
    """The holder gets nothing more, may still acknowledge, and is not disconnected."""
    holder, other, publisher = client(), client(), client()
    name = f"d{topic}"
    holder.subscribe(topic, name, durable="true", ack=mode)
    publisher.send(frames.send(topic, "before"))
    message = holder.expect_message("before")
    other.send(frames.unsubscribe(name, durable="true", receipt="ended"))
    other.expect_receipt("ended")
    publisher.send_and_wait(topic, "never")
    if mode == "client":
        assert ack_and_wait(holder, message) == []
    holder.barrier(publisher)
    other.send(frames.unsubscribe(name, durable="true", receipt="again"))
    other.expect_error("E-SUB-UNKNOWN", receipt_id="again")
