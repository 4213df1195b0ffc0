"""`stompica record`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stompica import diag
from stompica.cli import main
from stompica.recording import check_run, read_info, read_table
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def start(
    broker: BrokerProcess, into: Path, *words: str, limits: str = "", stdout: int | None = None
) -> subprocess.Popen[str]:
    """Starts a recorder."""
    command = [sys.executable, "-m", "stompica", "record", "--diag", f"127.0.0.1:{broker.port}", "--into", str(into)]
    shell = ["/bin/sh", "-c", f'{limits} exec "$@"', "sh"]
    words = ("--every", "0.1", *words)
    # As a user starts it: some CI systems set this variable.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    recording = subprocess.Popen(
        [*shell, *command, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert recording.stderr is not None and recording.stderr.readline().startswith("recording into ")
    return recording


def wait_for_file(recording: subprocess.Popen[str], path: Path) -> None:
    """Returns when the recorder has written this file; fails if the recorder ends first."""
    while not path.exists():
        assert recording.poll() is None
        time.sleep(0.01)


def stop(recording: subprocess.Popen[str]) -> str:
    """Ends a recorder by SIGTERM; returns what it printed."""
    recording.send_signal(signal.SIGTERM)
    printed, errors = recording.communicate(timeout=60)
    assert (recording.returncode, errors) == (0, "")
    return printed


def test_a_broker_in_use_is_recorded(broker: BrokerProcess, client: Clients, tmp_path: Path) -> None:
    wire = client()
    wire.send_and_wait("/queue/recorded", "one")
    recording = start(broker, tmp_path, "--pid", str(broker.pid), "--stages", "--file-every", "0.1")
    folder = only(tmp_path)
    wait_for_file(recording, folder / "diag-000002.parquet")
    stop(recording)
    found = check_run(folder)
    assert found.faults == found.unfinished == [] and found.info is not None
    assert (found.info.kind, found.info.state, found.info.writers) == ("live", "complete", broker.settings["writers"])
    rows = read_table(folder, "diag").to_pylist()
    assert {"/queue/recorded.size", "/queue/recorded.enqueued"} <= {row["name"] for row in rows}
    assert len({(row["at_us"], row["query"], row["shard"], row["name"]) for row in rows}) == len(rows)
    for row in rows:
        is_part = row["shard"] is not None or (row["query"] == "queues" and "." in row["name"])
        is_part &= not row["name"].startswith("max_")
        assert (row["part_of"] is not None) == is_part, row
        assert row["unit"] == {"us": "us", "ns": "ns", "ms": "ms", "bytes": "bytes"}.get(ending(row["name"]), "count")
    moments = {row["at_us"] for row in rows if row["query"] == "network"}
    assert len(moments) >= 2, "each file contains a sample"
    processes = read_table(folder, "process").to_pylist()
    assert {row["process"] for row in processes} == {"target"}
    used = [row["cpu_us"] for row in processes]
    assert used == sorted(used) and all(row["rss_bytes"] > 1 << 20 and row["threads"] >= 2 for row in processes)


def ending(name: str) -> str:
    return re.split("[._]", name)[-1]


def test_stage_timings_belong_to_the_interval_and_their_buckets_do_not_overlap(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """What is timed here are the recorder's own queries."""
    with diag.connect(f"127.0.0.1:{broker.port}") as before:
        before("benchmark")
        for _ in range(200):
            before("store")
    recording = start(broker, tmp_path, "--stages", "--file-every", "0.1")
    folder = only(tmp_path)
    # The first sample is dropped; the second has what was timed since.
    wait_for_file(recording, folder / "stages-000002.parquet")
    stop(recording)
    by_stage: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    for row in read_table(folder, "stages").to_pylist():
        bucket = (row["bucket_low_ns"], row["bucket_high_ns"], row["count"])
        by_stage.setdefault((row["at_us"], row["stage"]), []).append(bucket)
    assert {stage for _, stage in by_stage} >= {"read", "parse", "write"}
    assert "turn" not in {stage for _, stage in by_stage}
    for buckets in by_stage.values():
        for (low, high, count), following in zip(buckets, [*buckets[1:], None], strict=True):
            assert low <= high and count >= 1
            assert following is None or high < following[0]
    routed = sum(count for (_, stage), buckets in by_stage.items() if stage == "route" for *_, count in buckets)
    diag_rows = read_table(folder, "diag").to_pylist()
    frames = [row["value"] for row in diag_rows if (row["query"], row["name"]) == ("network", "frames_in")]
    assert 0 < routed <= frames[-1] - frames[0] + 20, "nothing that was timed before the recording started"


def test_files_are_written_while_it_records_and_a_signal_ends_it(broker: BrokerProcess, tmp_path: Path) -> None:
    recording = start(broker, tmp_path, "--file-every", "0.1", stdout=subprocess.PIPE)
    folder = only(tmp_path)
    wait_for_file(recording, folder / "diag-000003.parquet")
    assert read_info(folder).state == "recording"
    assert stop(recording) == f"recorded in {folder}\n"
    assert read_info(folder).state == "complete"


