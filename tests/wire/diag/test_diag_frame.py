"""The DIAG frame: docs/behaviour.md, section 9."""

from __future__ import annotations

import json

import pytest

from tests.support import frames
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.diagnostics import HEADER_QUERIES, JSON_QUERIES, NETWORK_FIELDS, answer, ask, diag
from tests.support.frames import VERSIONS
from tests.support.queues import until_receipt


@pytest.mark.parametrize("version", VERSIONS)
def test_queries_of_c_stompica_are_answered_in_one_header(
    client: Clients, start_broker: StartBroker, version: str
) -> None:
    broker = start_broker()
    wire = client(version, to=broker)
    session = '{"clients":1,"websockets":0,"stomp_connected":1,"subscriptions":0}'
    for query, value in (
        ("session", session),
        ("session-size", "1"),
        ("session-encoded-size", "0"),
        ("session-connected-size", "1"),
        ("pubsub-size", "0"),
        ("stale", '{"in":0,"out":0,"stale":0}'),
    ):
        wire.send(diag(query))
        frame = wire.expect("DIAG")
        assert frame.headers == ((query, value),) and frame.body == b""
        colon = b":" if version == "1.0" else rb"\c"
        assert frame.raw == ((query.encode(), value.encode().replace(b":", colon)),)
    assert set(answer(wire, "ws_buffer")) == {"allocated", "hits", "misses"}
    wire.subscribe("/dup")
    wire.subscribe("/q/*", "1")
    assert answer(wire, "subs") == "/dup,/q/*"
    assert answer(wire, "pubsub-size") == 2
    wire.barrier()


@pytest.mark.parametrize("query", HEADER_QUERIES + JSON_QUERIES)
def test_every_query_is_answered_before_connect_and_after(client: Clients, query: str) -> None:
    wire = client.raw()
    wire.version = "1.0"
    answer(wire, query)
    wire.connect("1.2")
    answer(wire, query)
    wire.barrier()


def test_a_connection_may_consist_of_one_query(client: Clients) -> None:
    """As `printf 'DIAG\\n\\nsession-size\\0' | nc` sends it."""
    wire = client.raw()
    wire.send(diag("session-size\n"))
    wire.half_close()
    assert int(wire.expect("DIAG")["session-size"]) >= 1
    wire.expect_closed()


def test_everything_but_diag_needs_connect(client: Clients) -> None:
    wire = client.raw()
    wire.send(diag("store"), frames.send("DIAG", "store"))
    wire.version = "1.2"
    assert wire.expect("DIAG").text.startswith('{"kind":"memory",')
    wire.expect_error("E-NOT-CONNECTED")


def test_a_query_does_not_prolong_the_login_timeout(client: Clients, shared_broker: StartBroker) -> None:
    wire = client.raw(shared_broker(login_timeout="1500ms"))
    answer(wire, "store")
    wire.expect_error("E-LOGIN-TIMEOUT")


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_keep_the_order_of_the_frames(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    sent = [
        frames.subscribe(topic, "s", receipt="first"),
        *(diag(query, receipt=query) for query in JSON_QUERIES),
        frames.send(topic, "x", receipt="last"),
    ]
    wire.send(*sent)
    wire.expect_receipt("first")
    for query in JSON_QUERIES:
        wire.expect("DIAG", query=query)
        wire.expect_receipt(query)
    assert [message.text for message in until_receipt(wire, "last") or [wire.expect_message()]] == ["x"]
    wire.disconnect()


def test_a_thousand_queries_in_one_segment_are_answered_in_order(client: Clients) -> None:
    wire, other = client(), client()
    wire.send(*(diag("session" if number % 2 else "shards") for number in range(1000)), frames.disconnect(receipt="r"))
    other.barrier()
    for number in range(1000):
        wire.expect("DIAG", query=None if number % 2 else "shards")
    wire.expect_receipt("r")


@pytest.mark.parametrize("query", ["", "sessions", "SESSION", "session,stale", "a\nb", "\xff", "x" * 1000])
def test_an_unknown_query_is_an_error(client: Clients, query: str) -> None:
    for wire in (client.raw(), client()):
        wire.send(diag(query, receipt="r"))
        error = wire.expect_error("E-DIAG-QUERY", receipt_id="r")
        first = error.text.splitlines()[0]
        assert all(name in first for name in HEADER_QUERIES + JSON_QUERIES) and len(first) < 400


@pytest.mark.parametrize("version", VERSIONS)
def test_diagnostics_work_over_websocket(ws: OpenWebSocket, start_broker: StartBroker, version: str) -> None:
    broker = start_broker()
    wire = ws(version, to=broker)
    assert answer(wire, "session") == {"clients": 1, "websockets": 1, "stomp_connected": 1, "subscriptions": 0}
    assert answer(wire, "store")["kind"] == "memory"
    wire.subscribe("DIAG", "d")
    assert ask(wire, "session-encoded-size")["session-encoded-size"] == "1"
    wire.subscribe("DIAG/network", "i", interval=100)
    for _ in range(2):
        assert set(json.loads(wire.expect_message(subscription="i").text)) == NETWORK_FIELDS
    wire.send(frames.unsubscribe("i", receipt="r"))
    until_receipt(wire, "r")
    wire.barrier()
