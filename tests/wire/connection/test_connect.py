"""STOMP 1.2 "Connecting" and "Protocol Negotiation"; docs/specification.md, items 1 to 14."""

from __future__ import annotations

import re

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.wire import Wire

BEFORE_CONNECT = ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"]


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_is_answered_by_connected(client: Clients, version: str) -> None:
    connected = client.raw().connect(version)
    assert connected.body == b""
    assert connected["session"]
    assert re.fullmatch(r"stompica/[^\s/]+( .*)?", connected["server"])


@pytest.mark.parametrize("version", ESCAPING)
def test_connected_carries_the_version_and_heart_beat(client: Clients, version: str) -> None:
    connected = client.raw().connect(version)
    assert connected["version"] == version
    assert connected["heart-beat"] == "10000,10000"


def test_connect_without_accept_version_is_a_1_0_session(client: Clients, topic: str) -> None:
    wire = client.raw()
    connected = wire.connect(None)
    assert connected.header("version") in (None, "1.0")
    assert connected.header("heart-beat") in (None, "0,0")
    wire.send(frames.subscribe(topic, None), frames.send(topic, "x", a="\\n"))
    assert wire.expect_message("x", subscription=None).raw_value(b"a") == b"\\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_stomp_frame_is_handled_as_connect(client: Clients, topic: str, version: str) -> None:
    wire = client.raw()
    wire.send(frames.connect(version, command="STOMP"))
    wire.expect("CONNECTED")
    wire.version = version
    wire.subscribe(topic)
    wire.send(frames.send(topic, "x"))
    wire.expect_message("x")


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("1.0,1.1,1.2", "1.2"),
        ("1.2,1.1,1.0", "1.2"),
        ("1.1,1.2", "1.2"),
        ("1.0,1.1", "1.1"),
        ("1.1,1.0", "1.1"),
        ("1.0,2.1", "1.0"),
        ("2.0,1.1,3.7", "1.1"),
        ("1.1, 1.0", "1.1"),
        ("1.20,1.1", "1.1"),
        ("1.2,1.2", "1.2"),
    ],
)
def test_the_highest_common_version_is_chosen(client: Clients, offered: str, chosen: str) -> None:
    connected = client.raw().connect(offered)
    assert (connected.header("version") or "1.0") == chosen


@pytest.mark.parametrize("offered", ["2.0", "1.3,2.0", "", "1", "12", "1.2.0", "1.2;1.1", "one"])
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_no_common_version_is_an_error_that_lists_the_supported_ones(
    client: Clients, offered: str, command: str
) -> None:
    wire = client.raw()
    wire.send(frames.connect(offered, command=command))
    error = wire.expect_error("E-VERSION", version="1.0,1.1,1.2")
    assert error.text.strip()


def test_the_first_of_repeated_accept_versions_counts(client: Clients) -> None:
    wire = client.raw()
    wire.send(frames.connect("1.1", ("accept-version", "1.2")))
    wire.expect("CONNECTED", version="1.1")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("host", ["/", "stomp.example.org", "Any Host", "日本"])
def test_any_host_is_accepted(client: Clients, version: str, host: str) -> None:
    wire = client.raw()
    wire.send(frames.frame("CONNECT", ("accept-version", version), ("host", host)))
    wire.expect("CONNECTED")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_host_is_accepted(client: Clients, version: str) -> None:
    wire = client.raw()
    wire.send(frames.frame("CONNECT", ("accept-version", version)))
    wire.expect("CONNECTED")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "login",
    [
        [],
        [("login", "guest"), ("passcode", "guest")],
        [("login", "somebody")],
        [("passcode", "secret")],
        [("login", "a"), ("passcode", "p\\c:q\\t\\"), ("client-id", "x\\q")],
    ],
)
def test_any_login_is_accepted_and_connect_is_not_escaped(
    client: Clients, version: str, login: list[frames.Header]
) -> None:
    client.raw().connect(version, *login)


def test_an_unknown_header_of_connect_is_ignored(client: Clients) -> None:
    client.raw().connect("1.2", ("client-id", "c"), ("x", "a:b\\"), ("x", ""))


@pytest.mark.parametrize("version", VERSIONS)
def test_crlf_ends_the_lines_of_connect_in_every_version(client: Clients, version: str) -> None:
    wire = client.raw()
    wire.send(frames.frame("CONNECT", ("accept-version", version), ("host", "h"), eol=b"\r\n"))
    connected = wire.expect("CONNECTED")
    assert (connected.header("version") or "1.0") == version


