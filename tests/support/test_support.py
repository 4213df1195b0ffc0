"""The test clients themselves, against a socket pair: a client that overlooks errors would prove nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.parser import MalformedFrame
from tests.support.wire import Wire


@pytest.fixture
def pair() -> Iterator[tuple[Wire, socket.socket]]:
    near, far = socket.socketpair()
    with far, Wire(sock=near, timeout=0.5) as wire:
        yield wire, far


Pair = tuple[Wire, socket.socket]


def test_frames_are_read_whole_in_any_fragmentation(pair: Pair) -> None:
    wire, far = pair
    wire.version = "1.2"
    sent = b"\nMESSAGE\nsubscription:a\\cb\ncontent-length:3\n\na\0b\0\nRECEIPT\nreceipt-id:1\n\n\0"
    for at in range(len(sent)):
        far.sendall(sent[at : at + 1])
    message = wire.expect_message(b"a\0b", subscription="a:b", ack=None)
    assert message.raw_value(b"subscription") == b"a\\cb"
    wire.expect_receipt("1")
    assert wire.beats == 2


@pytest.mark.parametrize(
    ("version", "sent"),
    [
        ("1.2", b"MESSAGE\na:\\t\n\n\0"),
        ("1.1", b"MESSAGE\na:\\r\n\n\0"),
        ("1.1", b"MESSAGE\na:b:c\n\n\0"),
        ("1.0", b"MESSAGE\na:\n\n\0"),
        ("1.2", b"MESSAGE\r\na:b\n\n\0"),
        ("1.2", b"MESSAGE\na:b\rc\n\n\0"),
        ("1.2", b"MESSAGE\na\n\n\0"),
        ("1.2", b"MESSAGE\n:a\n\n\0"),
        ("1.2", b"MESSAGE\n\nbody without length\0"),
        ("1.2", b"MESSAGE\ncontent-length:1\n\nab\0"),
        ("1.2", b"MESSAGE\ncontent-length:1\ncontent-length:1\n\na\0"),
        ("1.2", b"RECEIPT\ncontent-length:1\n\na\0"),
        ("1.2", b"SEND\n\n\0"),
        ("1.2", b"\0RECEIPT\n\n\0"),
        ("1.1", b"\r\nRECEIPT\n\n\0"),
    ],
)
def test_a_malformed_frame_is_detected(pair: Pair, version: str, sent: bytes) -> None:
    wire, far = pair
    wire.version = version
    far.sendall(sent)
    with pytest.raises(MalformedFrame):
        wire.recv_frame()


def test_silence_another_frame_and_a_missing_close_are_detected(pair: Pair) -> None:
    wire, far = pair
    with pytest.raises(AssertionError, match="nothing came"):
        wire.recv_frame()
    far.sendall(b"RECEIPT\nreceipt-id:1\n\n\0" * 2)
    with pytest.raises(AssertionError, match="expected"):
        wire.expect_message()
    with pytest.raises(AssertionError, match="nothing came"):
        wire.expect_closed()


def test_an_error_must_be_explained_and_followed_by_the_end(pair: Pair) -> None:
    wire, far = pair
    head = b"ERROR\nmessage:no\ncode:E-COMMAND\ncontent-type:text/plain\ncontent-length:1\n\nx\0"
    far.sendall(head)
    with pytest.raises(AssertionError, match="nothing came"):
        wire.expect_error("E-COMMAND")
    far.sendall(head)
    far.shutdown(socket.SHUT_WR)
    wire.expect_error("E-COMMAND")


def test_half_a_frame_before_the_end_is_detected(pair: Pair) -> None:
    wire, far = pair
    far.sendall(b"RECEIPT\nrec")
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(AssertionError, match="half a frame"):
        wire.expect_closed()


def test_builders_write_what_they_are_told() -> None:
    assert frames.send("/topic/a", "x", ("k", "v"), receipt="1", id=None) == (
        b"SEND\ndestination:/topic/a\nk:v\nreceipt:1\n\nx\0"
    )
    assert frames.frame("SEND", eol=b"\r\n", content_length=0) == b"SEND\r\ncontent-length:0\r\n\r\n\0"
    assert frames.connect(None) == b"CONNECT\n\n\0"
