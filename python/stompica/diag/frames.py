"""STOMP 1.2 frames, as far as a DIAG client needs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_ESCAPES = {r"\r": "\r", r"\n": "\n", r"\c": ":", r"\\": "\\"}


class Frame(NamedTuple):
    """A frame from a server."""

    command: str
    headers: dict[str, str]
    """Unescaped; for a repeated name the first value, as STOMP requires."""
    body: bytes


def encode(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Returns the bytes of a frame. Names and values must not need escapes."""
    if body:
        headers = {**headers, "content-length": str(len(body))}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def take(buffer: bytearray) -> Frame | None:
    """Removes the first complete frame from `buffer`; None if there is none yet. ValueError for an invalid one."""
    while buffer.startswith((b"\n", b"\r")):
        del buffer[:1]
    end = buffer.find(b"\n\n")
    if end < 0:
        return None
    command, *lines = buffer[:end].decode("utf-8", "replace").split("\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(_unescape(name), value if command == "CONNECTED" else _unescape(value))
    begin = end + 2
    length = headers.get("content-length")
    if length is not None and not re.fullmatch("[0-9]{1,18}", length):
        raise ValueError(f"content-length:{length}")
    stop = begin + int(length) if length is not None else buffer.find(b"\0", begin)
    if stop < begin or stop >= len(buffer):
        return None
    body = bytes(buffer[begin:stop])
    del buffer[: stop + 1]
    return Frame(command, headers, body)


def _unescape(text: str) -> str:
    return re.sub(r"\\[rnc\\]", lambda found: _ESCAPES[found[0]], text) if "\\" in text else text
