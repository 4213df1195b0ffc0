"""`stompica store` on directories that a real broker has used: docs/store.md, "Commands"."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import Run
from tests.support import frames
from tests.support.queues import until_receipt
from tests.support.stored import Stored, in_flight, send_stored, waiting

SEGMENT = "0000000001.log"


def contents(directory: Path) -> dict[str, bytes]:
    """What is in a directory, byte by byte."""
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def lines_of(text: str) -> list[Any]:
    """The lines of an export behind the first one, which must be there."""
    first, *rest = map(json.loads, text.splitlines())
    assert first == {"stompica-store": 1}
    return rest


def fill(stored: Stored) -> None:
    """Leaves a store with queues, a dead letter, a durable subscription and a last value."""
    wire, reader = stored.client(), stored.client()
    reader.send(frames.subscribe("/topic/news", "reader", durable="true", receipt="d"))
    reader.expect_receipt("d")
    reader.disconnect()
    send_stored(wire, "/queue/a", "1", "2", "über", type="t")
    send_stored(wire, "/queue/b", "b", expires="4102444800000")
    send_stored(wire, "/topic/news", "kept", retain="set")
    wire.subscribe("/queue/a", "s", ack="client-individual", prefetch_count=1)
    first = wire.expect_message("1", subscription="s")
    wire.send(frames.frame("NACK", id=first["ack"], requeue="false", receipt="n"))
    until_receipt(wire, "n")
    stored.end()


def test_info_shows_space_and_queues(store: Run, stored: Stored) -> None:
    fill(stored)
    shown = store("info", stored.directory, "--json")
    assert shown.returncode == 0 and shown.stderr == "", shown.stderr
    info = json.loads(shown.stdout)
    queues = {row["queue"]: (row["kind"], row["messages"]) for row in info["queues"]}
    assert queues["/queue/a"] == ("message", 2) and queues["/queue/dlq/a"] == ("message", 1)
    assert queues["(durable subscriptions)"] == ("durable", 1) and queues["(last values)"] == ("retained", 1)
    assert info["messages"] == sum(row["messages"] for row in info["queues"]) == 7
    assert 0 < info["needed_bytes"] < info["disk_bytes"] and info["damages"] == info["torn_bytes"] == 0
    table = store("info", stored.directory).stdout
    assert "needed_bytes  " in table and "/queue/dlq/a" in table


def test_a_store_moves_to_another_directory_without_loss(store: Run, stored: Stored, tmp_path: Path) -> None:
    fill(stored)
    file, other = tmp_path / "lines.json", tmp_path / "other"
    exported = store("export", stored.directory, file)
    assert (exported.returncode, exported.stdout, exported.stderr) == (0, "", "")
    imported = store("import", other, file)
    assert (imported.returncode, imported.stdout) == (0, "7 imported\n"), imported.stderr
    again = store("export", other).stdout
    drop_place = [{**line, "place": 0} for line in lines_of(again)]
    assert drop_place == [{**line, "place": 0} for line in lines_of(file.read_text())]
    moved = Stored(other)
    try:
        moved.start()
        wire = moved.client()
        assert waiting(wire, "/queue/a") == ["2", "über"] and waiting(wire, "/queue/b") == ["b"]
        wire.subscribe("/queue/dlq/a", "dead")
        assert wire.expect_message("1", subscription="dead")["original-destination"] == "/queue/a"
        wire.send(frames.subscribe("/topic/news", "reader", durable="true"))
        wire.expect_message("kept", subscription="reader")
        reader = moved.client()
        reader.send(frames.subscribe("/topic/news", "new"))
        assert reader.expect_message("kept", subscription="new")["retained"] == "true"
    finally:
        moved.close()


def test_exported_lines_have_what_was_sent(store: Run, stored: Stored) -> None:
    wire = stored.client()
    send_stored(wire, "/queue/a", "text", **{"a": "1", "content-type": "text/plain"})
    wire.send_and_wait("/queue/a", b"\xff\0", ("persistent", "true"))
    with in_flight(wire, "/queue/a", 1, prefetch_count=1):
        pass
    stored.end()
    first, second = lines_of(store("export", stored.directory).stdout)
    assert (first["kind"], first["queue"], first["destination"]) == ("message", "/queue/a", "/queue/a")
    assert (first["body"], first["persistent"], first["expires"], first["deliveries"]) == ("text", True, 0, 1)
    assert ["a", "1"] in first["headers"] and ["content-type", "text/plain"] in first["headers"]
    assert second["body-base64"] == "/wA=" and second["deliveries"] == 0 and first["place"] < second["place"]


def test_reading_changes_nothing(store: Run, stored: Stored) -> None:
    send_stored(stored.client(), "/queue/a", "1", "2")
    stored.kill()
    before = contents(stored.directory)
    for command in ("info", "verify", "export"):
        assert store(command, stored.directory).returncode == 0
    assert contents(stored.directory) == before
    stored.start()
    assert waiting(stored.client(), "/queue/a") == ["1", "2"]


@pytest.mark.parametrize("command", ["info", "verify", "export", "compact", "import"])
def test_a_directory_in_use_is_refused(store: Run, stored: Stored, tmp_path: Path, command: str) -> None:
    send_stored(stored.client(), "/queue/a", "1")
    source = tmp_path / "lines"
    source.write_text('{"queue":"/queue/a","body":"2"}\n')
    refused = store(command, stored.directory, *([source] if command == "import" else []))
    verb = "change" if command in ("compact", "import") else "read"
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"stompica: cannot {verb} the store in '{stored.directory}': it is in use by process {stored.broker.pid} "
        f"(stompica, port {stored.broker.port}); 'stompica diag store' asks a running broker\n"
    )
    assert waiting(stored.client(), "/queue/a") == ["1"]


def test_damage_is_named_by_file_and_offset(store: Run, stored: Stored, tmp_path: Path) -> None:
    send_stored(stored.client(), "/queue/a", "first", "second", "third")
    stored.end()
    assert store("verify", stored.directory).stdout == "3 messages in 1 file: ok\n"
    path = stored.directory / SEGMENT
    whole = path.read_bytes()
    at = whole.index(b"second")
    path.write_bytes(whole[:at] + b"S" + whole[at + 1 :])
    before = contents(stored.directory)
    verified = store("verify", stored.directory)
    assert verified.returncode == 1
    fault, summary = verified.stdout.splitlines()
    assert fault.startswith(f"'{SEGMENT}' is damaged from byte ") and fault.endswith(
        ": 1 messages lost, probably of /queue/a"
    )
    first, end = map(int, re.findall(r"from byte (\d+) to (\d+):", fault)[0])
    assert first < at < end and summary == "2 messages in 1 file: 1 damaged"
    file = tmp_path / "lines"
    exported = store("export", stored.directory, file)
    assert exported.returncode == 1 and fault in exported.stderr
    assert [line["body"] for line in lines_of(file.read_text())] == ["first", "third"]
    assert contents(stored.directory) == before


def test_compaction_keeps_messages_and_frees_space(store: Run, stored: Stored) -> None:
    wire = stored.client()
    body = "x" * 10_000
    send_stored(wire, "/queue/a", *(f"{number}{body}" for number in range(200)))
    wire.subscribe("/queue/a", "s", ack="client", prefetch_count=190)
    for number in range(190):
        last = wire.expect_message(f"{number}{body}")
    wire.send(frames.ack(id=last["ack"], receipt="acked"))
    until_receipt(wire, "acked")
    stored.end()
    before = sum(map(len, contents(stored.directory).values()))
    compacted = store("compact", stored.directory)
    assert compacted.returncode == 0, compacted.stderr
    after = sum(map(len, contents(stored.directory).values()))
    assert compacted.stdout == f"{before} bytes before, {after} now\n"
    assert before > 1_900_000 and after < 130_000
    stored.start()
    assert waiting(stored.client(), "/queue/a") == [f"{number}{body}" for number in range(190, 200)]


@pytest.mark.parametrize("command", ["info", "verify", "export", "compact"])
def test_a_directory_without_a_store_is_refused(store: Run, tmp_path: Path, command: str) -> None:
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.mkdir()
    refused = store(command, empty)
    assert (refused.returncode, refused.stderr) == (1, f"stompica: '{empty}' has no store\n")
    refused = store(command, missing)
    assert (refused.returncode, refused.stderr) == (1, f"stompica: there is no directory '{missing}'\n")
    assert list(empty.iterdir()) == [] and not missing.exists()


@pytest.mark.parametrize("command", ["info", "verify", "export", "compact", "import"])
def test_a_foreign_directory_is_not_touched(store: Run, tmp_path: Path, command: str) -> None:
    foreign, source = tmp_path / "foreign", tmp_path / "lines"
    foreign.mkdir()
    (foreign / SEGMENT).write_bytes(b"a log of something else\n" * 100)
    source.write_text('{"queue":"/queue/a","body":"2"}\n')
    before = contents(foreign)
    refused = store(command, foreign, *([source] if command == "import" else []))
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr.endswith(f"'{SEGMENT}' is no segment of a stompica store\n")
    assert contents(foreign) == before


@pytest.mark.parametrize("command", ["info", "verify", "export", "compact", "import"])
def test_a_database_of_sqlite_is_refused(store: Run, tmp_path: Path, command: str) -> None:
    directory, source = tmp_path / "sqlite", tmp_path / "lines"
    directory.mkdir()
    (directory / "messages.db").write_bytes(b"SQLite format 3\0")
    (directory / "lock").touch()
    source.write_text('{"queue":"/queue/a","body":"1"}\n')
    before = contents(directory)
    refused = store(command, directory, *([source] if command == "import" else []))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"stompica: '{directory}' has 'messages.db', a database of SQLite: 'stompica store' works on store=file\n"
    )
    assert contents(directory) == before


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "no JSON: Expecting property name enclosed in double quotes at character 3"),
        ("[]", "not an object"),
        ('{"queue":"/queue/a"}', "either body or body-base64 is needed"),
        ('{"body":"x"}', "'queue' is missing"),
        ('{"queue":"/topic/a","body":""}', "queue '/topic/a' is none that a store keeps: '/queue/…'"),
        ('{"queue":"/queue/a","body":"","sender":1}', "unknown field 'sender' of kind message"),
        ('{"queue":"/queue/a","body":"","deliveries":-1}', "deliveries is -1, not a whole number from 0 to 4294967295"),
        ('{"queue":"/queue/a","body-base64":"?"}', "body-base64: Only base64 data is allowed"),
        ('{"stompica-store":2}', "version 2 of the format; known is 1"),
        ('{"queue":"/queue/a","body":"","headers":[["ack","1"]]}', "header 'ack' is set by the broker"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_imported(store: Run, tmp_path: Path, line: str, fault: str) -> None:
    source, directory = tmp_path / "lines", tmp_path / "store"
    source.write_text(f'{{"queue":"/queue/a","body":"1"}}\n\n{line}\n')
    refused = store("import", directory, source)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"stompica: '{source}', line 3: {fault}\n"
    assert not directory.exists()


def test_lines_written_by_hand_need_a_queue_and_a_body(store: Run, tmp_path: Path) -> None:
    source, directory = tmp_path / "lines", tmp_path / "store"
    source.write_text('{"queue":"/queue/a","body":"1"}\n{"queue":"/queue/a","body":"2","headers":[["a","b"]]}\n')
    for count in (1, 2):
        assert store("import", directory, source).stdout == "2 imported\n"
        assert len(lines_of(store("export", directory).stdout)) == 2 * count
    lines = lines_of(store("export", directory).stdout)
    assert [line["body"] for line in lines] == ["1", "2", "1", "2"]
    assert len({line["message-id"] for line in lines}) == 4 and all(line["persistent"] for line in lines)


def test_bad_usage_is_status_2(store: Run, tmp_path: Path) -> None:
    for words in (("explain", tmp_path), ("import", tmp_path), ("info", tmp_path, "more")):
        assert store(*words).returncode == 2


def test_the_directory_may_come_from_the_environment(
    store: Run, stored: Stored, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stompica.cli import main

    send_stored(stored.client(), "/queue/a", "1")
    stored.end()
    monkeypatch.setenv("STOMPICA_DIR", str(stored.directory))
    assert main(["store", "verify"]) == 0
    assert capsys.readouterr().out == "1 message in 1 file: ok\n"
