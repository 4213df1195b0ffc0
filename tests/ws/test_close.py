"""RFC 6455, sections 5.5.1 and 7: the closing handshake and its codes."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import OpenWebSocket, StartBroker
from tests.support.ws import CLOSE, PING, TEXT, WebSocket, close_payload, encode_frame


def expect_answer(client: WebSocket, answer: int, code: int, reason: bytes = b"") -> None:
    """Sends a Close frame; the code of the broker's Close frame is `answer`."""
    client.send_close(code, reason)
    client.expect_close(answer)


def expect_end(client: WebSocket, code: int) -> None:
    """The broker sends a Close frame with this code and ends the stream; the client neither answers nor closes."""
    frame = client.recv_ws()
    assert (frame.opcode, frame.code) == (CLOSE, code)
    client.stream.expect_eof()


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999]
)
def test_5_5_1_close_is_answered_with_its_code(ws: OpenWebSocket, code: int) -> None:
    expect_answer(ws(), code, code)


def test_5_5_1_close_without_payload_is_answered(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_close(None)
    client.expect_close(None, 1000)


@pytest.mark.parametrize("version", [None, "1.2"])
def test_5_5_1_close_is_answered_before_and_after_connect(ws: OpenWebSocket, version: str | None) -> None:
    expect_answer(ws(version), 1000, 1000, b"done")


@pytest.mark.parametrize("reason", [b"", b"bye", "f\u00fcr heute \u20ac".encode(), b"x" * 123])
def test_5_5_1_reason_of_any_legal_kind_is_accepted(ws: OpenWebSocket, reason: bytes) -> None:
    expect_answer(ws(), 1000, 1000, reason)


def test_5_5_1_payload_of_one_byte_is_a_protocol_error(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(CLOSE, b"\x03")
    client.expect_close(1002)


@pytest.mark.parametrize("code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535])
def test_7_4_code_that_must_not_be_sent_is_a_protocol_error(ws: OpenWebSocket, code: int) -> None:
    expect_answer(ws(), 1002, code)


@pytest.mark.parametrize("reason", [b"\xff", b"ok\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"])
def test_5_5_1_reason_that_is_not_utf8_is_1007(ws: OpenWebSocket, reason: bytes) -> None:
    expect_answer(ws(), 1007, 1000, reason)


def test_5_5_1_close_between_fragments_is_answered(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(TEXT, b"\n", fin=False)
    client.send_close(1000)
    client.expect_close(1000)


def test_5_5_1_close_sent_byte_by_byte_is_answered(ws: OpenWebSocket) -> None:
    client = ws()
    for octet in encode_frame(CLOSE, close_payload(1000, b"slow")):
        client.send_raw(bytes([octet]))
    client._close_sent = True
    client.expect_close(1000)


def test_5_5_1_frames_after_a_close_are_ignored(ws: OpenWebSocket, topic: str) -> None:
    other, client = ws(), ws()
    other.subscribe(topic)
    client.send_raw(
        encode_frame(CLOSE, close_payload(1000))
        + encode_frame(TEXT, frames.send(topic, "too late"))
        + encode_frame(PING, b"too late")
        + encode_frame(3, b"too late", mask=False)
    )
    client._close_sent = True
    client.expect_close(1000)
    assert client.controls == []
    other.barrier()


def test_5_5_1_frames_before_the_close_are_processed(ws: OpenWebSocket, topic: str) -> None:
    other, client = ws(), ws()
    other.subscribe(topic)
    client.send_raw(
        encode_frame(TEXT, frames.send(topic, "in time", receipt="r")) + encode_frame(CLOSE, close_payload(1000))
    )
    client._close_sent = True
    other.expect_message("in time")
    client.expect_receipt("r")
    client.expect_close(1000)


@pytest.mark.parametrize("last", ["SEND", "COMMIT", "DISCONNECT"])
def test_5_5_1_answers_that_wait_for_other_shards_are_sent_before_the_close(
    ws: OpenWebSocket, start_broker: StartBroker, last: str
) -> None:
    """The queues have their homes on all shards; the Close comes in the same read as the frames."""
    broker = start_broker(writers=4)
    other, client = ws(to=broker), ws(to=broker)
    transaction = [("transaction", "t")] if last == "COMMIT" else []
    sent = [frames.begin("t")] if transaction else []
    receipts = [] if transaction else [f"r{at}" for at in range(32)]
    for at in range(32):
        receipt = [] if transaction else [("receipt", f"r{at}")]
        sent.append(frames.send(f"/queue/{at}", str(at), *transaction, *receipt))
    if transaction:
        sent.append(frames.commit("t", receipt="end"))
    elif last == "DISCONNECT":
        sent.append(frames.disconnect(receipt="end"))
    if last != "SEND":
        receipts.append("end")
    client.send_raw(encode_frame(TEXT, b"".join(sent)) + encode_frame(CLOSE, close_payload(3000)))
    client._close_sent = True
    for receipt_id in receipts:
        client.expect_receipt(receipt_id)
    client.expect_close(3000, 1000)  # DISCONNECT has its own Close
    for at in range(32):
        other.subscribe(f"/queue/{at}", str(at))
        other.expect_message(str(at))


def test_5_5_1_error_from_another_shard_is_sent_before_the_close(ws: OpenWebSocket, start_broker: StartBroker) -> None:
    """Also for messages without a receipt header."""
    broker = start_broker(writers=4, max_queue_length=1)
    for at in range(16):  # some have their home on another shard
        client = ws(to=broker)
        sent = frames.send(f"/queue/{at}", "fits") + frames.send(f"/queue/{at}", "one too many")
        client.send_raw(encode_frame(TEXT, sent) + encode_frame(CLOSE, close_payload(3000)))
        client._close_sent = True
        client.expect_error_and_close("E-QUEUE-FULL", 1013)


def test_7_1_1_server_closes_tcp_first(ws: OpenWebSocket) -> None:
    """After both Close frames the client sends nothing and does not close, and the stream ends nevertheless."""
    client = ws()
    client.send_close(1000)
    expect_end(client, 1000)


def test_7_1_7_failing_server_ends_the_connection_even_if_its_close_is_never_answered(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(3)
    expect_end(client, 1002)


def test_7_1_7_failing_server_processes_no_more_frames(ws: OpenWebSocket, topic: str) -> None:
    other, client = ws(), ws()
    other.subscribe(topic)
    client.send_raw(encode_frame(3) + encode_frame(TEXT, frames.send(topic, "after the failure")))
    client.expect_close(1002)
    other.barrier()


def test_7_1_5_loss_without_close_frees_the_session(ws: OpenWebSocket, topic: str) -> None:
    other, lost = ws(), ws()
    lost.subscribe(topic)
    lost.reset()
    other.subscribe(topic)
    other.send(frames.send(topic, "still here"))
    other.expect_message("still here")


def test_7_1_6_close_of_a_failure_has_a_reason(ws: OpenWebSocket) -> None:
    client = ws()
    client.send_frame(TEXT, b"x", mask=False)
    assert client.expect_close(1002) != ""
