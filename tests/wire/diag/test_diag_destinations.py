"""SEND and SUBSCRIBE to the destinations of DIAG: docs/behaviour.md, section 9."""

from __future__ import annotations

import json

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import JSON_QUERIES, answer, ask, header_names
from tests.support.frames import VERSIONS
from tests.support.queues import until_receipt


@pytest.mark.parametrize("version", VERSIONS)
def test_a_send_is_answered_to_every_subscription_of_its_destination(
    client: Clients, start_broker: StartBroker, version: str
) -> None:
    broker = start_broker()
    requester, *others = wires = [client(version, to=broker) for _ in range(4)]
    for wire in wires:
        wire.subscribe("DIAG", "d")
    others[0].subscribe("DIAG/other", "not asked")
    requester.send(frames.send("DIAG", "session", ("ts", "17"), ("k", "v"), receipt="r"))
    messages = [wire.expect_message("session", destination="DIAG", subscription="d") for wire in others]
    messages += until_receipt(requester, "r") or [requester.expect_message("session")]
    numbers = {"clients": "4", "websockets": "0", "stomp_connected": "4", "subscriptions": "5"}
    for message in messages:
        assert {name: message[name] for name in numbers} == numbers
        assert (message["ts"], message["k"]) == ("17", "v")
        assert set(header_names(message)) == {
            "subscription",
            "message-id",
            "destination",
            "content-length",
            "ts",
            "k",
            *numbers,
        }
    for wire in wires:
        wire.barrier()


def test_statistics_of_c_stompica_are_headers(client: Clients, start_broker: StartBroker) -> None:
    wire = client(to=start_broker())
    wire.subscribe("DIAG", "d")
    server = {"subscription", "message-id", "destination", "content-length"}
    for query, expected in (
        ("ws_buffer", {"allocated", "hits", "misses"}),
        ("stale", {"input-queue-size", "output-queue-size", "stale-queue-size"}),
    ):
        message = ask(wire, query)
        assert set(header_names(message)) - server == expected and message.text == query
        assert all(message[name].isdigit() for name in expected)
    for query, value in (
        ("session-size", "1"),
        ("session-encoded-size", "0"),
        ("session-connected-size", "1"),
        ("pubsub-size", "1"),
        ("subs", "DIAG"),
    ):
        message = ask(wire, query)
        assert message[query] == value and message.text == query
        assert set(header_names(message)) - server == {query}


@pytest.mark.parametrize("query", JSON_QUERIES)
def test_answers_of_new_queries_are_bodies(client: Clients, query: str) -> None:
    wire = client()
    destination = f"DIAG.{query}.mine"
    wire.subscribe(destination, "d")
    wire.send(frames.send(destination, query, ("content-type", "text/plain"), ("ts", "1")))
    message = wire.expect_message(destination=destination, query=query, content_type="application/json", ts="1")
    json.loads(message.text)
    assert message["content-length"] == str(len(message.body))


def test_a_query_is_not_published(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(ttl="10s")
    wire, listener = client(to=broker), client(to=broker)
    listener.subscribe("*", "topics")
    before = answer(wire, "network")
    wire.send(frames.send("DIAG", "session", receipt="nobody"))
    wire.expect_receipt("nobody")
    wire.subscribe("DIAG", "late")
    wire.barrier()
    after = answer(wire, "network")
    assert after["messages_in"] - before["messages_in"] == 1  # of the barrier
    listener.expect_message()  # of the barrier
    assert answer(wire, "stale")["stale"] == 0


def test_only_patterns_that_begin_with_diag_match_diagnostics(client: Clients, topic: str) -> None:
    wire = client()
    place = f"DIAG{topic}"
    wire.subscribe(f"{place}/*", "all")
    ask(wire, "session", f"{place}/a")
    ask(wire, "stale", f"{place}/b")
    wire.send(frames.send(f"{place}/*", "session", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


def test_diagnostics_work_in_compat_mode(client: Clients, shared_broker: StartBroker) -> None:
    wire = client(to=shared_broker(compat="stompica"))
    wire.subscribe("DIAG", "d")
    assert ask(wire, "session-size")["session-size"].isdigit()
    answer(wire, "session")


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("E-DIAG-QUERY", frames.send("DIAG", "nonsense", receipt="r")),
        ("E-DIAG-QUERY", frames.send("DIAG", receipt="r")),
        ("E-VALUE", frames.send("DIAG", "session", receipt="r", transaction="t")),
        ("E-VALUE", frames.send("DIAG", "session", receipt="r", retain="set")),
        ("E-DIAG-QUERY", frames.subscribe("DIAG", receipt="r", interval=1000, query="nonsense")),
        ("E-DIAG-QUERY", frames.subscribe("DIAG/nonsense", receipt="r", interval=1000)),
        ("E-DIAG-QUERY", frames.subscribe("DIAG/*", receipt="r", interval=1000)),
        *(
            ("E-VALUE", frames.subscribe("DIAG", receipt="r", interval=interval))
            for interval in ("99", "0", "-100", "1s", "100.5", "", "1e3", "99999999999999999999")
        ),
    ],
)
def test_a_query_that_is_not_allowed_is_an_error(client: Clients, code: str, sent: bytes) -> None:
    wire = client()
    wire.send(frames.begin("t"), sent)
    wire.expect_error(code, receipt_id="r")
