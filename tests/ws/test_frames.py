"""RFC 6455, section 5: frames, masking, lengths, fragments, control frames."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import OpenWebSocket
from tests.support.ws import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, encode_frame
from tests.ws.cuts import expect_delivered_at_every_cut

BEAT = b"\n"
"""A message that is allowed at any time: a heart-beat."""

# 5.1, 5.3: masking


@pytest.mark.parametrize("opcode", [TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG])
def test_5_1_unmasked_client_frame_fails_the_connection(ws: OpenWebSocket, opcode: int) -> None:
    client = ws()
    client.send_frame(opcode, b"", mask=False)
    client.expect_close(1002)


def test_5_1_unmasked_frame_fails_the_connection_before_its_payload_has_come(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(TEXT, b"", mask=False, length=1000)
    client.expect_close(1002)


@pytest.mark.parametrize("key", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\x02\x03\x04", b"\0\0\0\x80"])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 100, 1000])
def test_5_3_any_mask_and_any_length_are_unmasked(ws: OpenWebSocket, topic: str, key: bytes, size: int) -> None:
    client = ws()
    client.subscribe(topic)
    body = bytes(33 + at % 90 for at in range(size))
    client.send_frame(BINARY, frames.send_counted(topic, body), mask_key=key)
    client.expect_message(body)


def test_5_3_mask_continues_across_segments(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = encode_frame(TEXT, frames.send_counted(topic, "abcdefghij" * 3), mask_key=b"\x11\x22\x33\x44")
    for at in range(len(sent)):
        client.send_raw(sent[at : at + 1])
    client.expect_message("abcdefghij" * 3)


# 5.2: reserved bits, opcodes, lengths


@pytest.mark.parametrize("rsv", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, CLOSE])
def test_5_2_reserved_bits_fail_the_connection(ws: OpenWebSocket, opcode: int, rsv: int) -> None:
    client = ws()
    client.send_frame(opcode, b"", rsv=rsv)
    client.expect_close(1002)


def test_5_2_reserved_bit_in_a_continuation_fails_the_connection(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(TEXT, BEAT, fin=False)
    client.send_frame(CONTINUATION, BEAT, rsv=4)
    client.expect_close(1002)


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
@pytest.mark.parametrize("payload", [b"", b"abc"])
def test_5_2_reserved_opcode_fails_the_connection(ws: OpenWebSocket, opcode: int, payload: bytes) -> None:
    client = ws()
    client.send_frame(opcode, payload)
    client.expect_close(1002)


@pytest.mark.parametrize("opcode", [3, 11])
def test_5_2_reserved_opcode_between_fragments_fails_the_connection(ws: OpenWebSocket, opcode: int) -> None:
    client = ws()
    client.send_frame(TEXT, BEAT, fin=False)
    client.send_frame(opcode)
    client.expect_close(1002)


@pytest.mark.parametrize("size", [0, 1, 124, 125, 126, 127, 128, 255, 256, 65535, 65536, 65537])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_5_2_payload_of_every_length_form_is_processed(ws: OpenWebSocket, topic: str, size: int, opcode: int) -> None:
    """The payload is one complete SEND of exactly that size; sizes below the smallest SEND consist of EOLs."""
    client = ws()
    client.subscribe(topic)
    head = len(frames.send(topic, content_length=100000))
    if size < head:
        client.send_frame(opcode, BEAT * size)
        client.send_frame(opcode, frames.send(topic, "after"))
        client.expect_message("after")
        return
    body = b"x" * (size - head)
    sent = frames.send(topic, body, content_length=f"{len(body):06}")
    assert len(sent) == size
    client.send_frame(opcode, sent)
    client.expect_message(body)


@pytest.mark.parametrize(("size", "form"), [(0, 16), (125, 16), (0, 64), (125, 64), (126, 64), (65535, 64)])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_5_2_length_that_is_not_minimal_fails_the_connection(
    ws: OpenWebSocket, size: int, form: int, opcode: int
) -> None:
    client = ws()
    client.send_frame(opcode, BEAT * size, length_form=form)
    client.expect_close(1002)


def test_5_2_length_with_the_most_significant_bit_fails_the_connection(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(BINARY, b"", length_form=64, length=1 << 63)
    client.expect_close(1002, 1009)


# 5.4: fragmentation


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("pieces", [2, 3, 10, 1000])
def test_5_4_message_in_any_number_of_fragments_is_processed(
    ws: OpenWebSocket, topic: str, opcode: int, pieces: int
) -> None:
    client = ws()
    client.opcode = opcode
    client.subscribe(topic)
    sent = frames.send_counted(topic, "0123456789" * 100)
    step = max(1, len(sent) // pieces)
    client.send_fragments(*(sent[at : at + step] for at in range(0, len(sent), step)))
    client.expect_message("0123456789" * 100)


def test_5_4_fragments_may_be_empty(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = frames.send_counted(topic, "body")
    client.send_fragments(b"", b"", sent[:5], b"", sent[5:], b"")
    client.expect_message("body")


def test_5_4_empty_message_is_ignored(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    client.send_frame(TEXT)
    client.send_fragments(b"", b"")
    client.send(frames.send(topic, "after"))
    client.expect_message("after")


def test_5_4_stomp_frame_cut_at_every_byte_is_processed(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    expect_delivered_at_every_cut(client, topic, "a:b\n\n\u00e4\u20ac", client.send_fragments)


def test_5_4_stomp_frame_is_processed_when_complete_though_the_message_continues(ws: OpenWebSocket, topic: str) -> None:
    """STOMP reads the bytes as a stream, so the end of a message has no meaning for it."""
    client = ws()
    client.subscribe(topic)
    client.send_frame(TEXT, frames.send(topic, "first"), fin=False)
    client.expect_message("first")
    client.send_frame(CONTINUATION, frames.send(topic, "second"))
    client.expect_message("second")


@pytest.mark.parametrize("fin", [True, False])
def test_5_4_continuation_without_a_start_fails_the_connection(ws: OpenWebSocket, fin: bool) -> None:
    client = ws()
    client.send_frame(CONTINUATION, BEAT, fin=fin)
    client.expect_close(1002)


def test_5_4_continuation_after_a_complete_message_fails_the_connection(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_fragments(BEAT, BEAT)
    client.send_frame(CONTINUATION, BEAT)
    client.expect_close(1002)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("fin", [True, False])
def test_5_4_new_message_inside_fragments_fails_the_connection(ws: OpenWebSocket, opcode: int, fin: bool) -> None:
    client = ws()
    client.send_frame(TEXT, BEAT, fin=False)
    client.send_frame(opcode, BEAT, fin=fin)
    client.expect_close(1002)


# 5.5: control frames


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
def test_5_5_control_frame_over_125_bytes_fails_the_connection(ws: OpenWebSocket, opcode: int) -> None:
    client = ws()
    client.send_frame(opcode, b"\x03\xe8" + bytes(124))
    client.expect_close(1002)


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
def test_5_5_control_frame_in_fragments_fails_the_connection(ws: OpenWebSocket, opcode: int) -> None:
    client = ws()
    client.send_frame(opcode, b"", fin=False)
    client.expect_close(1002)


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
@pytest.mark.parametrize("form", [16, 64])
def test_5_5_control_frame_with_a_long_length_field_fails_the_connection(
    ws: OpenWebSocket, opcode: int, form: int
) -> None:
    client = ws()
    client.send_frame(opcode, b"\x03\xe8", length_form=form)
    client.expect_close(1002)


@pytest.mark.parametrize("payload", [b"", b"x", b"Hello", bytes(125), b"\xff\xfe\0\x80", b"x" * 125])
def test_5_5_3_pong_has_the_payload_of_the_ping(ws: OpenWebSocket, payload: bytes) -> None:
    client = ws()
    client.send_frame(PING, payload)
    assert client.recv_pong() == payload


def test_5_5_2_ping_is_answered_before_connect(ws: OpenWebSocket) -> None:
    client = ws(None)
    client.send_frame(PING, b"early")
    assert client.recv_pong() == b"early"


def test_5_5_2_ping_sent_byte_by_byte_is_answered(ws: OpenWebSocket) -> None:
    client = ws()
    for octet in encode_frame(PING, b"slow"):
        client.send_raw(bytes([octet]))
    assert client.recv_pong() == b"slow"


def test_5_5_3_many_pings_in_one_segment_are_answered(ws: OpenWebSocket) -> None:
    """A server may answer only the last ping; the pongs that come are in order and end with its payload."""
    client = ws()
    names = [b"%d" % at for at in range(100)]
    client.send_raw(b"".join(encode_frame(PING, name) for name in names))
    answered = [client.recv_pong()]
    while answered[-1] != names[-1]:
        answered.append(client.recv_pong())
    assert answered == [name for name in names if name in answered]


def test_5_5_ping_between_fragments_is_answered_at_once(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.subscribe(topic)
    sent = frames.send_counted(topic, "whole")
    client.send_frame(TEXT, sent[:10], fin=False)
    client.send_frame(PING, b"in between")
    assert client.recv_pong() == b"in between"
    client.send_frame(CONTINUATION, sent[10:20], fin=False)
    client.send_frame(PING, b"again")
    assert client.recv_pong() == b"again"
    client.send_frame(CONTINUATION, sent[20:])
    client.expect_message("whole")


@pytest.mark.parametrize("payload", [b"", b"unsolicited", bytes(125)])
def test_5_5_3_unsolicited_pong_is_ignored(ws: OpenWebSocket, topic: str, payload: bytes) -> None:
    client = ws()
    client.send_frame(PONG, payload)
    client.send_frame(TEXT, BEAT, fin=False)
    client.send_frame(PONG, payload)
    client.send_frame(CONTINUATION, BEAT)
    client.subscribe(topic)
    assert client.controls == []


def test_5_5_3_pong_does_not_wait_for_a_reader_of_messages(ws: OpenWebSocket, topic: str) -> None:
    """Pongs and MESSAGEs share one connection: all arrive complete, in any order."""
    client = ws()
    client.subscribe(topic)
    for at in range(50):
        client.send(frames.send_counted(topic, f"{at}" * 200))
        client.send_frame(PING, b"%d" % at)
    for at in range(50):
        client.expect_message(f"{at}" * 200)
    while not client.controls or client.controls[-1].payload != b"49":
        frame = client.recv_ws()
        assert frame.opcode == PONG, frame
        client.controls.append(frame)


# 5.6, 5.8 and what the server sends


def test_5_6_server_sends_text_for_utf8_frames_and_binary_for_others(ws: OpenWebSocket, topic: str) -> None:
    client = ws()
    client.opcode = BINARY
    client.subscribe(topic)
    before = len(client.opcodes)
    for body in (b"plain", "\u00e4\u20ac\U0001f600".encode(), b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\x80b"):
        client.send(frames.send_counted(topic, body))
        client.expect_message(body)
    assert client.opcodes[before:] == [TEXT, TEXT, TEXT, BINARY, BINARY, BINARY, BINARY]


@pytest.mark.parametrize("size", [0, 100, 126, 200, 65535, 65536, 200_000])
def test_5_2_server_lengths_are_minimal(ws: OpenWebSocket, topic: str, size: int) -> None:
    """`recv_ws` checks the form of the length of every frame; here every form occurs."""
    client = ws()
    client.subscribe(topic)
    client.send(frames.send_counted(topic, b"x" * size))
    client.expect_message(b"x" * size)
