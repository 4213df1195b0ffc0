"""`stompica record`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompica.cli import main
from stompica.recording import check_run, read_info, read_table
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_broker_in_use_is_recorded(broker: BrokerProcess, client: Clients, tmp_path: Path) -> None:
    client().send_and_wait("/queue/recorded", "one")
    url = f"stomp://127.0.0.1:{broker.port}"
    words = ["--into", str(tmp_path), "--every", "0.1", "--for", "1.5", "--stages"]
    assert main(["record", "--diag", url, "--pid", str(broker.pid), *words]) == 0
    folder = only(tmp_path)
    found = check_run(folder)
    assert found.faults == [] and found.info is not None
    assert (found.info.kind, found.info.state, found.info.writers) == ("live", "complete", broker.settings["writers"])
    diag = read_table(folder, "diag").to_pylist()
    assert {"/queue/recorded.size", "/queue/recorded.enqueued"} <= {row["name"] for row in diag}
    moments = {row["at_us"] for row in diag if row["query"] == "network"}
    assert len(moments) >= 2
    assert {row["process"] for row in read_table(folder, "process").to_pylist()} == {"target"}


def test_files_come_while_it_records_and_a_signal_ends_it(broker: BrokerProcess, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "stompica",
        "record",
        "--diag",
        f"127.0.0.1:{broker.port}",
        "--into",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [*command, "--every", "0.1", "--file-every", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as recording:
        assert recording.stderr is not None
        assert recording.stderr.readline().startswith("recording into ")
        folder = only(tmp_path)
        while not (folder / "diag-000003.parquet").exists():
            assert recording.poll() is None
        assert read_info(folder).state == "recording"
        recording.send_signal(signal.SIGTERM)
        printed, errors = recording.communicate(timeout=20)
    assert (recording.returncode, printed, errors) == (0, f"recorded in {folder}\n", "")
    assert read_info(folder).state == "complete"


def test_it_goes_on_when_the_broker_comes_back(start_broker: StartBroker, tmp_path: Path) -> None:
    first = start_broker()
    command = [sys.executable, "-m", "stompica", "record", "--diag", f"127.0.0.1:{first.port}", "--into", str(tmp_path)]
    with subprocess.Popen([*command, "--every", "0.1"], stderr=subprocess.PIPE, text=True) as recording:
        assert recording.stderr is not None
        recording.stderr.readline()
        first.stop()
        assert "trying again each 0.1 s" in recording.stderr.readline()
        second = start_broker(port=first.port)
        second.wait_for_log("listening on")
        with Clients(second).raw() as wire:
            wire.connect()
            wire.discard()
        recording.send_signal(signal.SIGINT)
        assert recording.wait(20) == 0
    assert read_info(only(tmp_path)).state == "complete"


@pytest.mark.parametrize(
    ("words", "what"),
    [(["--diag", "127.0.0.1:1"], "refused"), (["--diag", "127.0.0.1:1", "--pid", "999999999"], "no such process")],
)
def test_what_can_not_be_recorded_is_named(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", *words, "--into", str(tmp_path)]) == 1
    assert what in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
