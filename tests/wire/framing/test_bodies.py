"""Bodies where the specifications allow none, and content-length as clients write it (docs/behaviour.md, section 3)."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS, Header

COMMANDS = ["SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"]


def dialogue(topic: str) -> dict[str, list[Header]]:
    """Headers with which each command succeeds if the commands are sent in this order."""
    return {
        "SUBSCRIBE": [("destination", topic), ("id", "7")],
        "UNSUBSCRIBE": [("id", "7")],
        "BEGIN": [("transaction", "t")],
        "ABORT": [("transaction", "t")],
        "COMMIT": [("transaction", "u")],
        "DISCONNECT": [],
    }


def check_bodies_are_ignored(client: Clients, topic: str, version: str, body: str, counted: bool) -> None:
    length = len(body) if counted else None
    wire = client(version)
    wire.send(frames.begin("u"))
    for command, headers in dialogue(topic).items():
        wire.send(frames.frame(command, *headers, body=body, content_length=length, receipt=command))
        wire.expect_receipt(command)
    wire.expect_closed()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
@pytest.mark.parametrize("body", ["\n", "\r\n", "\n\r\n\n"])
def test_line_ends_as_a_body_are_ignored(client: Clients, topic: str, version: str, counted: bool, body: str) -> None:
    check_bodies_are_ignored(client, topic, version, body, counted)


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
def test_any_body_is_ignored_in_1_0(client: Clients, topic: str, counted: bool) -> None:
    check_bodies_are_ignored(client, topic, "1.0", "a body\nof two lines", counted)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", None])
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize("body", ["\n", "body"])
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
def test_any_body_is_ignored_on_connect(
    client: Clients, version: str | None, command: str, body: str, counted: bool
) -> None:
    wire = client.raw()
    headers = [("accept-version", version), ("host", "h")] if version else []
    wire.send(frames.frame(command, *headers, body=body, content_length=len(body) if counted else None))
    assert wire.recv_frame().command == "CONNECTED"
    wire.version = version or "1.0"
    wire.barrier()


def test_a_body_of_line_ends_may_arrive_byte_by_byte(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.send_bytewise(frames.frame("SUBSCRIBE", body="\r\n\r\n", destination=topic, id="0", receipt="r"))
    wire.expect_receipt("r")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("body", ["\nx", "\r", "\rx", " "])
def test_a_body_with_more_than_line_ends_is_an_error(client: Clients, topic: str, version: str, body: str) -> None:
    wire = client(version)
    wire.send(frames.frame("SUBSCRIBE", body=body, destination=topic, id="0"))
    wire.expect_error("E-BODY")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [" 3", "3 ", "3\t", " \t3 \t"])
def test_blanks_around_a_content_length_are_ignored(client: Clients, topic: str, version: str, length: str) -> None:
    wire = client(version)
    wire.subscribe(topic)
    wire.send(frames.send(topic, b"a\0c", content_length=length))
    wire.expect_message(b"a\0c")
    wire.barrier()