@pytest.mark.parametrize("eols", [b"\n", b"\n\n\n", b"\r\n", b"\r\n\n\r\n"])
def test_eols_before_connect_are_ignored(client: Clients, eols: bytes) -> None:
    wire = client.raw()
    wire.send(eols, frames.connect("1.2"))
    wire.expect("CONNECTED")


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_may_arrive_byte_by_byte(client: Clients, version: str) -> None:
    wire = client.raw()
    wire.send_bytewise(b"\n" + frames.connect(version))
    wire.expect("CONNECTED")


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_behind_connect_in_the_same_segment_are_handled(client: Clients, topic: str, version: str) -> None:
    wire = client.raw()
    wire.send(frames.connect(version), frames.subscribe(topic), frames.send(topic, "x", receipt="1"))
    wire.expect("CONNECTED")
    wire.version = version
    answers = sorted(wire.recv_frame().command for _ in range(2))
    assert answers == ["MESSAGE", "RECEIPT"]


def test_no_frame_comes_before_connect_was_sent(client: Clients) -> None:
    wire = client.raw()
    wire.connect("1.2")
    assert wire.beats == 0
    wire.barrier()


@pytest.mark.parametrize("command", BEFORE_CONNECT)
def test_a_session_is_not_usable_before_connect(client: Clients, topic: str, command: str) -> None:
    bystander = client()
    bystander.subscribe(topic)
    wire = client.raw()
    wire.send(
        frames.frame(command, ("destination", topic), ("id", "0"), ("transaction", "t"), ("receipt", "r")),
        frames.connect("1.2"),
        frames.send(topic, "sneaked in"),
    )
    wire.expect_error("E-NOT-CONNECTED", receipt_id="r")
    bystander.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_second_connect_is_an_error(client: Clients, version: str, command: str) -> None:
    wire = client(version)
    wire.send(frames.connect(version, ("login", "me"), ("passcode", "s3cr3t-code"), command=command))
    error = wire.expect_error("E-CONNECTED")
    assert b"s3cr3t-code" not in error.body


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_gets_no_receipt(client: Clients, version: str) -> None:
    wire = client.raw()
    wire.connect(version, ("receipt", "never"))
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_rapid_connects_and_disconnects_are_handled(client: Clients, version: str) -> None:
    for _ in range(100):
        wire = client.raw()
        wire.send(frames.connect(version), frames.disconnect(receipt="bye"))
        wire.expect("CONNECTED")
        wire.version = version
        wire.expect_receipt("bye")
        wire.expect_closed()
        wire.close()


def test_connections_that_reset_do_not_disturb_others(client: Clients) -> None:
    for number in range(100):
        wire = client.raw()
        wire.send(frames.connect("1.2")[: number % 40 + 1])
        wire.reset()
    client().barrier()


def test_sessions_are_unguessable(client: Clients) -> None:
    sessions = {client.raw().connect("1.2")["session"] for _ in range(20)}
    assert len(sessions) == 20
    assert min(len(session) for session in sessions) >= 16


def test_sequential_ids_make_sessions_and_message_ids_reproducible(client: Clients, start_broker: StartBroker) -> None:
    def dialogue() -> tuple[str, str]:
        broker = start_broker(ids="sequential", writers=1)
        wire = client.raw(broker)
        session = wire.connect("1.2")["session"]
        wire.send(frames.subscribe("/topic/a"), frames.send("/topic/a", "x"))
        return session, wire.expect_message("x")["message-id"]

    assert dialogue() == dialogue()


@pytest.mark.parametrize("header", ["heart-beat:x", "noline", ":x"])
def test_an_error_never_contains_the_passcode(client: Clients, header: str) -> None:
    wire = client.raw()
    head = f"CONNECT\naccept-version:1.2\nlogin:me\npasscode:s3cr3t-code\n{header}\n\n"
    wire.send(head.encode() + b"\0")
    error = wire.expect_error()
    assert b"s3cr3t-code" not in error.body
    assert all("s3cr3t-code" not in value for _, value in error.headers)


@pytest.mark.parametrize("first", ["hello\n\n\0", "connect\n\n\0", "CONNECTED\n\n\0", "CONNEC\n\n\0", "\0"])
def test_anything_else_than_stomp_or_http_is_an_error(client: Clients, first: str) -> None:
    wire = client.raw()
    wire.send(first.encode())
    wire.expect_error("E-COMMAND")


def test_a_client_that_leaves_before_connect_is_forgotten(client: Clients) -> None:
    wire = client.raw()
    wire.half_close()
    wire.expect_closed()
    half: Wire = client.raw()
    half.send(b"CONNECT\nacc")
    half.half_close()
    assert all(frame.command == "ERROR" for frame in half.frames_until_closed())
