"""STOMP 1.2 "Value Encoding": `\r \n \\c \\` in 1.2, `\n \\c \\` in 1.1, none in 1.0.

See docs/specification.md, items 13 and 35 to 39.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.wire import Wire

DEFINED = [("1.1", r"\n", "\n"), ("1.1", r"\c", ":"), ("1.1", r"\\", "\\")]
DEFINED += [("1.2", escape, octet) for _, escape, octet in DEFINED] + [("1.2", r"\r", "\r")]

UNDEFINED = [r"\t", r"\x", r"\N", r"\C", r"\0", r"\ ", r"\:", r"\é", "\\", r"\\" + "\\"]


@pytest.mark.parametrize(("version", "escape", "octet"), DEFINED)
def test_an_escape_in_a_value_is_read_and_written(subscriber: Wire, topic: str, escape: str, octet: str) -> None:
    subscriber.send(frames.send(topic, "x", ("k", f"{escape}a{escape}{escape}b{escape}")))
    message = subscriber.expect_message("x", k=f"{octet}a{octet}{octet}b{octet}")
    assert message.raw_value(b"k") == f"{escape}a{escape}{escape}b{escape}".encode()


@pytest.mark.parametrize(("version", "escape", "octet"), DEFINED)
def test_escapes_apply_to_names(subscriber: Wire, topic: str, escape: str, octet: str) -> None:
    subscriber.send(frames.send(topic, "x", (f"na{escape}me", "v")))
    message = subscriber.expect_message("x")
    assert message[f"na{octet}me"] == "v"
    assert message.raw_value(f"na{escape}me".encode()) == b"v"


@pytest.mark.parametrize("version", ESCAPING)
def test_escapes_are_read_once_from_left_to_right(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic, "x", ("k", r"\\n\\c\\\\\n\\r")))
    subscriber.expect_message("x", k="\\n\\c\\\\\n\\r")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("escape", UNDEFINED)
@pytest.mark.parametrize("place", ["value", "name"])
def test_an_undefined_escape_is_fatal(client: Clients, topic: str, version: str, escape: str, place: str) -> None:
    if place == "name" and escape in ("\\", r"\\" + "\\", r"\:"):
        escape += "z"
    wire = client(version)
    pair = ("k", f"v{escape}") if place == "value" else (f"k{escape.replace(':', 'q')}", "v")
    wire.send(frames.send(topic, "x", pair, receipt="r"))
    wire.expect_error("E-ESCAPE")


@pytest.mark.parametrize("place", ["value", "name"])
def test_escaped_cr_is_undefined_in_1_1(client: Clients, topic: str, place: str) -> None:
    wire = client("1.1")
    wire.send(frames.send(topic, "x", ("k", r"a\rb") if place == "value" else (r"a\rb", "v")))
    wire.expect_error("E-ESCAPE")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize(
    "command", ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"]
)
def test_an_undefined_escape_is_fatal_on_every_frame(client: Clients, topic: str, version: str, command: str) -> None:
    wire = client(version)
    headers = [("destination", topic), ("id", "0"), ("transaction", "t"), ("unused", r"\q")]
    wire.send(frames.frame(command, *headers))
    wire.expect_error("E-ESCAPE")


@pytest.mark.parametrize("version", ESCAPING)
def test_an_undefined_escape_is_fatal_in_a_repeated_header(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.send(topic, "x", ("k", "fine"), ("k", r"\q")))
    wire.expect_error("E-ESCAPE")


def test_1_0_has_no_escapes(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, r"\c")
    value = r"\n\c\\\r\t\q" + "\\"
    wire.send(frames.send(topic, "x", ("k", value), (r"a\b", "v")))
    message = wire.expect_message("x", k=value, subscription=r"\c")
    assert message[r"a\b"] == "v"


@pytest.mark.parametrize("version", VERSIONS)
def test_bodies_are_never_escaped(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic, r"\n\c\\\r\t\q:" + "\r\n\\"))
    subscriber.expect_message(r"\n\c\\\r\t\q:" + "\r\n\\")


@pytest.mark.parametrize("version", ESCAPING)
def test_destinations_and_ids_are_compared_unescaped_and_written_escaped(
    client: Clients, topic: str, version: str
) -> None:
    wire = client(version)
    wire.subscribe(f"{topic}\\cx\\\\y", r"i\cd\n")
    wire.send(frames.send(f"{topic}:x\\\\y", "x"))
    message = wire.expect_message("x", destination=f"{topic}:x\\y", subscription="i:d\n")
    assert message.raw_value(b"subscription") == rb"i\cd\n"
    assert message.raw_value(b"destination") == f"{topic}\\cx\\\\y".encode()
    wire.send(frames.unsubscribe("i:d\\n", receipt="u"))
    wire.expect_receipt("u")


@pytest.mark.parametrize("version", ESCAPING)
def test_an_equal_id_in_another_spelling_is_a_duplicate(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "a:b")
    wire.send(frames.subscribe(topic, r"a\cb"))
    wire.expect_error("E-SUB-DUPLICATE", subscription="a:b")


@pytest.mark.parametrize(("version", "escape", "octet"), DEFINED)
def test_receipt_ids_are_escaped(client: Clients, topic: str, version: str, escape: str, octet: str) -> None:
    wire = client(version)
    wire.send(frames.send(topic, "x", receipt=f"r{escape}1"))
    receipt = wire.expect("RECEIPT", receipt_id=f"r{octet}1")
    assert receipt.raw_value(b"receipt-id") == f"r{escape}1".encode()


@pytest.mark.parametrize("version", ESCAPING)
def test_the_headers_of_an_error_are_escaped(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.frame("SEND", ("receipt", r"a\cb\n")))
    error = wire.expect_error("E-DEST-MISSING", receipt_id="a:b\n")
    assert error.raw_value(b"receipt-id") == rb"a\cb\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_connected_is_not_escaped(client: Clients, version: str) -> None:
    connected = client.raw().connect(version)
    assert all(b"\\" not in value for _, value in connected.raw)


def test_a_line_end_in_a_destination_cannot_inject_a_1_0_header(client: Clients, topic: str) -> None:
    """1.0 has no escapes: a line end would cut the name, and its rest would be a header of the sender's choice."""
    old, new = client("1.0"), client("1.2")
    old.subscribe(f"{topic}/*")
    new.send(frames.send(f"{topic}/a\\nx:injected", "body"))
    old.expect_message("body", destination=f"{topic}/a?x:injected", x=None)
