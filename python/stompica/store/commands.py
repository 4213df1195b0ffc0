"""What the commands of `stompica store` do; each returns the exit status. docs/store.md, "Commands"."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from stompica import _core
from stompica.errors import StoreError
from stompica.logs import tell
from stompica.store import lines, stompserver
from stompica.tabular import table, text

LOCK = "lock"
"""The file by which a broker claims a directory."""
SQLITE = "messages.db"
"""The file of a store of another kind, which these commands do not know."""


def info(directory: Path, as_json: bool) -> int:
    """Shows the space that a store takes, and what its queues have."""
    view = _view(directory)
    queues = []
    for index, (name, kind, messages, size) in enumerate(view.queues()):
        oldest, _ = view.read(index, 0)
        shown = {lines.RETAINED: "(last values)", lines.DURABLE: "(durable subscriptions)"}.get(name) or name.decode(
            "utf-8", "backslashreplace"
        )
        oldest_id = oldest.id.decode("ascii", "replace") if oldest and kind != "durable" else ""
        queues.append({"queue": shown, "kind": kind, "messages": messages, "bytes": size, "oldest": oldest_id})
    figures: dict[str, Any] = {
        "dir": str(directory),
        "disk_bytes": _disk_bytes(directory),
        "needed_bytes": view.needed_bytes,
        "segments": view.segments,
        "messages": sum(row["messages"] for row in queues),
        "torn_bytes": view.torn_bytes,
        "damages": len(view.damages()),
    }
    if as_json:
        print(json.dumps({**figures, "queues": queues}))
        return 0
    width = max(map(len, figures))
    for figure, value in figures.items():
        print(f"{figure:<{width}}  {text(value)}")
    if queues:
        print()
    for line in table(queues):
        print(line)
    return 0


def verify(directory: Path) -> int:
    """Reads everything and reports what is damaged, by file and offset."""
    view = _view(directory)
    faults = list(_damages(view))
    messages = 0
    for _, message, fault in _messages(view):
        messages += message is not None
        faults += [fault] if fault else []
    for fault in faults:
        print(fault)
    if view.torn_bytes:
        print(f"the last {view.torn_bytes} bytes are not complete, as after a crash: no RECEIPT was sent for them")
    of_all = "1 message" if messages == 1 else f"{messages} messages"
    print(f"{of_all} in {_segments(view.segments)}: {'ok' if not faults else f'{len(faults)} damaged'}")
    return 1 if faults else 0


def export(directory: Path, name: str | None) -> int:
    """Writes everything as lines of JSON to a file, which appears once it is complete, or to stdout."""
    view = _view(directory)
    faults = list(_damages(view))
    with _output(name) as out:
        out.write(lines.first_line())
        for _, message, fault in _messages(view):
            if message is not None:
                out.write(lines.encode(message))
            faults += [fault] if fault else []
    for fault in faults:
        tell(f"stompica: {fault}")
    return 1 if faults else 0


def import_(source: Path, directory: Path, skip_damaged: bool) -> int:
    """Adds what lines of JSON or a store of stompserver have. Everything is read once before anything is changed."""
    _refuse_sqlite(directory)
    is_directory = source.is_dir()
    if is_directory and not stompserver.is_store(source):
        if list(source.glob("*.log")):
            raise StoreError(f"'{source}' is a store of stompica: 'stompica store export --dir {source} FILE' first")
        raise StoreError(f"'{source}' is no store of stompserver: it has neither 'qinfo' nor a directory '_queue_…'")
    if not is_directory:
        source.open("rb").close()  # the system says why it can't be read
    damaged = 0
    for message in _sources(source):
        if isinstance(message, str):
            damaged += 1
            tell(f"stompica: {message}")
    if damaged and not skip_damaged:
        raise StoreError(f"nothing was imported: {damaged} damaged; --skip-damaged leaves them out")
    editor = _core.StoreEditor.open(directory, "stompica store import")
    known = 0
    for message in _sources(source):
        if not isinstance(message, str):
            known += not editor.add(message)
    added, _ = editor.close()
    print(
        f"{added} imported"
        + (f", {known} were there already" if known else "")
        + (f", {damaged} damaged" * bool(damaged))
    )
    return 0


def compact(directory: Path) -> int:
    """Rewrites files until that saves nothing more."""
    _require_store(directory)
    before = _disk_bytes(directory)
    editor = _core.StoreEditor.open(directory, "stompica store compact")
    try:
        editor.compact()
    finally:
        _, lost = editor.close()
    print(f"{before} bytes before, {_disk_bytes(directory)} now")
    if lost:
        tell(f"stompica: {lost} messages could not be read; their files are kept as 'damaged-…'")
    return 1 if lost else 0


def _require_store(directory: Path) -> None:
    """StoreError for a directory that no broker has used: probably another one is meant."""
    if not directory.is_dir():
        raise StoreError(f"there is no directory '{directory}'")
    _refuse_sqlite(directory)
    if not (directory / LOCK).exists() and not list(directory.glob("*.log")):
        raise StoreError(f"'{directory}' has no store")


def _refuse_sqlite(directory: Path) -> None:
    """StoreError for the directory of another kind of store."""
    if (directory / SQLITE).exists():
        raise StoreError(f"'{directory}' has '{SQLITE}', a database of SQLite: 'stompica store' works on store=file")


def _view(directory: Path) -> _core.StoreView:
    _require_store(directory)
    return _core.StoreView.open(directory)


def _disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())


def _segments(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _damages(view: _core.StoreView) -> Iterator[str]:
    for file, first, end, messages, queues in view.damages():
        lost = "an unknown number of messages" if messages is None else f"{messages} messages"
        of = ", ".join(text(queue.decode("utf-8", "replace")) for queue in queues[:3])
        yield f"'{file}' is damaged from byte {first} to {end}: {lost} lost" + (f", probably of {of}" if of else "")


def _messages(view: _core.StoreView) -> Iterator[tuple[bytes, _core.StoredMessage | None, str]]:
    """Each message with its queue, or why it can't be read; durable subscriptions and last values first."""
    queues = [(index, name, kind, count) for index, (name, kind, count, _) in enumerate(view.queues())]
    order = {"durable": 0, "retained": 1, "message": 2}
    for index, name, _, count in sorted(queues, key=lambda row: order[row[2]]):
        for at in range(count):
            message, place = view.read(index, at)
            fault = f"'{place[0]}' is damaged at byte {place[1]}: 1 message lost" if place else ""
            yield name, message, fault


@contextlib.contextmanager
def _output(name: str | None) -> Iterator[BinaryIO]:
    if name is None:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    part = Path(f"{name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(name)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _sources(source: Path) -> Iterator[_core.StoredMessage | str]:
    """Each message, or why it can't be read."""
    if source.is_dir():
        for frame in stompserver.read(source):
            yield frame.message or f"'{frame.file}': {frame.fault}"
        return
    with source.open("rb") as file:
        yield from lines.decode(file, str(source))
