"""The raw WebSocket client itself, against the `websockets` library."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.ws import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    RawStream,
    WebSocket,
    accept_value,
    close_payload,
    encode_frame,
    mask_payload,
)


def echo(connection: ServerConnection) -> None:
    try:
        for message in connection:
            connection.send(message)
    except ConnectionClosed:
        pass  # many of these tests are about how it was closed


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    protocols = [Subprotocol("v12.stomp")]
    with serve(echo, "127.0.0.1", 0, subprotocols=protocols, compression=None, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.socket.getsockname()[1]
        server.shutdown()


def test_accept_value_matches_the_example_of_the_rfc() -> None:
    assert accept_value("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (encode_frame(TEXT, b"Hello", mask=False), b"\x81\x05Hello"),
        (encode_frame(TEXT, b"Hello", mask_key=b"\x37\xfa\x21\x3d"), b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"),
        (encode_frame(TEXT, b"Hel", fin=False, mask=False), b"\x01\x03Hel"),
        (encode_frame(BINARY, bytes(256), mask=False), b"\x82\x7e\x01\x00" + bytes(256)),
        (encode_frame(BINARY, bytes(65536), mask=False), b"\x82\x7f" + bytes(5) + b"\x01" + bytes(2) + bytes(65536)),
        (encode_frame(PING, b"", rsv=4, mask=False), b"\xc9\x00"),
        (encode_frame(PONG, b"x", length_form=16, mask=False), b"\x8a\x7e\x00\x01x"),
        (encode_frame(PONG, b"x", length_form=64, mask=False), b"\x8a\x7f" + bytes(7) + b"\x01x"),
        (encode_frame(TEXT, b"", length=5, mask=False), b"\x81\x05"),
        (close_payload(1000, b"bye"), b"\x03\xe8bye"),
    ],
)
def test_frames_match_the_examples_of_section_5_7(frame: bytes, expected: bytes) -> None:
    assert frame == expected


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1000, 65537])
def test_masking_twice_restores_the_payload(size: int) -> None:
    payload = bytes(at % 251 for at in range(size))
    masked = mask_payload(payload, b"\x01\x02\x03\xff")
    assert masked == bytes(octet ^ b"\x01\x02\x03\xff"[at % 4] for at, octet in enumerate(payload))
    assert mask_payload(masked, b"\x01\x02\x03\xff") == payload


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 1 << 20])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_messages_of_every_length_are_echoed(echo_port: int, size: int, opcode: int) -> None:
    with WebSocket.open(echo_port) as client:
        assert client.response.header("sec-websocket-protocol") == "v12.stomp"
        client.send_frame(opcode, b"x" * size)
        assert client.recv_message() == (opcode, b"x" * size)


def test_fragments_are_joined_and_pings_between_them_kept(echo_port: int) -> None:
    with WebSocket.open(echo_port) as client:
        client.send_frame(TEXT, b"a", fin=False)
        client.send_frame(PING, b"p")
        client.send_frame(0, b"b", fin=True)
        client.send_fragments(b"c", b"", b"d")
        assert client.recv_message() == (TEXT, b"ab")
        assert client.recv_message() == (TEXT, b"cd")
        assert [(frame.opcode, frame.payload) for frame in client.controls] == [(PONG, b"p")]


def test_close_is_reported_with_code_and_reason(echo_port: int) -> None:
    with WebSocket.open(echo_port) as client:
        client.send_close(3000, b"why")
        assert client.expect_close(3000) == "why"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (encode_frame(TEXT, b"x", mask=False), 1002),
        (encode_frame(TEXT, b"x", rsv=1), 1002),
        (encode_frame(3, b"x"), 1002),
        (encode_frame(TEXT, b"\xff"), 1007),
        (encode_frame(CLOSE, b"\x03"), 1002),
    ],
)
def test_a_protocol_error_is_answered_with_its_code(echo_port: int, frame: bytes, code: int) -> None:
    with WebSocket.open(echo_port) as client:
        client.send_raw(frame)
        client.expect_close(code)


@pytest.mark.parametrize(
    "sent",
    [
        encode_frame(TEXT, b"x"),
        encode_frame(TEXT, b"x", mask=False, rsv=1),
        encode_frame(TEXT, b"x", mask=False, length_form=16),
        encode_frame(TEXT, bytes(126), mask=False, length_form=64),
        encode_frame(5, b"", mask=False),
        encode_frame(PING, b"", mask=False, fin=False),
        encode_frame(PING, bytes(126), mask=False),
        encode_frame(0, b"x", mask=False),
        encode_frame(TEXT, b"x", mask=False, fin=False) + encode_frame(TEXT, b"x", mask=False),
        encode_frame(CLOSE, close_payload(1000), mask=False),
    ],
)
def test_a_frame_that_a_server_may_not_send_is_detected(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = RawStream(listener.getsockname()[1])
        far = listener.accept()[0]
        with far, stream:
            far.sendall(sent)
            client = WebSocket(stream)
            client.timeout = stream_timeout = 0.2
            stream.sock.settimeout(stream_timeout)
            with pytest.raises((AssertionError, UnicodeDecodeError, TimeoutError)):
                client.recv_message()


def test_text_that_is_not_utf8_is_detected() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        RawStream(listener.getsockname()[1]) as stream,
        listener.accept()[0] as far,
    ):
        far.sendall(encode_frame(TEXT, b"\xc3\x28", mask=False))
        with pytest.raises(UnicodeDecodeError):
            WebSocket(stream).recv_message()
