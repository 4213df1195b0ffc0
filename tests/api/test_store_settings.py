"""The settings of the store on the command line, in the output of `stompica config`, in the log, and in diagnostics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.command_line import CommandLine, effective, refused, sources
from tests.support.clients import StartBroker
from tests.support.diagnostics import answer
from tests.support.process import BrokerProcess
from tests.support.stored import send_stored, waiting
from tests.support.waiting import eventually
from tests.support.wire import Wire


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["store=file"], ("file", "always")),
        (["store=FILE", "fsync=never"], ("file", "never")),
        (["store=file", "fsync=interval:250"], ("file", "interval:250ms")),
        (["store=file", "fsync=interval:5s"], ("file", "interval:5s")),
        (["store=file", "checkpoint=5"], ("file", "interval:5s")),
        (["store=file", "checkpoint=0"], ("file", "always")),
        (["-q", "file", "-c", "5"], ("file", "interval:5s")),
        (["-q", "dbm", "-c", "0"], ("file", "always")),
        (["queuetype=dbm"], ("file", "always")),
        (["store=sqlite"], ("sqlite", "always")),
        (["-q", "activerecord", "-c", "5"], ("sqlite", "interval:5s")),
        (["queue=ActiveRecord"], ("sqlite", "always")),
        (["queue=memory"], ("memory", "always")),
    ],
)
def test_settings_are_shown_as_they_take_effect(
    stompica: CommandLine, arguments: list[str], shown: tuple[str, str]
) -> None:
    settings = effective(stompica("config", *arguments))
    assert (settings["store"], settings["fsync"]) == shown


def test_config_says_where_fsync_comes_from(stompica: CommandLine) -> None:
    assert sources(stompica("config", "checkpoint=5"))["fsync"] == "checkpoint=5, command line"


@pytest.mark.parametrize(
    "argument", ["fsync=sometimes", "fsync=interval", "fsync=interval:0", "fsync=interval:2h", "fsync=5"]
)
def test_a_wrong_fsync_is_refused(stompica: CommandLine, argument: str) -> None:
    value = argument.partition("=")[2]
    assert refused(stompica("port=0", argument)) == (
        f"setting 'fsync' (value '{value}', command line): must be always, interval:TIME (1ms to 1h) or never"
    )


def spares(directory: Path) -> int:
    """How many files of a store are reserved and empty."""
    return len(list(directory.glob("spare-*")))


@pytest.mark.parametrize(("reserve", "files"), [("0", 3), ("130MiB", 4), ("256MiB", 5)])
def test_the_reserve_is_taken_from_the_disk(
    start_broker: StartBroker, tmp_path: Path, reserve: str, files: int
) -> None:
    """Whole segments, two at least, and one file for the next segment; a segment of a large disk has 64 MiB."""
    directory = tmp_path / "store"
    broker = start_broker(store="file", dir=directory, store_reserve=reserve)
    with Wire(broker.port) as wire:
        wire.connect()
        send_stored(wire, "/queue/a", "1")
        eventually(lambda: spares(directory) == files, f"{files} spare files")


def test_a_reserve_that_is_larger_than_the_disk_is_refused(stompica: CommandLine, tmp_path: Path) -> None:
    message = refused(stompica("port=0", "store=file", f"dir={tmp_path}", "store_reserve=1024TiB"), status=1)
    assert message.startswith(
        f"cannot use dir '{tmp_path}' for store=file: store_reserve=1024TiB is more than half of its disk, which has "
    )


def test_a_wrong_reserve_is_refused(stompica: CommandLine) -> None:
    message = refused(stompica("port=0", "store_reserve=much"))
    assert message.startswith("setting 'store_reserve' (value 'much', command line): must be ")


def test_help_shows_the_settings(stompica: CommandLine) -> None:
    shown = stompica("--help").stdout
    assert all(
        f"  {line}\n" in shown
        for line in ("store=memory", "fsync=always", "checkpoint=0", "store_reserve=0", "dir=.stompica")
    )


@pytest.mark.parametrize(
    ("store", "kind"),
    [("file", "file"), ("dbm", "file"), ("sqlite", "sqlite"), ("activerecord", "sqlite"), ("memory", "memory")],
)
def test_diagnostics_name_the_store(start_broker: StartBroker, tmp_path: Path, store: str, kind: str) -> None:
    with Wire(start_broker(store=store, dir=tmp_path / "store").port) as wire:
        wire.connect()
        assert answer(wire, "store")["kind"] == kind


@pytest.mark.parametrize(("theirs", "ours"), [("dbm", "file"), ("activerecord", "sqlite")])
def test_the_log_notes_what_a_store_of_stompserver_means(
    start_broker: StartBroker, tmp_path: Path, theirs: str, ours: str
) -> None:
    log = start_broker(store=theirs, dir=tmp_path / "store").log_of_ordered_end()
    assert f"stompserver's store {theirs} means store={ours}: its own messages are not read" in log


def test_the_log_says_what_the_store_has(start_broker: StartBroker, tmp_path: Path, store: str) -> None:
    def start() -> BrokerProcess:
        return start_broker(store=store, dir=tmp_path / "store")

    first = start()
    with Wire(first.port) as wire:
        wire.connect()
        send_stored(wire, "/queue/a", "1", "2")
        send_stored(wire, "/queue/b", "3")
    first.kill()
    start().wait_for_log(r"INFO +the store in '.*store' has 3 messages in 2 queues \(\d+ ms\)")


def test_persistent_messages_are_not_warned_of(start_broker: StartBroker, tmp_path: Path, store: str) -> None:
    broker = start_broker(store=store, dir=tmp_path / "store")
    with Wire(broker.port) as wire:
        wire.connect()
        send_stored(wire, "/queue/a", "1")
    log = broker.log_of_ordered_end()
    assert "WARN" not in log and "messages of queues end with the broker" not in log


@pytest.mark.parametrize("change", [(4, 1), (1, 4), (3, 2)])
def test_the_number_of_writers_may_change(tmp_path: Path, store: str, change: tuple[int, int]) -> None:
    queues = [f"/queue/{number}" for number in range(30)]
    for writers, texts in zip(change, (["1", "2"], ["1", "2", "3"]), strict=True):
        broker = BrokerProcess(store=store, dir=tmp_path / "store", writers=writers)
        with broker, Wire(broker.port) as wire:
            wire.connect()
            for queue in queues:
                send_stored(wire, queue, *texts[-1:] if writers == change[1] else texts)
                assert waiting(wire, queue) == texts
            broker.kill()