def test_recording_continues_when_the_broker_comes_back(start_broker: StartBroker, tmp_path: Path) -> None:
    first = start_broker()
    command = [sys.executable, "-m", "stompica", "record", "--diag", f"127.0.0.1:{first.port}", "--into", str(tmp_path)]
    with subprocess.Popen([*command, "--every", "0.1"], stderr=subprocess.PIPE, text=True) as recording:
        assert recording.stderr is not None
        recording.stderr.readline()
        first.stop()
        assert "trying again every 0.1 s" in recording.stderr.readline()
        second = start_broker(port=first.port)
        second.wait_for_log("listening on")
        with Clients(second).raw() as wire:
            wire.connect()
            wire.discard()
        recording.send_signal(signal.SIGINT)
        assert recording.wait(60) == 0
    assert read_info(only(tmp_path)).state == "complete"


def test_an_immediate_ctrl_c_leaves_a_complete_run_with_rows(broker: BrokerProcess, tmp_path: Path) -> None:
    recording = start(broker, tmp_path)
    recording.send_signal(signal.SIGINT)
    recording.communicate(timeout=60)
    found = check_run(only(tmp_path))
    assert recording.returncode == 0 and found.faults == found.unfinished == []
    assert found.info is not None and found.info.state == "complete" and found.rows["diag-000001.parquet"] > 0


def test_files_of_a_killed_recorder_are_readable(broker: BrokerProcess, tmp_path: Path) -> None:
    recording = start(broker, tmp_path, "--file-every", "0.1")
    folder = only(tmp_path)
    wait_for_file(recording, folder / "diag-000002.parquet")
    recording.kill()
    recording.communicate(timeout=60)
    found = check_run(folder)
    assert found.faults == [] and found.unfinished[0].startswith("run.json says that it is still being recorded")
    assert read_table(folder, "diag").num_rows == sum(found.rows.values()) > 0


def test_two_recorders_may_write_into_one_folder(broker: BrokerProcess, tmp_path: Path) -> None:
    both = [start(broker, tmp_path, "--for", "0.3") for _ in range(2)]
    for recording in both:
        assert recording.communicate(timeout=60)[1] == "" and recording.returncode == 0
    folders = list(tmp_path.iterdir())
    assert len(folders) == 2
    for folder in folders:
        found = check_run(folder)
        assert found.faults == found.unfinished == []


def test_a_full_disk_ends_it_with_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    """The shell limits files to 1 or 2 KiB, which is enough for run.json."""
    recording = start(broker, tmp_path, "--file-every", "0.1", limits="ulimit -f 2;")
    _, errors = recording.communicate(timeout=60)
    folder = only(tmp_path)
    assert recording.returncode == 1
    assert errors == f"stompica: {folder}/diag-000001.parquet can't be written: File too large\n"
    found = check_run(folder)
    assert found.info is not None and found.info.state == "failed" and "File too large" in found.info.fault
    assert (found.faults, found.unfinished, found.rows) == ([], [], {})


def test_it_continues_if_nobody_reads_its_stderr(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    recording = start(broker, tmp_path, "--file-every", "0.1", "--for", "2")
    assert recording.stderr is not None
    recording.stderr.close()
    broker.stop()  # it would report this on stderr
    assert recording.wait(60) == 0
    assert read_info(only(tmp_path)).state == "complete"


@pytest.mark.parametrize("scheme", ["stomp", "ws"])
def test_a_passcode_is_not_recorded(broker: BrokerProcess, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://ann:hidden@127.0.0.1:{broker.port}"
    assert main(["record", "--diag", url, "--into", str(tmp_path), "--for", "0.1"]) == 0
    info = read_info(only(tmp_path))
    assert info.settings == {"diag": f"{scheme}://127.0.0.1:{broker.port}"}
    assert info.workload.transport == {"stomp": "tcp", "ws": "ws"}[scheme]


def test_a_folder_that_can_not_be_created_is_named(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "file"
    into.write_bytes(b"")
    assert main(["record", "--diag", f"127.0.0.1:{broker.port}", "--into", str(into)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"stompica: {into}/") and errors.endswith(" can't be written: Not a directory\n")


@pytest.mark.parametrize("word", ["0", "soon", "nan", "inf", "1e10"])
def test_values_that_are_not_seconds_are_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["record", "--diag", "127.0.0.1:1", "--into", "x", "--for", word])
    assert ended.value.code == 2 and "seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what"),
    [(["--diag", "127.0.0.1:1"], "refused"), (["--diag", "127.0.0.1:1", "--pid", "999999999"], "no such process")],
)
def test_the_reason_why_nothing_can_be_recorded_is_given(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", *words, "--into", str(tmp_path)]) == 1
    assert what in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
