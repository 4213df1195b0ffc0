"""RFC 6455, section 8.1: text that is not UTF-8 fails the connection with 1007 as soon as that is certain."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import OpenWebSocket
from tests.support.ws import BINARY, CONTINUATION, PING, TEXT, encode_frame

VALID = [
    "\u00e4\u00f6\u00fc",
    "\u03ba\u1f79\u03c3\u03bc\u03b5",
    "\u20ac",
    "\U0001f600",
    "\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff",
    "\ufffe\ufeff",
]
INVALID = {
    "lone continuation": b"\x80",
    "continuation missing": b"\xc3\x28",
    "overlong slash in two": b"\xc0\xaf",
    "overlong in three": b"\xe0\x80\xaf",
    "overlong in four": b"\xf0\x80\x80\xaf",
    "surrogate": b"\xed\xa0\x80",
    "surrogate pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "above U+10FFFF": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "0xfe": b"\xfe",
    "0xff": b"\xff",
    "three of four, then ascii": b"\xf0\x9f\x98a",
}
invalid = pytest.mark.parametrize("octets", INVALID.values(), ids=INVALID.keys())


@pytest.mark.parametrize("body", VALID)
def test_8_1_valid_text_is_delivered(ws: OpenWebSocket, topic: str, body: str) -> None:
    client = ws()
    client.subscribe(topic)
    client.send(frames.send_counted(topic, body))
    client.expect_message(body)
    assert client.opcodes[-1] == TEXT


@pytest.mark.parametrize("body", VALID)
def test_8_1_code_points_may_be_cut_between_fragments_and_segments(ws: OpenWebSocket, topic: str, body: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = frames.send_counted(topic, body)
    client.send_fragments(*(sent[at : at + 1] for at in range(len(sent))))
    client.expect_message(body)
    whole = encode_frame(TEXT, sent)
    for at in range(len(whole)):
        client.send_raw(whole[at : at + 1])
    client.expect_message(body)


@invalid
def test_8_1_invalid_text_fails_the_connection(ws: OpenWebSocket, octets: bytes) -> None:
    client = ws()
    client.send(frames.send_counted("/topic/utf8", b"before " + octets + b" after"))
    client.expect_close(1007)


@invalid
def test_8_1_invalid_text_before_connect_fails_the_connection(ws: OpenWebSocket, octets: bytes) -> None:
    client = ws(None)
    client.send(octets)
    client.expect_close(1007)


@invalid
def test_8_1_invalid_text_is_detected_before_its_message_ends(ws: OpenWebSocket, octets: bytes) -> None:
    client = ws()
    client.send_frame(TEXT, b"SEND\n" + octets + b"x", fin=False)
    client.expect_close(1007)


@invalid
def test_8_1_invalid_text_is_detected_before_its_frame_ends(ws: OpenWebSocket, octets: bytes) -> None:
    client = ws()
    start = b"SEND\n" + octets + b"x"
    client.send_raw(encode_frame(TEXT, start + bytes(1000))[: 8 + len(start)])
    client.expect_close(1007)


@invalid
def test_8_1_invalid_text_cut_at_every_byte_fails_the_connection(ws: OpenWebSocket, octets: bytes) -> None:
    for cut in range(1, len(octets)):
        client = ws()
        client.send_frame(TEXT, octets[:cut], fin=False)
        client.send_frame(CONTINUATION, octets[cut:] + b"\n", fin=True)
        client.expect_close(1007)


@pytest.mark.parametrize("start", ["\u00e4".encode()[:1], "\u20ac".encode()[:2], "\U0001f600".encode()[:3]])
def test_8_1_text_that_ends_inside_a_code_point_fails_the_connection(ws: OpenWebSocket, start: bytes) -> None:
    client = ws()
    client.send(b"\n" + start)
    client.expect_close(1007)


def test_8_1_text_that_ends_inside_a_code_point_after_fragments_fails_the_connection(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_fragments(b"\n\xe2", b"\x82", b"")
    client.expect_close(1007)


def test_8_1_code_point_may_not_span_two_messages(ws: OpenWebSocket, topic: str) -> None:
    """Each message is a text of its own, though STOMP reads on across its end."""
    client = ws()
    sent = frames.send_counted(topic, "\u20ac")
    client.send_pieces(sent[:-2], sent[-2:])
    client.expect_close(1007)


def test_8_1_ping_inside_a_split_code_point_has_no_effect(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = frames.send_counted(topic, "\u20ac")
    client.send_frame(TEXT, sent[:-2], fin=False)
    client.send_frame(PING, b"\xff\xfe")
    assert client.recv_pong() == b"\xff\xfe"
    client.send_frame(CONTINUATION, sent[-2:])
    client.expect_message("\u20ac")


@invalid
def test_5_6_binary_messages_are_not_checked(ws: OpenWebSocket, topic: str, octets: bytes) -> None:
    client = ws()
    client.opcode = BINARY
    client.subscribe(topic)
    client.send(frames.send_counted(topic, octets))
    client.expect_message(octets)
    assert client.opcodes[-1] == BINARY


def test_5_6_binary_cut_inside_a_code_point_is_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.opcode = BINARY
    client.subscribe(topic)
    sent = frames.send_counted(topic, "\u20ac\U0001f600")
    client.send_pieces(*(sent[at : at + 1] for at in range(len(sent))))
    client.expect_message("\u20ac\U0001f600")
    assert client.opcodes[-1] == TEXT
