"""Builders for the frames a client sends.

Nothing is escaped, reordered or completed: what a test writes is what goes on the wire, so that a test can also send
what no client would. Headers come as `(name, value)` pairs or as keywords (`content_type="text/plain"` becomes
`content-type:text/plain`; a keyword that is `None` is left out); pairs come before keywords.
"""

from __future__ import annotations

from typing import Any

Text = str | bytes
Header = tuple[Text, Text]
HeaderValue = Any
"""A header as keyword: text, bytes, a number, or `None` to leave it out."""

VERSIONS = ("1.0", "1.1", "1.2")
"""Every version, for `parametrize`."""

ESCAPING = ("1.1", "1.2")
"""The versions that escape headers and require ids."""


def octets(text: Text) -> bytes:
    """Returns the UTF-8 bytes of `text`, or bytes as they are."""
    return text.encode() if isinstance(text, str) else text


def frame(command: Text, *pairs: Header, body: Text = b"", eol: bytes = b"\n", **headers: HeaderValue) -> bytes:
    """Builds a frame: command, headers, blank line, body, NUL. It has no content-length unless given as a header."""
    lines = [octets(command)]
    lines += [octets(name) + b":" + octets(value) for name, value in pairs]
    for name, value in headers.items():
        if value is not None:
            written = str(value) if isinstance(value, int) else value
            lines.append(name.replace("_", "-").encode() + b":" + octets(written))
    return eol.join([*lines, b"", b""]) + octets(body) + b"\0"


def connect(version: str | None = "1.2", *pairs: Header, command: str = "CONNECT", **headers: HeaderValue) -> bytes:
    """CONNECT (or STOMP) that offers `version`; `None`: without accept-version, as a 1.0 client does."""
    first: list[Header] = []
    if version is not None:
        first = [("accept-version", version), ("host", "localhost")]
    return frame(command, *first, *pairs, **headers)


def send(destination: Text, body: Text = b"", *pairs: Header, **headers: HeaderValue) -> bytes:
    """SEND without content-length."""
    return frame("SEND", ("destination", destination), *pairs, body=body, **headers)


def send_counted(destination: Text, body: Text, *pairs: Header, **headers: HeaderValue) -> bytes:
    """SEND with the right content-length."""
    return send(destination, body, *pairs, content_length=len(octets(body)), **headers)


def subscribe(destination: Text, id: Text | None = "0", *pairs: Header, **headers: HeaderValue) -> bytes:
    """SUBSCRIBE; `id=None` leaves the id out."""
    return frame("SUBSCRIBE", ("destination", destination), *pairs, id=id, **headers)


def unsubscribe(id: Text | None = "0", *pairs: Header, **headers: HeaderValue) -> bytes:
    """UNSUBSCRIBE; `id=None` leaves the id out."""
    return frame("UNSUBSCRIBE", *pairs, id=id, **headers)


def ack(*pairs: Header, **headers: HeaderValue) -> bytes:
    """ACK."""
    return frame("ACK", *pairs, **headers)


def nack(*pairs: Header, **headers: HeaderValue) -> bytes:
    """NACK."""
    return frame("NACK", *pairs, **headers)


def begin(transaction: Text | None, *pairs: Header, **headers: HeaderValue) -> bytes:
    """BEGIN."""
    return frame("BEGIN", *pairs, transaction=transaction, **headers)


def commit(transaction: Text | None, *pairs: Header, **headers: HeaderValue) -> bytes:
    """COMMIT."""
    return frame("COMMIT", *pairs, transaction=transaction, **headers)


def abort(transaction: Text | None, *pairs: Header, **headers: HeaderValue) -> bytes:
    """ABORT."""
    return frame("ABORT", *pairs, transaction=transaction, **headers)


def disconnect(*pairs: Header, **headers: HeaderValue) -> bytes:
    """DISCONNECT."""
    return frame("DISCONNECT", *pairs, **headers)
