"""A raw STOMP client for dialogues: it sends what it is told and expects exactly the next frame.

Every wait ends after `timeout` seconds with a failure that shows what had arrived.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time

from tests.support import frames
from tests.support.parser import Frame, Parser

TIMEOUT = 20.0
"""Seconds until a dialogue that waits for the broker fails: only a failure waits that long, on a busy machine too."""

_fences = itertools.count()


class Wire:
    """One TCP connection to the broker, or any connected stream socket (`sock`)."""

    def __init__(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        sock: socket.socket | None = None,
        timeout: float = TIMEOUT,
        receive_buffer: int | None = None,
    ) -> None:
        if sock is None:
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.timeout = timeout
        self._parser = Parser()
        self._ended = False

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- out ---------------------------------------------------------------------------------------------------

    def send(self, *parts: bytes) -> None:
        """Sends all parts in one piece."""
        self.sock.settimeout(self.timeout)
        self.sock.sendall(b"".join(parts))

    def send_pieces(self, *pieces: bytes) -> None:
        """Sends every piece in a segment of its own (as far as the kernel goes: Nagle is off)."""
        self.sock.settimeout(self.timeout)
        for piece in pieces:
            self.sock.sendall(piece)

    def send_bytewise(self, data: bytes) -> None:
        """Sends every byte in a segment of its own."""
        self.send_pieces(*(data[at : at + 1] for at in range(len(data))))

    def half_close(self) -> None:
        """Shuts the write side; reading goes on."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the socket; twice is fine."""
        self.sock.close()

    def reset(self) -> None:
        """Closes with a TCP reset, as a crashed peer does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # -- in ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The session's version, which decides how received headers are read; `connect` sets it."""
        return self._parser.version

    @version.setter
    def version(self, version: str) -> None:
        self._parser.version = version

    @property
    def beats(self) -> int:
        """The number of EOLs received between frames so far."""
        return self._parser.beats

    @property
    def local_port(self) -> int:
        """The port of this end, which the broker sees as the peer's."""
        port: int = self.sock.getsockname()[1]
        return port

    def receive_some(self, timeout: float | None = None) -> bool:
        """Reads once; `False` at the end of the stream. A reset is an error of the test."""
        self.sock.settimeout(self.timeout if timeout is None else timeout)
        try:
            received = self.sock.recv(1 << 18)
        except TimeoutError:
            raise AssertionError(f"nothing came within the time; unread: {self._parser.unread[:500]!r}") from None
        if not received:
            self._ended = True
            return False
        self._parser.feed(received)
        return True

    def recv_frame(self) -> Frame:
        """Reads the next frame, whatever it is."""
        deadline = time.monotonic() + self.timeout
        while True:
            frame = self._parser.next_frame()
            if frame is not None:
                return frame
            left = deadline - time.monotonic()
            assert left > 0, f"no whole frame within the time; unread: {self._parser.unread[:500]!r}"
            assert self.receive_some(left), f"closed; unread: {self._parser.unread[:500]!r}"

    def frames_until_closed(self) -> list[Frame]:
        """Reads every frame up to the end of the stream, which must be EOF and not a reset."""
        found = []
        while True:
            frame = self._parser.next_frame()
            if frame is not None:
                found.append(frame)
            elif self._ended or not self.receive_some():
                assert self._parser.unread == b"", f"half a frame before the end: {self._parser.unread[:500]!r}"
                return found

    def wait_beats(self, count: int) -> None:
        """Returns when `count` more EOLs have come; fails on a frame."""
        goal = self.beats + count
        while self.beats < goal:
            frame = self._parser.next_frame()
            assert frame is None, f"waited for heart-beats, got {frame}"
            if self.beats < goal:
                assert self.receive_some(), "closed while waiting for heart-beats"

    def expect(self, command: str, *, body: frames.Text | None = None, **headers: str | None) -> Frame:
        """Reads the next frame, which must be `command` with these headers (`None`: absent) and this body, if given."""
        frame = self.recv_frame()
        assert frame.command == command, f"expected {command}, got {frame}"
        for name, value in headers.items():
            name = name.replace("_", "-")
            assert frame.header(name) == value, f"expected {name}:{value}, got {frame}"
        if body is not None:
            assert frame.body == frames.octets(body), f"expected body {body!r}, got {frame}"
        return frame

    def expect_message(self, body: frames.Text | None = None, **headers: str | None) -> Frame:
        """Reads the next frame, which must be this MESSAGE."""
        return self.expect("MESSAGE", body=body, **headers)

    def expect_receipt(self, receipt: str) -> None:
        """Reads the next frame, which must be this RECEIPT."""
        self.expect("RECEIPT", receipt_id=receipt)

    def expect_closed(self) -> None:
        """Reads the end of the stream, which must come in order and without another frame."""
        left = self.frames_until_closed()
        assert left == [], f"expected the end, got {left}"

    def expect_error(self, *codes: str, **headers: str | None) -> Frame:
        """Reads an ERROR with one of `codes` (none given: any), which must be well-formed and followed by EOF."""
        frame = self.expect("ERROR", **headers)
        assert frame.header("message"), f"no message header: {frame}"
        code = frame["code"]
        assert not codes or code in codes, f"expected {codes}, got {frame}"
        assert frame.body, f"an ERROR without explanation: {frame}"
        assert frame["content-type"].startswith("text/plain"), frame
        self.expect_closed()
        return frame

    # -- dialogues ---------------------------------------------------------------------------------------------

    def connect(self, version: str | None = "1.2", *pairs: frames.Header, **headers: frames.HeaderValue) -> Frame:
        """Sends a CONNECT that offers only `version`; returns the CONNECTED."""
        self.send(frames.connect(version, *pairs, **headers))
        connected = self.expect("CONNECTED")
        self.version = connected.header("version") or "1.0"
        if version is not None and "," not in version:
            assert self.version == version, connected
        return connected

    def subscribe(
        self, destination: frames.Text, id: str | None = "0", *pairs: frames.Header, **headers: frames.HeaderValue
    ) -> None:
        """Sends SUBSCRIBE and waits for its RECEIPT: from then on every shard knows the subscription."""
        receipt = f"subscribed-{next(_fences)}"
        self.send(frames.subscribe(destination, id, *pairs, receipt=receipt, **headers))
        self.expect_receipt(receipt)

    def send_and_wait(
        self, destination: frames.Text, body: frames.Text = b"", *pairs: frames.Header, **headers: frames.HeaderValue
    ) -> None:
        """Sends SEND and waits for its RECEIPT."""
        receipt = f"sent-{next(_fences)}"
        self.send(frames.send_counted(destination, body, *pairs, receipt=receipt, **headers))
        self.expect_receipt(receipt)

    def barrier(self, publisher: Wire | None = None) -> None:
        """Returns when everything `publisher` (default: this client) caused so far has arrived here.

        Fails if a frame is waiting that the test has not expected. A topic's messages reach a connection in the
        publisher's sending order, so a message sent last arrives last; no time needs to pass.
        """
        publisher = publisher or self
        name = f"fence-{next(_fences)}"
        topic = f"/topic/{name}"
        self.subscribe(topic, name)
        publisher.send(frames.send(topic, name))
        self.expect_message(name, destination=topic)
        self.send(frames.unsubscribe(name, receipt=name))
        self.expect_receipt(name)

    def disconnect(self) -> None:
        """Sends DISCONNECT; its RECEIPT and the end of the stream must follow."""
        self.send(frames.disconnect(receipt="bye"))
        self.expect_receipt("bye")
        self.expect_closed()
        self.close()

    def discard(self) -> None:
        """Closes the socket and ignores what the peer still sends."""
        with contextlib.suppress(OSError):
            self.close()
