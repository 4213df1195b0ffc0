"""`stompica bench run` when a repetition fails, a broker dies or a campaign is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stompica.bench import procfs
from stompica.cli import main
from stompica.recording import check_run, read_info, read_table
from tests.bench.conftest import Loadgen, base, runs

Write = Callable[[str, str], Path]


def test_a_lost_message_is_a_failed_run(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator.fails({3: "message lost: 7 of publisher 0"})
    assert bench(*base(tmp_path), "--repetitions", "5") == 1
    assert len(generator.calls) == 3, "a warm-up, a good repetition, the failed one"
    printed = capsys.readouterr().out
    assert "FAILED fan stompica, repetition 2: message lost: 7 of publisher 0" in printed and "75 k" not in printed
    (folder,) = runs(tmp_path)
    assert (read_info(folder).state, read_info(folder).fault) == ("failed", "message lost: 7 of publisher 0")
    assert read_table(folder, "repetitions")["fault"].to_pylist() == [None, "message lost: 7 of publisher 0"]


def test_a_message_lost_in_the_warm_up_is_a_failed_run_too(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path
) -> None:
    generator.fails({1: "message lost: 7 of publisher 0"})
    assert bench(*base(tmp_path)) == 1
    assert len(generator.calls) == 1
    assert read_info(runs(tmp_path)[0]).fault == "message lost: 7 of publisher 0"


def test_a_firehose_has_no_warm_up(generator: Loadgen, workloads: Write, tmp_path: Path) -> None:
    """In such a short time no slow subscriber is disconnected, and the repetition would fail."""
    folder = workloads("fan", 'kind = "firehose"\nconnections = 75\n')
    assert main(["bench", "run", *base(tmp_path), "--no-diag", "--workloads", str(folder)]) == 0
    assert len(generator.calls) == 2


def test_a_broker_that_dies_is_named_in_the_failed_run(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path
) -> None:
    generator.fails({2: "kill"})
    assert bench(*base(tmp_path)) == 1
    assert read_info(runs(tmp_path)[0]).fault.startswith("kill; stompica ended by signal 9: ")


def test_a_peer_that_does_not_start_is_left_out_and_sets_the_status(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho 'v=7.0'\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bench(*base(tmp_path), "--peers", "redis") == 1
    printed = capsys.readouterr()
    assert "redis is left out: " in printed.err and "0/2" in printed.out
    assert [read_info(folder).state for folder in runs(tmp_path)] == ["complete"]


def test_an_interrupted_campaign_can_be_continued(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator.fails({3: "crash"})
    assert bench(*base(tmp_path)) == 1
    said = capsys.readouterr().err
    assert "stompica: fan: the load generator failed: out of order" in said
    assert f"finished repetitions are kept; continue with 'stompica bench run --resume {tmp_path / 'out'}'" in said
    assert not (tmp_path / "out" / "runs").exists()
    generator.fails({})
    assert main(["bench", "run", "--resume", str(tmp_path / "out")]) == 0
    assert len(generator.calls) == 3 + 2, "a warm-up and the second repetition"
    assert check_run(runs(tmp_path)[0]).rows["repetitions-000001.parquet"] == 2
    assert bench(*base(tmp_path)) == 0, "the same command again finds everything finished"
    assert len(generator.calls) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_ended_harness_ends_what_it_started(
    workloads: Write, generator: Loadgen, tmp_path: Path, number: signal.Signals
) -> None:
    generator.fails({2: "hang"})
    folder = workloads("fan", "connections = 75\n")
    command = [sys.executable, "-m", "stompica", "bench", "run", *base(tmp_path), "--workloads", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as harness:
        while len(generator.calls) < 2:
            assert harness.poll() is None
        (broker,) = {int(call[call.index("--pid") + 1]) for call in generator.calls}
        assert procfs.exists(broker)
        harness.send_signal(number)
        assert harness.wait(60) == 128 + number
    assert not procfs.exists(broker)


def test_the_folder_of_another_campaign_is_not_changed(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*base(tmp_path)) == 0
    assert bench(*base(tmp_path), "--sweep", "body=5") == 1
    assert "holds another campaign" in capsys.readouterr().err
    assert main(["bench", "run", "--resume", str(tmp_path)]) == 1
    assert "is not a campaign: it has no campaign.json" in capsys.readouterr().err


def test_a_broker_that_does_not_start_ends_the_campaign(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*base(tmp_path), "--set", "host=203.0.113.1") == 1
    assert "203.0.113.1" in capsys.readouterr().err
