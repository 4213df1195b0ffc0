"""Messages of the Ruby stompserver's file store are imported; `dbm` is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import Run
from tests.support.stored import Stored, in_flight

HERE = Path(__file__).parent / "stompserver"


@pytest.fixture(params=["stored sample", "written now"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store as stompserver leaves it: that of the repository, or one that Ruby writes now."""
    directory = tmp_path / "stompserver"
    if request.param == "stored sample":
        shutil.copytree(HERE / "sample", directory)
    elif shutil.which("ruby") is None:
        pytest.skip("ruby is missing")
    else:
        subprocess.run(["ruby", str(HERE / "write.rb"), str(directory)], check=True, timeout=60)
    return directory


def imported(store: Run, directory: Path) -> list[Any]:
    """The lines of a store."""
    return [json.loads(line) for line in store("export", directory).stdout.splitlines()][1:]


def test_messages_come_in_their_order_with_their_headers(store: Run, source: Path, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    done = store("import", directory, source)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5 imported\n", "")
    lines = imported(store, directory)
    # The order of `qinfo`; then what it does not list, by age.
    assert [line.get("body") for line in lines] == ["second", "first", "late é", None, "dead"]
    second, first, late, binary, dead = lines
    assert second["headers"] == [["content-type", "text/plain"]]
    assert second["message-id"] == "host-1700000002-000001-2" and second["destination"] == "/queue/a"
    assert (first["failures"], first["max-exceptions"], second.get("failures")) == (2, 5, None)
    assert late["expires"] == 1_893_456_000_000
    assert binary["queue"] == "/queue/b_c" and binary["body-base64"] == "AP8=" and binary["headers"] == []
    assert dead["queue"] == dead["destination"] == "/queue/deadletter"


def test_a_broker_delivers_them(store: Run, source: Path, tmp_path: Path) -> None:
    assert store("import", tmp_path / "store", source).returncode == 0
    stored = Stored(tmp_path / "store")
    try:
        stored.start()
        with in_flight(stored.client(), "/queue/a", 3) as (second, first, late):
            assert (second.text, first.text, late.text) == ("second", "first", "late é")
            assert first["redelivered"] == "true" and second["content-type"] == "text/plain"
    finally:
        stored.close()


def test_without_qinfo_queues_are_recognised_by_their_directories(store: Run, source: Path, tmp_path: Path) -> None:
    (source / "qinfo").unlink()
    assert store("import", tmp_path / "store", source).stdout == "5 imported\n"
    lines = imported(store, tmp_path / "store")
    assert [line.get("body") for line in lines] == ["first", "second", "late é", None, "dead"]
    assert [line["queue"] for line in lines][3:] == ["/queue/b_c", "/queue/deadletter"]


def test_a_damaged_message_stops_the_import_unless_it_is_to_be_skipped(
    store: Run, source: Path, tmp_path: Path
) -> None:
    directory, damaged = tmp_path / "store", source / "_queue_a" / "host-1700000001-000001-1"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    refused = store("import", directory, source)
    assert refused.returncode == 1 and not directory.exists()
    assert refused.stderr == (
        f"stompica: '{damaged}': its body has 4 bytes instead of 5\n"
        "stompica: nothing was imported: 1 damaged; --skip-damaged leaves them out\n"
    )
    done = store("import", directory, source, "--skip-damaged")
    assert (done.returncode, done.stdout) == (0, "4 imported, 1 damaged\n")
    assert "first" not in [line.get("body") for line in imported(store, directory)]


def test_what_is_outside_is_not_read(store: Run, source: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    shutil.copytree(source / "_queue_a", secret)
    (source / "_queue_link").symlink_to(secret)
    (source / "_queue_b_c" / "host-1-1-1").symlink_to(secret / "host-1700000001-000001-1")
    assert store("import", tmp_path / "store", source).stdout == "5 imported\n"


def test_a_damaged_qinfo_is_named(store: Run, source: Path, tmp_path: Path) -> None:
    (source / "qinfo").write_bytes(b"\x04\x08i")
    refused = store("import", tmp_path / "store", source)
    assert (refused.returncode, refused.stderr) == (
        1,
        f"stompica: '{source / 'qinfo'}': it ends too early at octet 3\n",
    )


@pytest.mark.parametrize("name", ["_queue_a", "_queue_a.db", "_queue_a.pag"])
def test_dbm_is_refused_with_a_hint(store: Run, tmp_path: Path, name: str) -> None:
    source = tmp_path / "dbm"
    source.mkdir()
    (source / name).write_bytes(b"\0" * 100)
    refused = store("import", tmp_path / "store", source)
    assert refused.returncode == 1 and refused.stderr == (
        f"stompica: '{source}' is a dbm store of stompserver, which can't be read: let stompserver run on it, and "
        "consume its queues into stompica; or move to '-q file' there\n"
    )


def test_other_directories_are_refused(store: Run, tmp_path: Path) -> None:
    source = tmp_path / "other"
    source.mkdir()
    refused = store("import", tmp_path / "store", source)
    assert refused.stderr == (
        f"stompica: '{source}' is no store of stompserver: it has neither 'qinfo' nor a directory '_queue_…'\n"
    )
    (source / "0000000001.log").touch()
    assert "is a store of stompica: 'stompica store export --dir" in store("import", tmp_path / "store", source).stderr
    refused = store("import", tmp_path / "store", tmp_path / "missing")
    assert (refused.returncode, refused.stderr) == (1, f"stompica: {tmp_path / 'missing'}: No such file or directory\n")
