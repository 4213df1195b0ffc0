"""Directories that a store on disk cannot use: one clear line, exit status 1, and nothing in them is changed."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from tests.api.command_line import CommandLine, Result, refused
from tests.support.clients import StartBroker
from tests.support.stored import send_stored, waiting
from tests.support.wire import Wire

SEGMENT = "0000000001.log"


def crc32c(octets: bytes) -> int:
    """The checksum of a segment's header (Castagnoli's polynomial, reflected)."""
    checksum = 0xFFFFFFFF
    for octet in octets:
        checksum ^= octet
        for _ in range(8):
            checksum = (checksum >> 1) ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def header(version: int) -> bytes:
    """The header of the first segment in this version of the format (rust/broker/src/store/file/segment.rs)."""
    fields = b"STOMPICA" + struct.pack("<IIQQQ", version, 1, 1, 1, 1)
    return fields + struct.pack("<I", crc32c(fields))


FOREIGN = {
    "another-file": (b"a log of something else\n" * 100, f"'{SEGMENT}' is no segment of a stompica store"),
    "newer-version": (
        header(99) + b"\1" * 100,
        f"'{SEGMENT}' has version 99 of the format, and this stompica knows version 1",
    ),
}
"""Contents of a file with the name of a segment, and what is said of it."""
EACH_FOREIGN = pytest.mark.parametrize(("content", "said"), FOREIGN.values(), ids=list(FOREIGN))


def start(stompica: CommandLine, directory: Path | str, store: str = "file") -> Result:
    """Tries to start a broker on the directory."""
    return stompica("port=0", f"store={store}", f"dir={directory}")


def names(directory: Path) -> list[str]:
    """The names of what is in the directory."""
    return sorted(path.name for path in directory.iterdir())


def contents(directory: Path) -> dict[str, bytes]:
    """The files in the directory but the one by which it is claimed."""
    files = (path for path in directory.iterdir() if path.is_file() and path.name != "lock")
    return {path.name: path.read_bytes() for path in files}


@pytest.fixture
def foreign(tmp_path: Path, content: bytes) -> Path:
    """A directory with a file that has the name of a segment and this content, and with a file of another name."""
    directory = tmp_path / "foreign"
    directory.mkdir()
    (directory / SEGMENT).write_bytes(content)
    (directory / "notes").write_text("mine")
    return directory


def test_a_second_broker_is_refused_and_the_first_one_unharmed(
    stompica: CommandLine, start_broker: StartBroker, tmp_path: Path, store: str
) -> None:
    directory = tmp_path / "store"
    first = start_broker(store=store, dir=directory)
    with Wire(first.port) as wire:
        wire.connect()
        send_stored(wire, "/queue/a", "1")
        message = refused(start(stompica, directory, store), status=1)
        assert message.startswith(
            f"cannot use dir '{directory}' for store={store}: it is in use by process {first.pid} "
        )
        send_stored(wire, "/queue/a", "2")
        assert waiting(wire, "/queue/a") == ["1", "2"]
    first.kill()
    second = start_broker(store=store, dir=directory)
    with Wire(second.port) as wire:
        wire.connect()
        assert waiting(wire, "/queue/a") == ["1", "2"]


def test_a_broker_starts_on_the_directory_of_one_that_was_killed(
    start_broker: StartBroker, tmp_path: Path, store: str
) -> None:
    """The claim ends with the process, although its file stays."""
    for _ in range(3):
        start_broker(store=store, dir=tmp_path / "store").kill()
    assert (tmp_path / "store" / "lock").exists()


def test_a_directory_is_created_with_its_parents(start_broker: StartBroker, tmp_path: Path, store: str) -> None:
    start_broker(store=store, dir=tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_relative_directory_is_in_working_dir(start_broker: StartBroker, tmp_path: Path, store: str) -> None:
    """docs/configuration.md: `dir` is inside `working_dir`."""
    (tmp_path / "base").mkdir()
    start_broker(store=store, working_dir=tmp_path / "base", dir="relative", cwd=tmp_path)
    assert (tmp_path / "base" / "relative").is_dir()


def test_a_file_instead_of_a_directory_is_refused(stompica: CommandLine, tmp_path: Path, store: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for directory in (file, file / "inside"):
        message = refused(start(stompica, directory, store), status=1)
        assert message.startswith(f"cannot use dir '{directory}' for store={store}: ")
    assert file.read_text() == "mine" and names(tmp_path) == ["file"]


def test_a_directory_that_cannot_be_created_is_refused(stompica: CommandLine, store: str) -> None:
    """Nobody, root included, can create one there."""
    message = refused(start(stompica, "/proc/stompica", store), status=1)
    assert message.startswith(f"cannot use dir '/proc/stompica' for store={store}: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_refused(stompica: CommandLine, tmp_path: Path, store: str) -> None:
    directory = tmp_path / "read-only"
    directory.mkdir(mode=0o500)
    message = refused(start(stompica, directory, store), status=1)
    assert message.startswith(f"cannot use dir '{directory}' for store={store}: ")
    assert names(directory) == []


@EACH_FOREIGN
def test_a_foreign_segment_is_refused_and_not_changed(
    stompica: CommandLine, foreign: Path, content: bytes, said: str
) -> None:
    result = start(stompica, foreign)
    assert result.returncode == 1
    assert result.stderr.endswith(f"stompica: cannot use dir '{foreign}' for store=file: {said}\n")
    assert (foreign / SEGMENT).read_bytes() == content and (foreign / "notes").read_text() == "mine"


@EACH_FOREIGN
def test_a_foreign_segment_is_refused_with_one_line(stompica: CommandLine, foreign: Path, said: str) -> None:
    assert refused(start(stompica, foreign), status=1) == f"cannot use dir '{foreign}' for store=file: {said}"


@EACH_FOREIGN
def test_nothing_is_added_to_a_directory_with_a_foreign_segment(
    stompica: CommandLine, foreign: Path, said: str
) -> None:
    start(stompica, foreign)
    assert names(foreign) == [SEGMENT, "notes"]


def test_other_files_in_the_directory_are_left_alone(start_broker: StartBroker, tmp_path: Path, store: str) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / "1.log").write_text("mine")
    (directory / "notes").write_text("mine")
    for _ in range(2):
        broker = start_broker(store=store, dir=directory)
        with Wire(broker.port) as wire:
            wire.connect()
            send_stored(wire, "/queue/a", "1")
        broker.kill()
    assert (directory / "1.log").read_text() == (directory / "notes").read_text() == "mine"


OTHERS = {"file": ("sqlite", "messages.db"), "sqlite": ("file", SEGMENT)}
"""For each store the other one, and the file that shows that a directory has the messages of it."""


def test_the_directory_of_another_store_is_refused_and_not_changed(
    stompica: CommandLine, start_broker: StartBroker, tmp_path: Path, store: str
) -> None:
    """The messages are there again with the store that has them."""
    directory = tmp_path / "store"
    other, file = OTHERS[store]
    broker = start_broker(store=other, dir=directory)
    with Wire(broker.port) as wire:
        wire.connect()
        send_stored(wire, "/queue/a", "1")
    broker.kill()
    before = contents(directory)
    assert refused(start(stompica, directory, store), status=1) == (
        f"cannot use dir '{directory}' for store={store}: it has the messages of store={other} ('{file}'): "
        "start with that, or choose another dir"
    )
    assert contents(directory) == before
    with Wire(start_broker(store=other, dir=directory).port) as wire:
        wire.connect()
        assert waiting(wire, "/queue/a") == ["1"]
