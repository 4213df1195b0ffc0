"""Reads the file store of the Ruby stompserver (and of stompserver_ng): `-q file -s DIR`.

DIR/qinfo      a Marshal of {:queues => {DESTINATION => {:frames => [ID, …], …}}, :frames => {DESTINATION => {ID => …}}}
               written now and then: so a message may have been added or consumed since
DIR/QUEUE/ID   one message; QUEUE is the destination with `_` for each `/`. Two numbers of eight hexadecimal digits,
               the lengths of what follows: a Marshal of the frame without its body, then the body
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompica import _core
from stompica.errors import StoreError
from stompica.store.marshal import MarshalError, RubyObject, Symbol, load

INFO = "qinfo"
"""The file with the state of the queues."""
FILE_BYTES_MAX = 512 << 20
"""Most bytes of a message's file: no message of a store may be longer."""

INFO_BYTES_MAX = 256 << 20
FRAME_BYTES_MAX = 1 << 20
"""Most bytes of `qinfo`, and of a frame without its body."""

_LENGTHS = 16
_DBM_SUFFIXES = {".db", ".pag", ".dir"}
_ID_TIME = re.compile(r"-(\d+)-(\d+)-(\d+)$")
_OF_BROKER = {
    b"ack",
    b"content-length",
    b"dead-letter-reason",
    b"delivery-count",
    b"destination",
    b"dropped",
    b"message-id",
    b"original-destination",
    b"receipt",
    b"redelivered",
    b"retained",
    b"session",
    b"subscription",
    b"transaction",
}


@dataclass(frozen=True)
class Frame:
    """A message of stompserver's store, or why it can't be read."""

    file: Path
    """Its file."""
    message: _core.StoredMessage | None
    """The message."""
    fault: str = ""
    """Why it can't be read."""


def is_store(directory: Path) -> bool:
    """Whether a directory is a store of stompserver, `dbm` included."""
    return (directory / INFO).is_file() or any(path.name.startswith("_queue_") for path in directory.iterdir())


def read(directory: Path) -> Iterator[Frame]:
    """Yields the messages of a store, queue by queue in order. StoreError if it is `dbm`, or its `qinfo` is damaged."""
    paths = sorted(directory.iterdir())
    if any(path.is_file() and (path.suffix in _DBM_SUFFIXES or path.name.startswith("_")) for path in paths):
        raise StoreError(
            f"'{directory}' is a dbm store of stompserver, which can't be read: let stompserver run on it, and consume "
            "its queues into stompica; or move to '-q file' there"
        )
    info = _info(directory / INFO)
    queues, frames = _part(info, b"queues"), _part(info, b"frames")
    known = {_directory_of(name): name for name in queues if isinstance(name, bytes)}
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            continue
        queue = known.get(path.name)
        listed = _part(queues.get(queue), b"frames", list)
        notes = frames.get(queue) if isinstance(frames.get(queue), dict) else {}
        for file in _in_order(path, listed):
            yield _frame(file, queue, notes.get(file.name.encode()))


def _info(path: Path) -> Any:
    if not path.exists():
        return {}
    try:
        return load(_content(path, INFO_BYTES_MAX))
    except MarshalError as error:
        raise StoreError(f"'{path}': {error}") from error


def _part(of: Any, name: bytes, kind: type[Any] = dict) -> Any:
    """A part of a hash by its symbol; an empty one if there is none."""
    found = of.get(Symbol(name)) if isinstance(of, dict) else None
    return found if isinstance(found, kind) else kind()


def _directory_of(queue: bytes) -> str:
    return queue.replace(b"/", b"_").decode("utf-8", "surrogateescape")


def _in_order(directory: Path, listed: list[Any]) -> Iterator[Path]:
    """Those that are listed in this order, then others by the time and the number in their names."""
    files = {path.name: path for path in directory.iterdir() if not path.is_symlink() and path.is_file()}
    for id in listed:
        if isinstance(id, bytes) and (file := files.pop(id.decode("utf-8", "surrogateescape"), None)):
            yield file

    def age(name: str) -> tuple[list[int], str]:
        found = _ID_TIME.search(name)
        return [int(part[:30]) for part in found.groups()] if found else [], name

    for name in sorted(files, key=age):
        yield files[name]


def _content(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise MarshalError(f"it has more than {most} bytes")
    return content


def _frame(file: Path, queue: bytes | None, notes: Any) -> Frame:
    try:
        return Frame(file, _message(file, _content(file, FILE_BYTES_MAX), queue, notes))
    except ValueError as error:  # MarshalError among them
        return Frame(file, None, str(error))


def _message(file: Path, content: bytes, queue: bytes | None, notes: Any) -> _core.StoredMessage:
    image, body = _split(content)
    frame = load(image)
    headers = frame.variables.get(b"@headers") if isinstance(frame, RubyObject) else None
    if not isinstance(headers, dict) or not all(isinstance(one, bytes) for pair in headers.items() for one in pair):
        raise MarshalError("no frame of stompserver")
    name = queue or _queue_of(file.parent.name, headers.get(b"destination", b""))
    id = headers.get(b"message-id", b"")
    failures = notes.get(Symbol(b"exceptions"), 0) if isinstance(notes, dict) else 0
    failures = min(failures, 0xFFFF) if type(failures) is int and failures > 0 else 0
    return _core.StoredMessage(
        queue=name,
        destination=name,
        id=id
        if re.fullmatch(rb"[!-9;-\[\]-~]+", id)
        else b"stompserver-" + file.name.encode("ascii", "replace").hex().encode(),
        headers=[(name, value) for name, value in headers.items() if name and name not in _OF_BROKER],
        body=body,
        persistent=True,
        expires_ms=_whole(headers.get(b"expires"), (1 << 63) - 1),
        failures_max=_whole(headers.get(b"max-exceptions"), 0xFFFF),
        deliveries=failures,
        failures=failures,
    )


def _split(content: bytes) -> tuple[bytes, bytes]:
    """The Marshal of the frame, and the body."""
    if not re.fullmatch(rb"[0-9a-fA-F]{16}", content[:_LENGTHS]):
        raise MarshalError("it does not begin with two lengths")
    frame_length, body_length = int(content[:8], 16), int(content[8:16], 16)
    image, body = content[_LENGTHS : _LENGTHS + frame_length], content[_LENGTHS + frame_length :]
    if frame_length > FRAME_BYTES_MAX:
        raise MarshalError(f"its frame has more than {FRAME_BYTES_MAX} bytes")
    if len(image) < frame_length:
        raise MarshalError("it ends within the frame")
    # Later versions of Ruby count characters.
    if len(body) != body_length and len(body.decode("utf-8", "ignore")) != body_length:
        raise MarshalError(f"its body has {len(body)} bytes instead of {body_length}")
    return image, body


def _queue_of(directory: str, destination: bytes) -> bytes:
    """The queue of a directory that `qinfo` does not list; a dead letter has the destination of another queue."""
    if _directory_of(destination) == directory:
        return destination
    return re.sub(rb"^_queue_", b"/queue/", directory.encode("utf-8", "surrogateescape"))


def _whole(value: bytes | None, most: int) -> int:
    """A whole number; 0 for anything else."""
    return min(int(value), most) if value and re.fullmatch(rb"[0-9]{1,19}", value) else 0
