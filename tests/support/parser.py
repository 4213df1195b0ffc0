"""A strict reader of what a STOMP server sends, independent of the broker's own code.

It rejects whatever the specification of the session's version forbids a server to send, so that every test of the
suite also checks the form of every frame it receives.
"""

from __future__ import annotations

from dataclasses import dataclass

SERVER_COMMANDS = frozenset({b"CONNECTED", b"MESSAGE", b"RECEIPT", b"ERROR", b"DIAG"})
WITH_BODY = frozenset({"MESSAGE", "ERROR", "DIAG"})

_ESCAPES = {
    "1.0": {},
    "1.1": {"n": "\n", "c": ":", "\\": "\\"},
    "1.2": {"r": "\r", "n": "\n", "c": ":", "\\": "\\"},
}


class MalformedFrame(AssertionError):
    """The server sent a frame that the session's version does not allow."""


@dataclass(frozen=True)
class Frame:
    """One frame of the server. `raw` holds the header lines as on the wire, `headers` unescaped."""

    command: str
    raw: tuple[tuple[bytes, bytes], ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """Returns the first header of this name, or `None`."""
        return next((value for candidate, value in self.headers if candidate == name), None)

    def __getitem__(self, name: str) -> str:
        value = self.header(name)
        assert value is not None, f"no {name} header in {self}"
        return value

    def __contains__(self, name: str) -> bool:
        return self.header(name) is not None

    def all(self, name: str) -> list[str]:
        """Returns every value of a repeated header, in order."""
        return [value for candidate, value in self.headers if candidate == name]

    def raw_value(self, name: bytes) -> bytes:
        """Returns the first value of this name as on the wire."""
        found = [value for candidate, value in self.raw if candidate == name]
        assert found, f"no {name!r} header in {self}"
        return found[0]

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def unescape(value: bytes, version: str) -> str:
    """Unescapes a header name or value of this version."""
    text = value.decode("utf-8")
    escapes = _ESCAPES[version]
    if not escapes or "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        escaped = text[at + 1 : at + 2]
        if escaped not in escapes:
            raise MalformedFrame(f"undefined escape in {value!r} for STOMP {version}")
        out.append(escapes[escaped])
        at += 2
    return "".join(out)


class Parser:
    """Bytes in, frames out. Set `version` once the session is negotiated; `beats` counts EOLs between frames."""

    def __init__(self, version: str = "1.0") -> None:
        self.version = version
        self.beats = 0
        self._buffer = bytearray()
        self._at = 0

    def feed(self, received: bytes) -> None:
        """Takes bytes of any fragmentation."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += received

    @property
    def unread(self) -> bytes:
        """Bytes that are not yet part of a whole frame."""
        return bytes(self._buffer[self._at :])

    def next_frame(self) -> Frame | None:
        """Returns the next whole frame, or `None` when more bytes are needed."""
        self._skip_beats()
        head_end = self._buffer.find(b"\n\n", self._at)
        nul = self._buffer.find(b"\0", self._at, head_end if head_end >= 0 else len(self._buffer))
        if nul >= 0:
            raise MalformedFrame(f"NUL in the head of a frame: {self.unread[:300]!r}")
        if head_end < 0:
            return None
        command, raw = self._head(bytes(self._buffer[self._at : head_end]))
        end = self._body_end(head_end + 2, command, raw)
        if end is None:
            return None
        body = bytes(self._buffer[head_end + 2 : end])
        self._at = end + 1
        escaped = "1.0" if command == "CONNECTED" else self.version
        headers = tuple((unescape(name, escaped), unescape(value, escaped)) for name, value in raw)
        return self._checked(Frame(command, raw, headers, body))

    def _skip_beats(self) -> None:
        while self._at < len(self._buffer):
            if self._buffer[self._at] == 0x0A:
                self._at += 1
            elif self.version == "1.2" and self._buffer[self._at : self._at + 2] == b"\r\n":
                self._at += 2
            else:
                return
            self.beats += 1

    def _head(self, head: bytes) -> tuple[str, tuple[tuple[bytes, bytes], ...]]:
        command, *lines = head.split(b"\n")
        if command not in SERVER_COMMANDS:
            raise MalformedFrame(f"no command of a server: {command!r}")
        raw = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name:
                raise MalformedFrame(f"malformed header line {line!r} in {head!r}")
            if self.version == "1.2" and b"\r" in line:
                raise MalformedFrame(f"a bare CR in a 1.2 header: {line!r}")
            if command != b"CONNECTED" and self.version != "1.0" and b":" in value:
                raise MalformedFrame(f"an unescaped colon in {line!r}")
            if self.version == "1.0" and not value and command == b"MESSAGE":
                raise MalformedFrame(f"an empty value in a 1.0 session: {line!r}")
            raw.append((name, value))
        return command.decode(), tuple(raw)

    def _body_end(self, start: int, command: str, raw: tuple[tuple[bytes, bytes], ...]) -> int | None:
        lengths = [value for name, value in raw if name == b"content-length"]
        if not lengths:
            end = self._buffer.find(b"\0", start)
            return None if end < 0 else end
        if len(lengths) > 1:
            raise MalformedFrame(f"{command} with several content-length headers: {raw!r}")
        if not lengths[0].isdigit():
            raise MalformedFrame(f"content-length {lengths[0]!r} is no number")
        end = start + int(lengths[0])
        if end >= len(self._buffer):
            return None
        if self._buffer[end] != 0:
            raise MalformedFrame(f"{command}: content-length is not followed by NUL")
        return end

    @staticmethod
    def _checked(frame: Frame) -> Frame:
        if frame.body and frame.command not in WITH_BODY:
            raise MalformedFrame(f"{frame.command} must not have a body: {frame}")
        if frame.body and "content-length" not in frame:
            raise MalformedFrame(f"{frame.command} with a body but without content-length: {frame}")
        return frame
