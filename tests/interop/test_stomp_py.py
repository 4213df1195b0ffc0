"""stomp.py, over TCP in every version of the protocol and over WebSocket."""

from __future__ import annotations

import pytest

from tests.interop.stomp_py import CONNECTIONS, Session, session
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.interop

ALL = list(CONNECTIONS)
ESCAPING = [kind for kind in ALL if kind != "tcp-1.0"]
WITH_HEARTBEATS = ESCAPING

BEAT_MS = 1000
"""The interval of heart-beats both ways."""

BEATS = 4
"""Heart-beats to wait for: for longer than the broker's timeout for the client's heart-beats."""


@pytest.mark.parametrize("kind", ALL)
def test_connects_subscribes_sends_and_disconnects_with_receipts(broker: BrokerProcess, topic: str, kind: str) -> None:
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        client.receipt(client.stomp.send, topic, "hello", content_type="text/plain", headers={"colour": "blue"})
        message = client.message()
        assert message.body == "hello"
        assert message.headers["destination"] == topic
        assert message.headers["content-type"] == "text/plain"
        assert message.headers["content-length"] == "5"
        assert message.headers["colour"] == "blue"
        assert message.headers["subscription"] == "1"
        assert message.headers["message-id"]
        assert "receipt" not in message.headers
        client.receipt(client.stomp.unsubscribe, id="1")
        client.receipt(client.stomp.send, topic, "no subscriber")
        client.disconnect()
        assert client.inbox.is_empty("message")


@pytest.mark.parametrize("kind", ALL)
def test_connected_has_the_agreed_values(broker: BrokerProcess, kind: str) -> None:
    with session(kind, broker.port) as client:
        assert client.connected["server"].startswith("stompica/")
        assert client.connected["session"]
        expected = kind.removeprefix("tcp-") if kind.startswith("tcp-") else "1.2"
        assert client.connected["version"] == expected


@pytest.mark.parametrize("kind", ["tcp-1.1", "tcp-1.2"])
def test_login_and_host_of_any_name_are_accepted(broker: BrokerProcess, kind: str) -> None:
    """Without `vhost` stomp.py sends no host header; all other tests here connect in that way."""
    with session(kind, broker.port, vhost="elsewhere", connect={"username": "a:b", "passcode": "c\\d"}) as client:
        assert client.stomp.is_connected()


@pytest.mark.parametrize("kind", WITH_HEARTBEATS)
def test_heartbeats_keep_an_idle_session_open(broker: BrokerProcess, topic: str, kind: str) -> None:
    with session(kind, broker.port, heartbeats=(BEAT_MS, BEAT_MS)) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        for _ in range(BEATS):
            client.inbox.next("heartbeat")
        client.receipt(client.stomp.send, topic, "still here")
        assert client.message().body == "still here"
        assert client.inbox.is_empty("heartbeat_timeout")


@pytest.mark.parametrize("kind", ESCAPING)
def test_header_values_survive_escaping(broker: BrokerProcess, topic: str, kind: str) -> None:
    headers = {"colon": "a:b:c", "backslash": "C:\\new\\c", "newline": "two\nlines", "snow": "☃ and 🜁"}
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, topic, id="id:with:colons")
        client.stomp.send(topic, "x", headers=dict(headers))
        received = client.message().headers
        assert {name: received[name] for name in headers} == headers
        assert received["subscription"] == "id:with:colons"


def test_a_carriage_return_survives_in_1_2(broker: BrokerProcess, topic: str) -> None:
    with session("tcp-1.2", broker.port) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        client.stomp.send(topic, "x", headers={"lines": "one\r\ntwo"})
        assert client.message().headers["lines"] == "one\r\ntwo"


@pytest.mark.parametrize("kind", ALL)
def test_non_ascii_text_arrives(broker: BrokerProcess, topic: str, kind: str) -> None:
    text = "Grüße, 世界, 🜁\r\nsecond line"
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        client.stomp.send(topic, text)
        message = client.message()
        assert message.body == text
        assert message.headers["content-length"] == str(len(text.encode()))


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "websocket-text"])
@pytest.mark.parametrize("size", [256, 300_000])
def test_every_byte_arrives(broker: BrokerProcess, topic: str, kind: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    with session(kind, broker.port, auto_decode=False) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        client.stomp.send(topic, body, content_type="application/octet-stream")
        assert client.message().body == body


@pytest.mark.parametrize("kind", ALL)
def test_an_empty_body_arrives(broker: BrokerProcess, topic: str, kind: str) -> None:
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        client.stomp.send(topic, "", headers={"kind": "empty"})
        message = client.message()
        assert (message.body, message.headers["kind"]) == ("", "empty")


@pytest.mark.parametrize("kind", ALL)
def test_a_transaction_is_atomic(broker: BrokerProcess, topic: str, kind: str) -> None:
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, topic, id="1")
        for transaction, end in (("aborted", client.stomp.abort), ("committed", client.stomp.commit)):
            client.stomp.begin(transaction)
            for body in ("first", "second"):
                client.receipt(client.stomp.send, topic, f"{body} {transaction}", headers={"transaction": transaction})
            assert client.inbox.is_empty("message")
            client.receipt(end, transaction)
        assert [client.message().body for _ in range(2)] == ["first committed", "second committed"]
        client.disconnect()
        assert client.inbox.is_empty("message")


@pytest.mark.parametrize("kind", ALL)
def test_an_error_has_a_reason_and_ends_the_connection(broker: BrokerProcess, topic: str, kind: str) -> None:
    with session(kind, broker.port) as client:
        client.stomp.send(f"{topic}/*", "no destination", headers={"receipt": "never"})
        error = client.inbox.next("error")
        assert error.headers["message"]
        assert error.headers["code"].startswith("E-")
        assert error.headers["receipt-id"] == "never"
        assert f"destination:{topic}/*" in error.body
        client.inbox.next("disconnected")
        assert client.inbox.is_empty("receipt")


@pytest.mark.parametrize("kind", ALL)
def test_a_wildcard_receives_the_names_below_it(broker: BrokerProcess, topic: str, kind: str) -> None:
    with session(kind, broker.port) as client:
        client.receipt(client.stomp.subscribe, f"{topic}/*", id="1")
        for name in ("a", "a/b", "c"):
            client.stomp.send(f"{topic}/{name}", name)
        assert [client.message().headers["destination"] for _ in range(3)] == [
            f"{topic}/a",
            f"{topic}/a/b",
            f"{topic}/c",
        ]


def test_a_name_without_a_known_prefix_is_a_topic(broker: BrokerProcess, topic: str) -> None:
    name = topic.removeprefix("/topic/") + ".plain.name"
    with session("tcp-1.2", broker.port) as client:
        client.receipt(client.stomp.subscribe, name, id="1")
        client.stomp.send(name, "hello")
        message = client.message()
        assert (message.headers["destination"], message.body) == (name, "hello")


def test_all_kinds_of_connections_exchange_messages(broker: BrokerProcess, topic: str) -> None:
    clients: list[Session] = []
    try:
        for kind in ALL:
            client = Session(CONNECTIONS[kind](broker.port))
            clients.append(client)
            client.receipt(client.stomp.subscribe, topic, id=f"subscription-of-{kind}")
        for kind, sender in zip(ALL, clients, strict=True):
            sender.stomp.send(topic, f"from {kind}")
            for other, receiver in zip(ALL, clients, strict=True):
                message = receiver.message()
                assert message.body == f"from {kind}"
                assert message.headers["subscription"] == f"subscription-of-{other}"
        for client in clients:
            client.disconnect()
    finally:
        for client in clients:
            client.stomp.transport.disconnect_socket()
