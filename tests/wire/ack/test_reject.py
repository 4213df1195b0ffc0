"""NACK with `requeue:false`, by which RabbitMQ's clients reject a message finally: docs/behaviour.md, section 7."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import nack
from tests.support.clients import Clients
from tests.support.frames import ESCAPING
from tests.support.process import BrokerProcess
from tests.support.queues import dead_letters, fill, fresh, until_receipt
from tests.support.wire import Wire


def dead_letter_consumer(client: Clients, destination: str, to: BrokerProcess | None = None) -> Wire:
    """A consumer of the destination's dead letters."""
    wire = client(to=to)
    wire.subscribe(dead_letters(destination))
    return wire


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_a_rejected_message_is_dead_lettered_at_once(
    client: Clients, patient: BrokerProcess, destination: str, version: str
) -> None:
    wire, dlq = client(version, to=patient), dead_letter_consumer(client, destination, patient)
    wire.subscribe(destination, ack="client-individual")
    wire.send(frames.send(destination, "x"))
    wire.send(nack(wire, wire.expect_message("x"), requeue="false", receipt="r"))
    wire.expect_receipt("r")
    dlq.expect_message("x", dead_letter_reason="rejected", delivery_count="1", original_destination=destination)
    wire.barrier(dlq)


def test_client_mode_rejects_all_up_to_the_named_message(client: Clients, patient: BrokerProcess, queue: str) -> None:
    wire, dlq = client(to=patient), dead_letter_consumer(client, queue, patient)
    wire.subscribe(queue, ack="client")
    fill(dlq, queue, "1", "2", "3")
    wire.expect_message("1")
    second = wire.expect_message("2")
    wire.expect_message("3")
    wire.send(nack(wire, second, requeue="false"))
    dlq.expect_message("1", dead_letter_reason="rejected")
    dlq.expect_message("2", dead_letter_reason="rejected")
    dlq.barrier(wire)


def test_a_rejection_in_a_transaction_takes_effect_at_commit(
    client: Clients, patient: BrokerProcess, queue: str
) -> None:
    wire, dlq = client(to=patient), dead_letter_consumer(client, queue, patient)
    wire.subscribe(queue, ack="client-individual")
    fill(dlq, queue, "x")
    message = wire.expect_message("x")
    wire.send(frames.begin("t"), nack(wire, message, requeue="false", transaction="t", receipt="n"))
    wire.expect_receipt("n")
    dlq.barrier(wire)
    wire.send(frames.commit("t", receipt="c"))
    assert until_receipt(wire, "c") == []
    dlq.expect_message("x", dead_letter_reason="rejected")


@pytest.mark.parametrize("value", ["true", "True"])
def test_requeue_true_is_a_plain_nack(client: Clients, quick: BrokerProcess, queue: str, value: str) -> None:
    wire = client(to=quick)
    fill(wire, queue, "x")
    wire.subscribe(queue, ack="client")
    wire.send(nack(wire, wire.expect_message("x"), requeue=value))
    wire.expect_message("x", redelivered="true")


def test_another_value_of_requeue_is_an_error(client: Clients, queue: str) -> None:
    wire = client()
    fill(wire, queue, "x")
    wire.subscribe(queue, ack="client")
    wire.send(nack(wire, wire.expect_message("x"), requeue="maybe", receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")


def test_a_message_rejected_from_a_dead_letter_queue_is_dropped(client: Clients, quick: BrokerProcess) -> None:
    wire = client(to=quick)
    dlq = dead_letters("/queue/" + fresh("rejected"))
    fill(wire, dlq, "x")
    wire.subscribe(dlq, ack="client")
    wire.send(nack(wire, wire.expect_message("x"), requeue="false", receipt="r"))
    assert until_receipt(wire, "r") == []
    wire.barrier()
