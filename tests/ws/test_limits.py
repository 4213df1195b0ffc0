"""RFC 6455, section 10.4: sizes. A limit is checked on the announced length, before the bytes have come."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import OpenWebSocket, StartBroker
from tests.support.ws import BINARY, CONTINUATION, TEXT, WebSocket

SMALL = {"max_message_size": "4KiB", "ws_data_frame_max_length": "8KiB"}
LIMIT = 8 << 10


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_10_4_announced_length_over_the_limit_is_1009_at_once(
    ws: OpenWebSocket, shared_broker: StartBroker, opcode: int
) -> None:
    client = ws(to=shared_broker(**SMALL))
    client.send_frame(opcode, b"", length=LIMIT + 1)
    client.expect_close(1009)


def test_10_4_default_limit_accepts_its_size_and_no_more(ws: OpenWebSocket) -> None:
    limit = (16 << 20) + (1 << 20) + (64 << 10)
    client = ws()
    client.send_frame(BINARY, b"", length=limit + 1)
    client.expect_close(1009)


def test_10_4_enormous_length_is_refused_without_using_memory(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(BINARY, b"", length=(1 << 63) - 1)
    client.expect_close(1009)


def test_10_4_length_at_the_limit_is_accepted(ws: OpenWebSocket, shared_broker: StartBroker, topic: str) -> None:
    client = ws(to=shared_broker(**SMALL))
    client.subscribe(topic)
    sent = frames.send_counted(topic, "at the limit")
    client.send(sent + b"\n" * (LIMIT - len(sent)))
    client.expect_message("at the limit")


def test_10_4_assembled_message_over_the_limit_is_1009(ws: OpenWebSocket, shared_broker: StartBroker) -> None:
    client = ws(to=shared_broker(**SMALL))
    client.send_frame(TEXT, b"\n" * (LIMIT // 2), fin=False)
    client.send_frame(CONTINUATION, b"\n" * (LIMIT // 2), fin=False)
    client.send_frame(CONTINUATION, b"\n")
    client.expect_close(1009)


@pytest.fixture
def subscriber(ws: OpenWebSocket, shared_broker: StartBroker, topic: str) -> WebSocket:
    """A subscriber to the topic, on a broker with small limits."""
    client = ws(to=shared_broker(**SMALL))
    client.subscribe(topic)
    return client


def test_10_4_assembled_message_at_the_limit_is_accepted(subscriber: WebSocket, topic: str) -> None:
    client, sent = subscriber, frames.send_counted(topic, "x" * 4000)
    client.send_fragments(b"\n" * (LIMIT - len(sent)), sent[:100], sent[100:])
    client.expect_message("x" * 4000)
    client.send_fragments(b"\n" * (LIMIT - len(sent)), sent)
    client.expect_message("x" * 4000)


def test_10_4_control_frames_do_not_count_towards_the_message(subscriber: WebSocket, topic: str) -> None:
    client, sent = subscriber, frames.send_counted(topic, "x" * 4000)
    client.send_frame(TEXT, b"\n" * (LIMIT - len(sent)), fin=False)
    for _ in range(100):
        client.send_frame(10, bytes(125))
    client.send_frame(CONTINUATION, sent)
    client.expect_message("x" * 4000)


def test_body_over_max_message_size_gets_error_then_1009(ws: OpenWebSocket, shared_broker: StartBroker) -> None:
    client = ws(to=shared_broker(**SMALL))
    client.send(frames.send_counted("/topic/big", "x" * 4097))
    client.expect_error_and_close("E-MESSAGE-SIZE", 1009)


def test_body_over_several_messages_gets_error_then_1009(ws: OpenWebSocket, shared_broker: StartBroker) -> None:
    client = ws(to=shared_broker(**SMALL))
    client.send(frames.send("/topic/big", "x" * 4000)[:-1])
    client.send(b"x" * 4000)
    client.expect_error_and_close("E-MESSAGE-SIZE", 1009)


@pytest.mark.parametrize("announced", ["4097", "999999999999", "18446744073709551616"])
def test_announced_body_over_max_message_size_is_refused_at_once(
    ws: OpenWebSocket, shared_broker: StartBroker, announced: str
) -> None:
    client = ws(to=shared_broker(**SMALL))
    client.send(f"SEND\ndestination:/topic/big\ncontent-length:{announced}\n\n".encode())
    error = client.expect_error()
    assert error["code"] in ("E-MESSAGE-SIZE", "E-CONTENT-LENGTH"), error


def test_frame_before_login_over_64_kib_gets_error_then_1009(ws: OpenWebSocket) -> None:
    client = ws(None)
    client.opcode = BINARY
    client.send(b"CONNECT\n" + b"".join(b"h%d:%s\n" % (at, b"x" * 1000) for at in range(70)))
    error = client.expect_error()
    assert error["code"] in ("E-LOGIN-SIZE", "E-HEADER-COUNT"), error
    assert client.closed is not None and client.closed.code == 1009


def test_header_over_max_header_size_gets_error_then_1009(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.send(frames.send(topic, "", long="x" * 11_000))
    client.expect_error_and_close("E-HEADER-SIZE", 1009)


def test_too_many_headers_get_error_then_1009(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.send(frames.send(topic, "", *((f"h{at}", "x") for at in range(101))))
    client.expect_error_and_close("E-HEADER-COUNT", 1009)


@pytest.mark.parametrize("size", [64 << 10, 1 << 20, 16 << 20])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_bodies_up_to_16_mib_arrive_complete(ws: OpenWebSocket, topic: str, size: int, opcode: int) -> None:
    body = (b"\xff" if opcode == BINARY else b"x") + b"0123456789abcdef" * (size // 16)
    body = body[:size]
    client, publisher = ws(), ws()
    client.timeout = publisher.timeout = 20
    client.subscribe(topic)
    publisher.opcode = opcode
    publisher.send(frames.send_counted(topic, body))
    message = client.recv_frame()
    assert message.command == "MESSAGE"
    assert message.body == body, f"{len(message.body)} of {size} bytes"
    assert client.opcodes[-1] == opcode


def test_body_of_16_mib_in_many_fragments_arrives_complete(ws: OpenWebSocket, topic: str) -> None:
    body = b"0123456789abcdef" * (1 << 20)
    client, publisher = ws(), ws()
    client.timeout = publisher.timeout = 20
    client.subscribe(topic)
    sent = frames.send_counted(topic, body)
    step = 100_003
    publisher.send_fragments(*(sent[at : at + step] for at in range(0, len(sent), step)))
    assert client.recv_frame().body == body
