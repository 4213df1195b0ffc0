"""`stompica bench run`, with this broker and a fake load generator: what is measured, and what is recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stompica.bench.campaign import Campaign, Plan, Variant
from stompica.cli import main
from stompica.recording import check_run, read_info, read_table
from tests.bench.conftest import RUN, Loadgen, base, labels, runs

Write = Callable[[str, str], Path]


def test_a_run_is_measured_shown_and_recorded(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*base(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split() == [
        "workload", "over", "variant", "writers", "per_s", "cpu_us_each", "p50_us", "p99_us", "max_us", "generator",
        "peak_MiB", "repetitions",
    ]  # fmt: skip
    assert shown.splitlines()[1].split()[:3] == ["fan", "tcp", "stompica"] and "75 k" in shown and "2/2" in shown
    (folder,) = runs(tmp_path)
    found = check_run(folder)
    assert found.faults == [] and found.info is not None
    info = found.info
    assert (info.state, info.target.name, info.baseline, info.kind) == ("complete", "stompica", True, "bench")
    assert (info.workload.name, info.workload.subscribers, info.workload.body_bytes) == ("fan", 75, 200)
    repetitions = read_table(folder, "repetitions").to_pylist()
    assert [row["repetition"] for row in repetitions] == [0, 1]
    assert (repetitions[0]["deliveries"], repetitions[0]["target_cpu_us"], repetitions[0]["duration_us"]) == (
        75_000,
        300_000,
        1_000_000,
    )
    assert read_table(folder, "throughput")["deliveries"].to_pylist() == [45_000, 30_000] * 2
    latency = [row for row in read_table(folder, "latency").to_pylist() if row["repetition"] == 0]
    assert [(row["series"], row["bucket_low_us"], row["bucket_high_us"], row["count"]) for row in latency] == [
        ("intended", 100, 100, 7),
        ("intended", 300, 301, 1),
        ("write", 90, 90, 8),
    ]
    diag = read_table(folder, "diag").to_pylist()
    assert {"network", "shards", "memory", "session"} <= {row["query"] for row in diag}
    processes = read_table(folder, "process").to_pylist()
    assert all(row["cpu_us"] > 0 and row["rss_bytes"] > 1_000_000 for row in processes if row["process"] == "target")
    assert {row["process"] for row in processes} >= {"target"}


def test_the_generator_gets_the_workload_and_the_address(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path
) -> None:
    assert bench(*base(tmp_path), "--every", "0.25", "--sweep", "body=100") == 0
    call = generator.calls[-1]
    assert call[0] == "run" and Path(call[1]).name == "fan.toml" and {"--connect", "--pid"} <= set(call)
    assert call[call.index("--series") + 1] == "250" and call[call.index("--transport") + 1] == "tcp"
    assert "--login" not in call and "--relay" not in call


def test_variants_take_turns(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    assert bench(*base(tmp_path), "--variant", "one:writers=1", "--variant", "two:writers=2,outbox_limit=1MiB") == 0
    assert labels(generator) == ["A", "B", "A", "B"]
    infos = [read_info(folder) for folder in runs(tmp_path)]
    found = {info.label: (info.writers, dict(info.settings), info.baseline) for info in infos}
    assert found == {"one": (1, {}, True), "two": (2, {"outbox_limit": "1MiB"}, False)}
    assert len({info.campaign for info in infos}) == 1


def test_stages_are_timed_only_on_request(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    assert bench(*base(tmp_path), "--variant", "plain", "--variant", "timed:stages=on") == 0
    plain, timed = sorted(runs(tmp_path), key=lambda folder: read_info(folder).label)
    assert "stages" not in read_info(plain).settings and read_info(timed).settings["stages"] == "timed"
    for folder, asked in ((plain, False), (timed, True)):
        assert ("benchmark" in read_table(folder, "diag")["query"].to_pylist()) == asked


def test_a_plan_times_the_stages_of_all_variants_unless_they_override_it() -> None:
    plan = Plan("all", 1, (), stages=True)
    assert plan.times_stages(Variant("stompica")) and not plan.times_stages(Variant("stompica", stages=False))


def test_another_installation_is_a_variant(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    variants = ["--variant", "here", "--variant", f"there:python={sys.executable}"]
    assert bench(*base(tmp_path), *variants) == 0
    assert labels(generator) == ["A", "B", "A", "B"]
    commits = {info.label: info.target.commit for info in map(read_info, runs(tmp_path))}
    assert commits.keys() == {"here", "there"}
    assert commits["there"] == "", "the commit of another installation is unknown"


def test_single_latencies_are_kept_on_request(generator: Loadgen, workloads: Write, tmp_path: Path) -> None:
    folder = workloads("late", 'kind = "latency"\nconnections = 2\n')
    arguments = [*base(tmp_path)[1:], "--samples", "--no-diag", "--workloads", str(folder)]
    campaign = tmp_path / "out"
    assert main(["bench", "run", "late", *arguments]) == 0
    call = generator.calls[-1]
    assert call[call.index("--samples") + 1] == str(
        Campaign.open(campaign).samples(Campaign.open(campaign).plan.cases[0], 1)
    )
    case = Campaign.open(campaign).plan.cases[0]
    sample = (2).to_bytes(8, "little") + (5).to_bytes(8, "little") + (900).to_bytes(8, "little")
    Campaign.open(campaign).samples(case, 0).write_bytes(
        sample + (123).to_bytes(4, "little") + (456).to_bytes(4, "little")
    )
    assert main(["bench", "run", "--resume", str(campaign)]) == 0
    rows = read_table(runs(tmp_path)[0], "samples").to_pylist()
    assert [(row["at_us"] - RUN["begun_unix_us"], row["latency_us"]) for row in rows] == [(5, 123), (900, 456)]
    assert not read_table(runs(tmp_path)[0], "diag").num_rows


def test_plans_are_read_back(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    assert bench(*base(tmp_path), "--variant", "a:writers=1") == 0
    campaign = Campaign.open(tmp_path / "out")
    assert Campaign.create(tmp_path / "out", campaign.plan).plan == campaign.plan
    assert json.loads((tmp_path / "out" / "campaign.json").read_text())["format"] == 2
