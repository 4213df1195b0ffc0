"""The table of other brokers' headers in docs/protocol.md, row by row: acted on, refused or passed on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.queues import fill, fresh

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"
ROW = re.compile(
    r"^\| (CONNECT|SUBSCRIBE|SEND|UNSUBSCRIBE|NACK) \| `([^`]+)` \| ([^|]+) \| ([^|]+) \| `([^`]*)` \|$", re.M
)
BROKERS = {"RabbitMQ", "ActiveMQ", "Artemis", "all"}

# An impossible value, and the ERROR that shows that the header was read.
WRONG = {
    ("CONNECT", "accept-version"): ("9", "E-VERSION"),
    ("CONNECT", "heart-beat"): ("x", "E-HEART-BEAT"),
    ("SUBSCRIBE", "ack"): ("x", "E-ACK-MODE"),
    ("SUBSCRIBE", "prefetch-count"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "activemq.prefetchSize"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "consumer-window-size"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "durable"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "persistent"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "no-local"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "activemq.noLocal"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "activemq.subscriptionName"): ("", "E-VALUE"),
    ("SUBSCRIBE", "durable-subscription-name"): ("", "E-VALUE"),
    ("SUBSCRIBE", "durable-subscriber-name"): ("", "E-VALUE"),
    ("SUBSCRIBE", "subscription-type"): ("x", "E-VALUE"),
    ("SUBSCRIBE", "x-stream-offset"): ("x", "E-VALUE"),
    ("SEND", "content-length"): ("x", "E-CONTENT-LENGTH"),
    ("SEND", "transaction"): ("never begun", "E-TX-UNKNOWN"),
    ("SEND", "persistent"): ("x", "E-VALUE"),
    ("SEND", "expiration"): ("x", "E-VALUE"),
    ("SEND", "expires"): ("x", "E-VALUE"),
    ("SEND", "destination-type"): ("x", "E-VALUE"),
    ("UNSUBSCRIBE", "id"): ("never subscribed", "E-SUB-UNKNOWN"),
    ("UNSUBSCRIBE", "durable"): ("x", "E-VALUE"),
    ("UNSUBSCRIBE", "persistent"): ("x", "E-VALUE"),
    ("UNSUBSCRIBE", "activemq.subscriptionName"): ("never made", "E-SUB-UNKNOWN"),
    ("UNSUBSCRIBE", "durable-subscription-name"): ("never made", "E-SUB-UNKNOWN"),
    ("UNSUBSCRIBE", "durable-subscriber-name"): ("never made", "E-SUB-UNKNOWN"),
    ("NACK", "requeue"): ("x", "E-VALUE"),
}
# Headers that accept any value: the tests at the end of this file show their effect.
SHOWN = {
    ("CONNECT", "login"),
    ("CONNECT", "client-id"),
    ("CONNECT", "request-id"),
    ("SUBSCRIBE", "id"),
    ("SUBSCRIBE", "receipt"),
    ("SUBSCRIBE", "auto-delete"),
    ("SEND", "receipt"),
    ("SEND", "reply-to"),
}
# Headers that only recorded destinations accept: tests/wire/recording.
RECORDED = {("SUBSCRIBE", "x-stream-offset")}


class Row(NamedTuple):
    frame: str
    header: str
    brokers: str
    what: str
    example: str

    def __str__(self) -> str:
        return f"{self.frame}-{self.header}"


ROWS = [Row(*found) for found in ROW.findall(PAGE.read_text(encoding="utf-8"))]


def rows(what: str, *commands: str) -> list[Row]:
    """The rows of these frames whose third column begins so."""
    return [row for row in ROWS if row.what.startswith(what) and (not commands or row.frame in commands)]


def each(found: list[Row]) -> pytest.MarkDecorator:
    """Parametrises a test with these rows."""
    assert found
    return pytest.mark.parametrize("row", found, ids=str)


def headers_for(row: Row, destination: str) -> list[frames.Header]:
    """The other headers that the frame needs."""
    needed = {
        "SUBSCRIBE": [("destination", destination), ("id", fresh("id"))],
        "SEND": [("destination", destination)],
        "UNSUBSCRIBE": [("id", "0")],
    }[row.frame]
    return [header for header in needed if header[0] != row.header]


def test_the_table_is_read_in_full() -> None:
    lines = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| [A-Z]{4,} \| `.+ \| .+ \| .+ \| `", line)
    ]
    assert len(lines) == len(ROWS) == len({(row.frame, row.header) for row in ROWS})
    for row in ROWS:
        assert set(row.brokers.split(", ")) <= BROKERS, row
        assert re.match(r"(acted on|refused|passed on|passed over)\b", row.what), row
    assert {(row.frame, row.header) for row in rows("acted on")} == set(WRONG) | SHOWN


@each([row for row in rows("refused") if row.what == "refused" or row.what.startswith("refused, ")])
def test_a_refused_header_is_named_in_the_error(client: Clients, queue: str, row: Row) -> None:
    wire = client()
    wire.send(frames.frame(row.frame, *headers_for(row, queue), (row.header, row.example)))
    assert f"header '{row.header}'" in wire.expect_error("E-NOT-SUPPORTED").text


@each(rows("refused for a queue"))
def test_a_header_refused_for_a_queue_is_passed_on_by_a_topic(
    client: Clients, queue: str, topic: str, row: Row
) -> None:
    wire = client()
    wire.subscribe(topic)
    wire.send(frames.send(topic, "x", (row.header, row.example)))
    assert wire.expect_message("x")[row.header] == row.example
    wire.send(frames.send(queue, "x", (row.header, row.example)))
    assert f"header '{row.header}'" in wire.expect_error("E-NOT-SUPPORTED").text


@each([row for row in ROWS if "else refused" in row.what])
def test_a_value_that_agrees_is_accepted_and_another_is_refused(
    client: Clients, queue: str, topic: str, row: Row
) -> None:
    wire = client()
    for destination in (topic, queue):
        wire.send(frames.frame(row.frame, *headers_for(row, destination), (row.header, row.example), receipt="r"))
        if destination == topic:
            wire.expect_receipt("r")
    assert f"header '{row.header}'" in wire.expect_error("E-NOT-SUPPORTED").text


@each(rows("passed on", "SEND"))
def test_a_header_that_is_passed_on_arrives(client: Clients, queue: str, row: Row) -> None:
    wire = client()
    wire.subscribe(queue)
    wire.send(frames.send(queue, "x", (row.header, row.example)))
    assert wire.expect_message("x")[row.header] == row.example


@each(
    [
        row
        for row in [*rows("acted on", "SUBSCRIBE"), *rows("passed over", "SUBSCRIBE")]
        if (row.frame, row.header) not in RECORDED
    ]
)
def test_the_example_of_a_subscribe_is_accepted(client: Clients, topic: str, row: Row) -> None:
    wire = client("1.2", ("client-id", fresh("client")))
    example = fresh(row.example) if row.header == "id" else row.example
    wire.send(frames.frame(row.frame, *headers_for(row, topic), (row.header, example)))
    wire.send(frames.begin("fence", receipt="fence"))
    while wire.recv_frame().header("receipt-id") != "fence":
        pass


@each(rows("acted on", "SEND"))
def test_the_example_of_a_send_is_accepted(client: Clients, topic: str, row: Row) -> None:
    wire = client()
    wire.send(frames.begin("t"))
    wire.send(frames.frame(row.frame, *headers_for(row, topic), (row.header, row.example), body="x"))
    wire.send(frames.abort("t", receipt="fence"))
    while wire.recv_frame().header("receipt-id") != "fence":
        pass


@each([*rows("acted on", "CONNECT"), *rows("passed over", "CONNECT")])
def test_the_example_of_a_connect_is_accepted(client: Clients, row: Row) -> None:
    wire = client.raw()
    wire.send(frames.frame("CONNECT", (row.header, row.example)))
    wire.expect("CONNECTED")


@each([row for row in rows("acted on") if (row.frame, row.header) in WRONG])
def test_an_impossible_value_is_an_error(client: Clients, topic: str, queue: str, row: Row) -> None:
    value, code = WRONG[row.frame, row.header]
    if row.frame == "CONNECT":
        wire = client.raw()
        first = [] if row.header == "accept-version" else [("accept-version", "1.2")]
        wire.send(frames.frame("CONNECT", *first, (row.header, value)))
    elif row.frame == "NACK":
        wire = client()
        fill(wire, queue, "x")
        wire.subscribe(queue, ack="client")
        wire.send(frames.nack(("id", wire.expect_message("x")["ack"]), (row.header, value)))
    else:
        wire = client()
        needed = [] if value.startswith("never") else headers_for(row, topic)
        if row.frame == "SEND":
            needed = headers_for(row, topic)
        wire.send(frames.frame(row.frame, *needed, (row.header, value)))
    wire.expect_error(code)


# -- headers that accept any value ---------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["login", "client-id"])
def test_durable_names_are_scoped_by_login_and_client_id(client: Clients, topic: str, header: str) -> None:
    name = fresh("d")
    for who in ("one", "other"):
        wire = client("1.2", (header, who + name))
        wire.subscribe(topic, durable_subscription_name=name)
        wire.send(frames.unsubscribe(None, ("durable-subscription-name", name), receipt="u"))
        wire.expect_receipt("u")
    wire.send(frames.unsubscribe(None, ("durable-subscription-name", name)))
    wire.expect_error("E-SUB-UNKNOWN")


@pytest.mark.parametrize("version", frames.VERSIONS)
def test_a_request_id_is_returned(client: Clients, version: str) -> None:
    wire = client.raw()
    wire.send(frames.connect(version, ("request-id", "a:7")))
    assert wire.expect("CONNECTED")["response-id"] == "a:7"


def test_id_and_receipt_are_repeated_and_a_reply_to_is_rewritten(client: Clients, topic: str) -> None:
    wire = client()
    wire.send(frames.subscribe(topic, "my id", receipt="r"))
    wire.expect_receipt("r")
    wire.send(frames.send(topic, "x", reply_to="/temp-queue/a", receipt="s"))
    message = wire.expect_message("x", subscription="my id")
    assert re.fullmatch("/temp-queue/[0-9a-f]{32}/a", message["reply-to"])
    wire.expect_receipt("s")
