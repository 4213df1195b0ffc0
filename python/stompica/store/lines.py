"""Stored messages as lines of JSON: the format of `stompica store export` and `import` (docs/store.md, "JSON lines").

Texts are UTF-8; octets that are none become U+DC80 to U+DCFF, which JSON can carry, and come back from there.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO

from stompica import _core
from stompica.errors import StoreError

VERSION = 1
"""The version of the format."""
LINE_BYTES_MAX = 2 << 30
"""A longer line is refused: no message of a store needs it."""

RETAINED = b"retained\n"
DURABLE = b"definitions\n"
"""The queues in which a store has last values and durable subscriptions (rust/broker/src/store/mod.rs)."""

_U16, _U32, _U63 = (1 << 16) - 1, (1 << 32) - 1, (1 << 63) - 1
_KEYS = {
    "message": {"queue", "place", "failures", "max-exceptions", "group", "deliveries"},
    "retained": {"message-id", "body"},
    "durable": {"subscription", "shared"},
}
_OF_MESSAGES = {"message-id", "persistent", "expires", "headers", "body", "body-base64"}


def first_line() -> bytes:
    """The line that begins a file."""
    return _line({"stompica-store": VERSION})


def encode(message: _core.StoredMessage) -> bytes:
    """A message, a last value or a durable subscription as a line."""
    if message.queue == DURABLE:
        shared = message.id == b"shared"
        return _line(
            {
                "kind": "durable",
                "subscription": _text(message.body),
                "destination": _text(message.destination),
                "shared": shared,
            }
        )
    fields: dict[str, Any] = {"kind": "retained"}
    if message.queue != RETAINED:
        fields = {"kind": "message", "queue": _text(message.queue), "place": message.place}
    fields |= {
        "destination": _text(message.destination),
        "message-id": _text(message.id),
        "persistent": message.persistent,
        "expires": message.expires_ms,
    }
    if message.queue != RETAINED:
        fields["deliveries"] = message.deliveries
    optional = {"failures": message.failures, "max-exceptions": message.failures_max, "group": message.grouped}
    fields |= {name: value for name, value in optional.items() if value and message.queue != RETAINED}
    fields["headers"] = [[_text(name), _text(value)] for name, value in message.headers]
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["body-base64"] = base64.b64encode(message.body).decode()
    return _line(fields)


def decode(file: BinaryIO, name: str) -> Iterator[_core.StoredMessage]:
    """Reads lines and yields what they have. StoreError names the file and the line that is wrong."""
    unique = secrets.token_hex(4)
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if len(line) == LINE_BYTES_MAX:
            raise StoreError(f"'{name}', line {number}: longer than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            continue
        try:
            message = _message(json.loads(line), f"imported-{unique}-{number}")
        except (ValueError, RecursionError) as error:
            raise StoreError(f"'{name}', line {number}: {_cause(error)}") from error
        if message is not None:
            yield message


def _cause(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 at byte {error.start + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _line(fields: dict[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def _octets(value: object, what: str) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{what} is {_shown(value)}, not a text")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{what} has a character that is no text") from None


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {_shown(value)}, not a whole number from 0 to {most}")
    return value


def _flag(fields: dict[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    if type(value) is not bool:
        raise ValueError(f"{name} is {_shown(value)}, not true or false")
    return value


def _required(fields: dict[str, Any], name: str) -> bytes:
    if name not in fields:
        raise ValueError(f"'{name}' is missing")
    return _octets(fields[name], name)


def _message(fields: Any, id: str) -> _core.StoredMessage | None:
    """The message of a line; None for the line that begins a file. ValueError says what is wrong."""
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    if "stompica-store" in fields:
        if fields["stompica-store"] != VERSION:
            raise ValueError(f"version {_shown(fields['stompica-store'])} of the format; known is {VERSION}")
        return None
    kind = fields.get("kind", "message")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ValueError(f"kind is {_shown(kind)}, not one of {', '.join(_KEYS)}")
    known = {"kind", "destination", *_KEYS[kind], *(_OF_MESSAGES if kind != "durable" else ())}
    if unknown := sorted(fields.keys() - known):
        raise ValueError(f"unknown field '{unknown[0]}' of kind {kind}")
    if kind == "durable":
        return _core.StoredMessage(
            queue=DURABLE,
            destination=_required(fields, "destination"),
            id=b"shared" if _flag(fields, "shared", True) else b"",
            headers=[],
            body=_required(fields, "subscription"),
            persistent=True,
        )
    queue = RETAINED if kind == "retained" else _required(fields, "queue")
    destination = queue if kind == "message" and "destination" not in fields else _required(fields, "destination")
    return _core.StoredMessage(
        queue=queue,
        destination=destination,
        id=_octets(fields.get("message-id", id), "message-id"),
        headers=_headers(fields.get("headers", [])),
        body=_body(fields),
        persistent=_flag(fields, "persistent", True),
        grouped=_flag(fields, "group", False),
        expires_ms=_number(fields, "expires", _U63),
        failures_max=_number(fields, "max-exceptions", _U16),
        deliveries=_number(fields, "deliveries", _U32),
        failures=_number(fields, "failures", _U16),
    )


def _headers(value: object) -> list[tuple[bytes, bytes]]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ValueError("headers is not a list of [name, value]")
    return [(_octets(pair[0], "the name of a header"), _octets(pair[1], "the value of a header")) for pair in value]


def _body(fields: dict[str, Any]) -> bytes:
    if ("body" in fields) == ("body-base64" in fields):
        raise ValueError("either body or body-base64 is needed")
    if "body" in fields:
        return _octets(fields["body"], "body")
    try:
        return base64.b64decode(_octets(fields["body-base64"], "body-base64"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"body-base64: {error}") from error
