"""stomp.py on work queues: ack modes, NACK, transactions, and any login while auth is off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.stomp_py import CONNECTIONS, Session, session
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

ALL = list(CONNECTIONS)
WITH_NACK = [kind for kind in ALL if kind != "tcp-1.0"]


@pytest.fixture
def queue(topic: str) -> str:
    """A queue that no other test uses."""
    return topic.replace("/topic/", "/queue/")


def take(client: Session, count: int) -> list[Any]:
    """Returns the next `count` messages."""
    return [client.message() for _ in range(count)]


def send(client: Session, queue: str, *bodies: str) -> None:
    """Sends the bodies; the RECEIPT of the last one shows that all are queued."""
    for body in bodies[:-1]:
        client.stomp.send(queue, body)
    client.receipt(client.stomp.send, queue, bodies[-1])


def left_in(kind: str, broker: BrokerProcess, queue: str, count: int) -> list[Any]:
    """Returns the messages that a new session gets from the queue; there must be exactly `count`."""
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, queue, id="1", ack="auto")
        messages = take(client, count)
        client.disconnect()
        assert client.inbox.is_empty("message")
    return messages


@pytest.mark.parametrize(
    ("kind", "mode", "left"),
    [(kind, "client", ["3"]) for kind in ALL] + [(kind, "client-individual", ["1", "3"]) for kind in WITH_NACK],
)
def test_unacknowledged_messages_are_delivered_again(
    broker: BrokerProcess, queue: str, kind: str, mode: str, left: list[str]
) -> None:
    """The second of three messages is acknowledged; in `client` mode that covers the first one, too."""
    with session(kind, broker.port) as first:
        first.receipt(first.stomp.subscribe, queue, id="1", ack=mode)
        send(first, queue, "1", "2", "3")
        messages = take(first, 3)
        assert [message.body for message in messages] == ["1", "2", "3"]
        assert all("redelivered" not in message.headers for message in messages)
        first.ack(messages[1])
    messages = left_in(kind, broker, queue, len(left))
    assert [message.body for message in messages] == list(left)
    for message in messages:
        assert message.headers["redelivered"] == "true"
        assert message.headers["delivery-count"] == "2"


@pytest.mark.parametrize("kind", WITH_NACK)
def test_a_nacked_message_is_delivered_again(broker: BrokerProcess, queue: str, kind: str) -> None:
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, queue, id="1", ack="client-individual")
        send(client, queue, "rejected once")
        client.nack(client.message())
        again = client.message()
        assert (again.body, again.headers["redelivered"]) == ("rejected once", "true")
        assert again.headers["delivery-count"] == "2"
        client.ack(again)


@pytest.mark.parametrize("kind", ALL)
def test_a_transaction_moves_a_message_or_has_no_effect(broker: BrokerProcess, queue: str, kind: str) -> None:
    """ACK and SEND in one transaction: ABORT undoes both, COMMIT does both."""
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, queue, id="work", ack="client")
        client.receipt(client.stomp.subscribe, f"{queue}/done", id="done", ack="auto")
        send(client, queue, "job")
        job = client.message()
        for transaction, end in (("aborted", client.stomp.abort), ("committed", client.stomp.commit)):
            client.stomp.begin(transaction)
            client.ack(job, transaction=transaction)
            client.receipt(client.stomp.send, f"{queue}/done", transaction, headers={"transaction": transaction})
            assert client.inbox.is_empty("message")
            client.receipt(end, transaction)
        done = client.message()
        assert (done.body, done.headers["destination"]) == ("committed", f"{queue}/done")
        client.disconnect()
        assert client.inbox.is_empty("message")
    assert left_in(kind, broker, queue, 0) == []


@pytest.mark.parametrize("kind", ALL)
def test_a_lost_connection_aborts_its_transaction(broker: BrokerProcess, queue: str, kind: str) -> None:
    with session(kind, broker.port) as first:
        first.receipt(first.stomp.subscribe, queue, id="1", ack="client")
        send(first, queue, "job")
        job = first.message()
        first.stomp.begin("open")
        first.ack(job, transaction="open")
        first.receipt(first.stomp.send, queue, "never", headers={"transaction": "open"})
        first.lose()
    assert [message.body for message in left_in(kind, broker, queue, 1)] == ["job"]


@pytest.mark.parametrize("kind", ["tcp-1.0", "tcp-1.1", "tcp-1.2", "websocket-text"])
@pytest.mark.parametrize("connect", [{}, {"username": "guest", "passcode": "guest"}], ids=["anonymous", "guest"])
def test_any_login_and_any_host_are_accepted_while_auth_is_off(
    broker: BrokerProcess, queue: str, kind: str, connect: dict[str, str]
) -> None:
    for host in ("/", "localhost", "no.such.host"):
        options = {} if kind == "tcp-1.0" else {"vhost": host}
        with session(kind, broker.port, connect=connect, **options) as client:
            send(client, queue, host)
            client.receipt(client.stomp.subscribe, queue, id="1", ack="auto")
            assert client.message().body == host
