"""Workloads of the store: their settings, the disk they are measured on, and starting the broker again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stompica.bench import BenchError, disk, recovery
from stompica.bench.campaign import Campaign
from stompica.bench.target import Running
from stompica.cli import main
from stompica.recording import read_info
from tests.bench.conftest import RUN, Loadgen, base, runs

Write = Callable[[str, str], Path]

PERSIST = 'kind = "persist"\nbody = 200\nsettings = { store = "file" }\n'
RECOVER = 'kind = "recover"\nbody = 200\nmessages = 1_000\nsettings = { store = "file" }\n'


@pytest.fixture(autouse=True)
def any_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder may be in memory: nothing is measured here."""
    monkeypatch.setattr(disk, "MEMORY", ())


def option(call: list[str], name: str) -> str | None:
    return call[call.index(name) + 1] if name in call else None


def test_a_workload_has_settings_and_a_variant_overrides_them(
    generator: Loadgen, workloads: Write, tmp_path: Path
) -> None:
    folder = workloads("fan", PERSIST)
    variants = ["--variant", "disk", "--variant", "memory:store=memory"]
    assert main(["bench", "run", *base(tmp_path), *variants, "--workloads", str(folder)]) == 0
    infos = {info.label: dict(info.settings) for info in map(read_info, runs(tmp_path))}
    assert infos == {"disk": {"store": "file"}, "memory": {"store": "memory"}}
    stores = [option(call, "--store") for call in generator.calls]
    assert len(set(stores)) == 2 and None in stores, "one folder, and none for messages in memory"
    (written,) = {store for store in stores if store}
    assert not Path(written).exists(), "it was in the scratch folder"
    plan = Campaign.open(tmp_path / "out").plan
    assert dict(plan.cases[0].point.settings) == {"store": "file"}


def test_a_workload_with_a_wrong_setting_is_named(
    generator: Loadgen, workloads: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workloads("fan", PERSIST.replace("file", "tape"))
    assert main(["bench", "run", *base(tmp_path), "--workloads", str(folder)]) == 2
    assert "setting 'store' (value 'tape', workload fan)" in capsys.readouterr().err
    assert generator.calls == []


def test_a_store_in_memory_is_refused(
    generator: Loadgen, workloads: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(disk, "MEMORY", (disk.file_system(tmp_path),))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = workloads("fan", PERSIST)
    assert main(["bench", "run", *base(tmp_path), "--workloads", str(folder)]) == 1
    assert "which is no disk: name a folder of one in the variable TMPDIR" in capsys.readouterr().err


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "{} 1 0:1 / {} rw - {} none rw\n"
    mounts = [("/", "ext4"), ("/tmp", "ext4"), ("/tmp", "tmpfs"), ("/tmp/a\\040b", "xfs"), ("/tm", "btrfs")]
    file = tmp_path / "mountinfo"
    file.write_text("".join(line.format(number, *mount) for number, mount in enumerate(mounts)))
    monkeypatch.setattr(disk, "_MOUNTS", file)
    found = [disk.file_system(Path(place)) for place in ("/var", "/tmp", "/tmp/x", "/tmp/a b/c", "/tmpx")]
    assert found == ["ext4", "tmpfs", "tmpfs", "xfs", "ext4"]
    monkeypatch.setattr(disk, "_MOUNTS", tmp_path / "none")
    assert disk.file_system(Path("/var")) == ""


def test_figures_of_the_log_are_beside_the_rates(
    generator: Loadgen, workloads: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    persist = {"groups_per_s": 900.0, "groups_by_bare_ratio": 0.75, "bare_p99_us": 1_200.0}
    generator.says({**RUN, "latency": None, "persist": persist})
    assert main(["bench", "run", *base(tmp_path), "--workloads", str(workloads("fan", PERSIST))]) == 0
    head, row = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    shown = dict(zip(head, [*row[:4], f"{row[4]} {row[5]}", *row[6:]], strict=True))
    assert shown["per_s"] == "75 k"
    assert [shown[name] for name in persist] == ["900", "0.75", "1200"]
    assert read_info(runs(tmp_path)[0]).figures == persist


def test_a_broker_is_filled_started_again_and_drained(
    generator: Loadgen, workloads: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "run", *base(tmp_path), "--workloads", str(workloads("fan", RECOVER))]) == 0
    parts = [(option(call, "--part"), option(call, "--connect")) for call in generator.calls]
    assert [part for part, _ in parts] == ["fill", "drain"] * 2, "two repetitions, without warm-up"
    assert len({address for _, address in parts}) == 4, "each by another process"
    figures = read_info(runs(tmp_path)[0]).figures
    assert figures["recovered"] == 1_000 and figures["drained_per_s"] == 75_000.0
    assert figures["ready_ms"] > 0 and figures["recovered_per_s"] == pytest.approx(1e6 / figures["ready_ms"], rel=0.5)
    assert "recovered_per_s" in capsys.readouterr().out


@pytest.mark.parametrize("failing", [1, 2])
def test_a_fault_of_either_part_fails_the_run(
    generator: Loadgen, workloads: Write, tmp_path: Path, failing: int
) -> None:
    generator.fails({failing: "message lost: 7 of publisher 0"})
    assert main(["bench", "run", *base(tmp_path), "--workloads", str(workloads("fan", RECOVER))]) == 1
    assert len(generator.calls) == failing
    assert read_info(runs(tmp_path)[0]).fault == "message lost: 7 of publisher 0"


def test_a_recovery_is_divided_by_its_messages() -> None:
    empty, ready = recovery.Ready(0.01, 200_000, 10_000_000), recovery.Ready(0.5, 700_000, 90_000_000)
    assert recovery.figures(1_000_000, empty, ready, {"deliveries_per_s": 5.0}) == {
        "recovered": 1_000_000,
        "ready_ms": 500.0,
        "recovered_per_s": 2_000_000.0,
        "recovery_cpu_us_each": 0.5,
        "resident_bytes": 90_000_000,
        "resident_bytes_each": 80.0,
        "drained_per_s": 5.0,
    }


def test_a_broker_that_dies_is_named(generator: Loadgen, workloads: Write, tmp_path: Path) -> None:
    generator.fails({1: "kill"})
    assert main(["bench", "run", *base(tmp_path), "--workloads", str(workloads("fan", RECOVER))]) == 1
    assert read_info(runs(tmp_path)[0]).fault.startswith("kill; stompica ended by signal 9: ")


def test_a_broker_that_does_not_answer_is_not_waited_for() -> None:
    gone = Running("gone", "1", 1, {"tcp": ("127.0.0.1", 1)})
    with pytest.raises(BenchError, match="gone does not answer: "):
        recovery.wait(gone)
