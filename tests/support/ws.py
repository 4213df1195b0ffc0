"""A WebSocket client on a plain socket, which can send what real clients never do (RFC 6455).

`encode_frame` and `handshake_request` build any bytes, wrong ones included. `WebSocket` sends them, checks that the
server sends only what it may, and answers nothing by itself but Close. It is a `Wire`: every STOMP dialogue works
over it as over TCP.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support import frames
from tests.support.wire import TIMEOUT, Wire

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
Headers = Sequence[tuple[str, str]]
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_value(key: str) -> str:
    """Returns the `Sec-WebSocket-Accept` that answers this key (RFC 6455, section 4.2.2)."""
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


def mask_payload(payload: bytes, key: bytes) -> bytes:
    """Masks or unmasks (RFC 6455, section 5.3) by one big XOR, which is fast enough for megabytes."""
    size = len(payload)
    pattern = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")).to_bytes(size, "big")


def encode_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bool = True,
    mask_key: bytes | None = None,
    length_form: int | None = None,
    length: int | None = None,
) -> bytes:
    """Builds a frame; `length_form` 7, 16 or 64 forces the size of the length field, `length` announces a wrong one."""
    announced = len(payload) if length is None else length
    if length_form is None:
        length_form = 7 if announced < 126 else 16 if announced < 1 << 16 else 64
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    masked = 0x80 if mask else 0
    if length_form == 7:
        head = struct.pack("!BB", first, masked | announced)
    elif length_form == 16:
        head = struct.pack("!BBH", first, masked | 126, announced)
    else:
        head = struct.pack("!BBQ", first, masked | 127, announced)
    if not mask:
        return head + payload
    key = os.urandom(4) if mask_key is None else mask_key
    return head + key + mask_payload(payload, key)


def close_payload(code: int, reason: bytes = b"") -> bytes:
    """Builds the payload of a Close frame (RFC 6455, section 5.5.1)."""
    return struct.pack("!H", code) + reason


def handshake_request(
    *,
    port: int = 0,
    method: str = "GET",
    path: str = "/",
    http: str = "HTTP/1.1",
    host: str | None = "",
    key: str | None = "dGhlIHNhbXBsZSBub25jZQ==",
    version: str | None = "13",
    upgrade: str | None = "websocket",
    connection: str | None = "Upgrade",
    subprotocols: Iterable[str] = (),
    origin: str | None = None,
    headers: Headers = (),
) -> bytes:
    """Builds a handshake request (RFC 6455, section 4.1). None omits a header; `host=""` means the address in use."""
    lines = [f"{method} {path} {http}"]
    for name, value in (
        ("Host", f"127.0.0.1:{port}" if host == "" else host),
        ("Upgrade", upgrade),
        ("Connection", connection),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", version),
        ("Sec-WebSocket-Protocol", ", ".join(subprotocols) or None),
        ("Origin", origin),
        *headers,
    ):
        if value is not None:
            lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True)
class Response:
    """An HTTP response: status, headers as they came, and the body if one was announced."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        """Returns every value of a header, whatever its case."""
        return [value for candidate, value in self.headers if candidate.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """Returns the first value of a header, or None."""
        return next(iter(self.all(name)), None)


@dataclass(frozen=True)
class WsFrame:
    """A frame of the server as it came; `length_form` is the size of its length field in bits."""

    opcode: int
    payload: bytes
    fin: bool
    rsv: int
    masked: bool
    length_form: int

    @property
    def code(self) -> int | None:
        """The code of a Close frame; None where its payload is empty."""
        return struct.unpack("!H", self.payload[:2])[0] if len(self.payload) >= 2 else None


class RawStream:
    """A TCP connection with a read buffer, for HTTP and for bytes of any kind."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", receive_buffer: int | None = None) -> None:
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.sock.settimeout(TIMEOUT)
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.connect((host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def __enter__(self) -> RawStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Sends all of it."""
        self.sock.sendall(data)

    def send_bytewise(self, data: bytes) -> None:
        """Sends every byte in a segment of its own (as far as the kernel goes: Nagle is off)."""
        for at in range(len(data)):
            self.sock.sendall(data[at : at + 1])

    def fill(self) -> None:
        """Reads once more from the socket; `EOFError` at the end, `TimeoutError` when nothing comes."""
        chunk = self.sock.recv(1 << 18)
        if not chunk:
            raise EOFError(f"closed; unread: {bytes(self.buffer[:300])!r}")
        self.buffer += chunk

    def take(self, count: int) -> bytes:
        """Returns exactly this many bytes."""
        while len(self.buffer) < count:
            self.fill()
        taken = bytes(memoryview(self.buffer)[:count])
        del self.buffer[:count]
        return taken

    def take_until(self, mark: bytes) -> bytes:
        """Returns all bytes up to the mark, which is dropped."""
        while (at := self.buffer.find(mark)) < 0:
            self.fill()
        taken = bytes(self.buffer[:at])
        del self.buffer[: at + len(mark)]
        return taken

    def expect_eof(self) -> None:
        """Checks that the server sends nothing more and closes in order (no reset)."""
        rest = bytes(self.buffer) or self.sock.recv(1 << 16)
        assert rest == b"", f"bytes before the end: {rest[:300]!r}"

    def read_response(self) -> Response:
        """Reads an HTTP response; its body has the length of `Content-Length`, or is empty without one."""
        first, *lines = self.take_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ", 2)
        assert version == "HTTP/1.1", first
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        response = Response(int(status), headers, b"")
        size = response.header("Content-Length")
        return response if size is None else Response(int(status), headers, self.take(int(size)))


class WebSocket(Wire):
    """A WebSocket past its handshake; as a `Wire` it speaks STOMP, one message for each `send`.

    `opcode` is what messages are sent as. `opcodes` lists what the data messages read so far came as; `controls` are
    the pings and pongs among them, unanswered; `closed` is the server's Close, which is answered.
    """

    def __init__(self, stream: RawStream) -> None:
        super().__init__(sock=stream.sock)
        self.stream = stream
        self.opcode = TEXT
        self.opcodes: list[int] = []
        self.controls: list[WsFrame] = []
        self.closed: WsFrame | None = None
        self._close_sent = False
        self.response = Response(0, [], b"")

    def __enter__(self) -> WebSocket:
        return self

    @classmethod
    def open(
        cls,
        port: int,
        *,
        path: str = "/",
        subprotocols: Iterable[str] = ("v12.stomp",),
        headers: Headers = (),
        receive_buffer: int | None = None,
    ) -> WebSocket:
        """Connects and performs the handshake; fails unless the answer is a correct 101."""
        stream = RawStream(port, receive_buffer=receive_buffer)
        key = base64.b64encode(os.urandom(16)).decode()
        stream.send(handshake_request(port=port, path=path, key=key, subprotocols=subprotocols, headers=headers))
        response = stream.read_response()
        assert response.status == 101, response
        assert response.header("Sec-WebSocket-Accept") == accept_value(key)
        client = cls(stream)
        client.response = response
        return client

    @classmethod
    def connected(
        cls,
        port: int,
        version: str = "1.2",
        *,
        receive_buffer: int | None = None,
        **options: frames.HeaderValue,
    ) -> WebSocket:
        """Opens a WebSocket and a STOMP session on it; `options` are headers of CONNECT."""
        subprotocols = (f"v{version.replace('.', '')}.stomp",)
        client = cls.open(port, subprotocols=subprotocols, receive_buffer=receive_buffer)
        client.connect(None if version == "1.0" else version, **options)
        return client

    # -- out ---------------------------------------------------------------------------------------------------

    def send_raw(self, *parts: bytes) -> None:
        """Sends bytes as they are."""
        super().send(*parts)

    def send(self, *parts: bytes) -> None:
        """Sends all parts as one message."""
        self.send_raw(encode_frame(self.opcode, b"".join(parts)))

    def send_pieces(self, *pieces: bytes) -> None:
        """Sends every piece as a message of its own."""
        for piece in pieces:
            self.send(piece)

    def send_fragments(self, *pieces: bytes) -> None:
        """Sends one message in as many frames as there are pieces."""
        for at, piece in enumerate(pieces):
            self.send_frame(CONTINUATION if at else self.opcode, piece, fin=at == len(pieces) - 1)

    def send_frame(self, opcode: int, payload: bytes = b"", **options: Any) -> None:
        """Sends one frame; the options are those of `encode_frame`."""
        self._close_sent = self._close_sent or opcode == CLOSE
        self.send_raw(encode_frame(opcode, payload, **options))

    def send_close(self, code: int | None = 1000, reason: bytes = b"") -> None:
        """Sends a Close; with code `None` it has no payload."""
        self.send_frame(CLOSE, b"" if code is None else close_payload(code, reason))

    # -- in ----------------------------------------------------------------------------------------------------

    def recv_ws(self, timeout: float | None = None) -> WsFrame:
        """Reads the next frame, which must be unmasked and minimal, without reserved bits (RFC 6455, section 5)."""
        self.sock.settimeout(self.timeout if timeout is None else timeout)
        first, second = self.stream.take(2)
        size, form = second & 0x7F, 7
        if size == 126:
            size, form = struct.unpack("!H", self.stream.take(2))[0], 16
        elif size == 127:
            size, form = struct.unpack("!Q", self.stream.take(8))[0], 64
        masked = bool(second & 0x80)
        frame = WsFrame(first & 0xF, self.stream.take(size), bool(first & 0x80), first >> 4 & 7, masked, form)
        assert not frame.masked, f"a server must not mask: {frame}"
        assert frame.rsv == 0, f"reserved bits set: {frame}"
        minimal = 7 if size < 126 else 16 if size < 1 << 16 else 64
        assert form == minimal, f"length not minimal: {form} bits for {size}"
        assert frame.opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG), frame
        assert frame.opcode < CLOSE or (frame.fin and size <= 125), f"bad control frame: {frame}"
        return frame

    def recv_message(self, timeout: float | None = None) -> tuple[int, bytes] | None:
        """Reads the next data message, joined, and valid UTF-8 if it is text; `None` when the server closes."""
        opcode = CONTINUATION
        parts: list[bytes] = []
        while True:
            frame = self.recv_ws(timeout)
            if frame.opcode == CLOSE:
                self._answer_close(frame)
                return None
            if frame.opcode > CLOSE:
                self.controls.append(frame)
                continue
            assert (frame.opcode == CONTINUATION) == (opcode != CONTINUATION), f"fragments out of order: {frame}"
            opcode = opcode or frame.opcode
            parts.append(frame.payload)
            if frame.fin:
                message = b"".join(parts)
                if opcode == TEXT:
                    message.decode()
                return opcode, message

    def _answer_close(self, frame: WsFrame) -> None:
        self.closed = frame
        if not self._close_sent:
            self.send_frame(CLOSE, frame.payload[:2])
        self.stream.expect_eof()
        self.sock.close()

    def receive_some(self, timeout: float | None = None) -> bool:
        """Reads one message; `False` at the server's Close, which must be followed by EOF."""
        assert self.closed is None, "read after the end"
        try:
            message = self.recv_message(timeout)
        except TimeoutError:
            raise AssertionError(f"nothing came within the time; unread: {self._parser.unread[:500]!r}") from None
        if message is None:
            self._ended = True
            return False
        self.opcodes.append(message[0])
        self._parser.feed(message[1])
        return True

    def recv_pong(self) -> bytes:
        """Reads the next frame, which must be a Pong; returns its payload."""
        frame = self.recv_ws()
        assert frame.opcode == PONG, frame
        return frame.payload

    def expect_close(self, *codes: int | None) -> str:
        """Reads the server's Close with one of these codes (`None`: no payload); no STOMP frame may come first.

        Returns the reason. The Close is answered and EOF follows.
        """
        self.expect_closed()
        assert self.closed is not None
        assert self.closed.code in codes, f"expected Close {codes}, got {self.closed}"
        return self.closed.payload[2:].decode()

    def expect_error_and_close(self, error: str, close: int) -> None:
        """Reads an ERROR with this `code` header, a Close with this code, and the end."""
        self.expect_error(error)
        assert self.closed is not None
        assert self.closed.code == close, f"expected Close {close} after {error}, got {self.closed}"
