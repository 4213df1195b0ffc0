"""Results in one file, and the tables made from them."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import render
from stompica.bench import BenchError, results
from stompica.bench.results import Result
from stompica.cli import main
from tests.bench.conftest import RUN, Loadgen

Write = Callable[[str, str], Path]
ROOT = Path(__file__).parent.parent.parent


def result(runs: list[dict[str, Any]], kind: str = "window", **fields: Any) -> Result:
    """A result with all fields that tables show."""
    workload = {"name": "fan", "kind": kind, "min_cpu_s": 1.0, **fields.pop("workload", {})}
    machine = {"cores": 2, "cpu": "Z80", "kernel": "6.1"}
    versions = {"broker": "stompica 1.0", "python": None}
    made = Result(workload, "broker", "tcp", None, [], False, "c0ffee", False, machine, versions, 0, 22 << 20, runs)
    return dataclasses.replace(made, **fields)


def run(**figures: Any) -> dict[str, Any]:
    return {"fault": None, "deliveries_per_s": 2e6, "cpu_us_per_delivery": 0.25, "generator_share": 0.5} | figures


def cells(text: str) -> dict[str, str]:
    """The only row of a table, by column heading."""
    head, rule, row = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines())
    assert all(set(cell) == {"-"} for cell in rule)
    return dict(zip(head, row, strict=True))


def test_a_campaign_leaves_its_results_in_one_file(generator: Loadgen, workloads: Write, tmp_path: Path) -> None:
    folder = workloads("fan", 'relay = true\nconnections = 75\nwanted = { per_s = 5 }\nabout = "x"\n')
    words = ["fan", "--repetitions", "2", "--peers", "relay", "--variant", "a", "--variant", "b:writers=1,ttl=1"]
    assert main(["bench", "run", *words, "--workloads", str(folder), "--into", str(tmp_path / "out")]) == 0
    first, second = results.read(tmp_path / "out" / results.FILE)
    assert [(one.label, one.writers, one.settings) for one in (first, second)] == [("a", None, []), ("b", 1, ["ttl=1"])]
    for one in (first, second):
        assert (one.target, one.transport, one.quick) == ("broker", "tcp", False)
        assert one.workload["connections"] == 75 and one.workload["wanted"] == {"per_s": 5}
        assert one.workload["min_cpu_s"] == 1.0, "defaults are filled in"
        assert [made["deliveries"] for made in one.runs] == [75_000, 75_000]
        assert one.relay is not None and len(one.relay["runs"]) == 2
        assert "series" not in one.runs[0] and "intervals" not in one.runs[0]["latency"]
        assert one.started_unix_s == RUN["begun_unix_us"] // 1_000_000
        assert (one.peak_rss_bytes or 0) > 1_000_000, "the sampled peak, which is higher than the generator's"
        assert one.machine["cores"] >= 1 and (one.versions["broker"] or "").startswith("stompica ")


def test_the_ideal_relay_takes_turns_with_the_broker_if_the_workload_allows_it(
    generator: Loadgen, workloads: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workloads("fan", "relay = true\n")
    folder = workloads("mux", "subscriptions = 75\n")
    words = ["all", "--repetitions", "1", "--peers", "relay", "--workloads", str(folder), "--no-diag"]
    assert main(["bench", "run", *words, "--into", str(tmp_path / "out")]) == 0
    relayed = [Path(call[1]).name for call in generator.calls if "--relay" in call]
    assert relayed == ["fan.toml", "fan.toml"], "a warm-up, and the repetition"
    assert "mux without relay: the workload needs more than bytes forwarded" in capsys.readouterr().err


def test_all_stands_for_the_workloads_without_a_sweep(generator: Loadgen, workloads: Write, tmp_path: Path) -> None:
    workloads("scale", "[sweep]\nbody = [100, 200]\n")
    workloads("one", "")
    folder = workloads("two", "")
    words = ["all", "--repetitions", "1", "--peers", "none", "--workloads", str(folder), "--no-diag"]
    assert main(["bench", "run", *words, "--into", str(tmp_path / "out")]) == 0
    assert [one.workload["name"] for one in results.read(tmp_path / "out" / results.FILE)] == ["one", "two"]


def test_results_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with pytest.raises(BenchError, match=r"results\.jsonl: .*No such file"):
        results.read(path)
    path.write_text('{"format": 7}\n')
    with pytest.raises(BenchError, match=r"results\.jsonl has format 7; this version reads format 1"):
        results.read(path)
    path.write_text('{"format": 1}\n')
    with pytest.raises(BenchError, match=r"results\.jsonl: .*workload"):
        results.read(path)


def test_figures_are_shown_with_sensible_digits() -> None:
    assert [render.rate(value) for value in (12_345_678.0, 66_123.0, 999.0, None)] == ["12.35 M", "66.1 k", "999", "–"]
    assert [render.micros(value) for value in (0.0363, 1.234, 14.04, None)] == ["0.0363", "1.23", "14.0", "–"]
    assert render.generator(result([run(generator_share=0.91)])) == "91 % (busy)"
    assert render.generator(result([run(generator_share=0.79)])) == "79 %"


def test_columns_line_up() -> None:
    assert render.markdown(["a", "long"], [["xyz", "µ"]]) == "| a   | long |\n|-----|------|\n| xyz | µ    |\n"


def test_a_figure_that_is_missed_is_marked() -> None:
    wanted = {"wanted": {"per_s": 3_000_000, "cpu_us": 1.2}}
    shown = cells(render.tables([result([run(shares={"consumed": [3, 4]})], "queue", workload=wanted)]))
    assert shown["wanted"] == "≥ 3.00 M (missed), ≤ 1.2 µs" and shown["least / most"] == "0.75"
    held = {"count": 10, "frame_bytes": 168.0, "resident_bytes_each": 300.0, "resident_bytes_each_over_frame": 132.0}
    held |= {"resident_bytes_each_after": 5.0}
    wanted = {"wanted": {"bytes": 100}}
    shown = cells(render.tables([result([run(held=held)], "backlog", workload=wanted)]))
    assert (shown["over the frame"], shown["wanted"], shown["how many"]) == ("132", "≤ 100 (missed)", "10")


PERSIST = {
    "receipts_per_group": 7.5, "groups_per_s": 6_000.0, "syncs_by_groups_ratio": 1.0, "written_by_sent_ratio": 1.15,
    "bare_write_bytes": 2_200, "bare_per_s": 8_000.0, "bare_p50_us": 100.0, "bare_p99_us": 250.0,
    "groups_by_bare_ratio": 0.75,
}  # fmt: skip


def test_persistent_messages_are_shown_beside_the_bare_loop() -> None:
    window, wanted = {"from_batch": {"p50_us": 150.0, "p99_us": 400.0}}, {"wanted": {"per_s": 40_000}}
    made = [run(deliveries_per_s=45_000.0, window_latency=window, persist=PERSIST)]
    shown = cells(render.tables([result(made, "persist", workload=wanted)]))
    assert (shown["receipts/s"], shown["wanted"], shown["p50 / p99 µs"]) == ("45.0 k", "≥ 40.0 k", "150 / 400")
    assert (shown["groups/s"], shown["bare loop/s (of it)"]) == ("6.0 k", "8.0 k (0.75)")
    assert (shown["syncs a group"], shown["written / sent"], shown["receipts a group"]) == ("1.00", "1.15", "7.5")
    peer = run(deliveries_per_s=4_000.0, window_latency=window)
    shown = cells(render.tables([result([peer], "persist", workload=wanted, target="artemis")]))
    assert (shown["writers"], shown["wanted"], shown["groups/s"]) == ("(artemis)", "–", "–")
    intended = {"from_intended": {"p50_us": 200.0, "p99_us": 500.0, "p999_us": 700.0, "max_us": 900.0}}
    shown = cells(render.tables([result([run(latency=intended, persist=PERSIST)], "persist-rate")]))
    assert (shown["p99 µs"], shown["bare loop p50 / p99"]) == ("500", "100 / 250")


def test_starts_and_backlogs_on_disk_have_tables_of_their_own() -> None:
    wanted = {"wanted": {"per_s": 2_000_000}}
    recovery = {"recovered": 2_000_000, "ready_ms": 800.0, "recovered_per_s": 2.5e6, "recovery_cpu_us_each": 0.35,
                "resident_bytes": 200 << 20, "resident_bytes_each": 88.0, "drained_per_s": 700_000.0}  # fmt: skip
    shown = cells(render.tables([result([run(recovery=recovery)], "recover", workload=wanted)]))
    assert (shown["messages/s"], shown["wanted"], shown["ready ms"]) == ("2.50 M", "≥ 2.00 M", "800")
    assert (shown["resident MiB"], shown["bytes each"], shown["then consumed/s"]) == ("200", "88", "700.0 k")
    held = {"count": 1_000_000, "queued_per_s": 9e5, "consumed_per_s": 1e6, "resident_bytes_each": 35.0}
    stored = {"persistent": True, **wanted}
    shown = cells(render.tables([result([run(held=held)], "backlog", workload=stored)]))
    assert (shown["consumed/s"], shown["wanted"], shown["messages"]) == ("1.00 M", "≥ 2.00 M (missed)", "1.00 M")


def test_medians_are_over_the_repetitions_odd_or_even() -> None:
    for rates, median in (([3e6, 1e6, 2e6], "2.00 M"), ([4e6, 1e6, 2e6, 3e6], "2.50 M")):
        shown = cells(render.tables([result([run(deliveries_per_s=rate, target_cpu_s=1.1) for rate in rates])]))
        assert (shown["deliveries/s"], shown["runs"], shown["peak MiB"]) == (median, f"{len(rates)}", "22")
    shown = cells(render.tables([result([run(target_cpu_s=0.9), run(target_cpu_s=1.1)])]))
    assert shown["runs"] == "2 (short)", "one used less CPU than asked for"


def test_a_failed_repetition_leaves_no_figure() -> None:
    shown = cells(render.tables([result([run(), run(fault="lost")])]))
    assert shown["deliveries/s"] == "**failed**: lost" and shown["CPU µs each"] == "–"


def test_a_ratio_to_a_slow_relay_is_in_parentheses() -> None:
    def ratio(relay: list[dict[str, Any]]) -> str:
        return cells(render.tables([result([run(deliveries_per_s=10e6)], relay={"runs": relay})]))["of relay"]

    assert ratio([run(deliveries_per_s=20e6)]) == "0.50"
    assert ratio([run(deliveries_per_s=12.5e6)]) == "(0.80)"
    assert ratio([run(deliveries_per_s=20e6), run(fault="lost")]) == "–"


def test_only_what_is_between_the_markers_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, document = tmp_path / "results.jsonl", tmp_path / "README.md"
    older, newer = (result([run(deliveries_per_s=rate)], started_unix_s=at) for rate, at in ((1e6, 5), (3e6, 86_400)))
    quick = result([run(deliveries_per_s=9e6)], started_unix_s=100_000, quick=True)
    lines = [json.dumps({"format": 1, **dataclasses.asdict(one)}) for one in (newer, older, quick)]
    file.write_text("\n".join(lines) + "\n")
    document.write_text(f"head\n{render.BEGIN}\nold\n{render.END}\ntail\n")
    assert render.main([str(file), "--into", str(document)]) == 0
    written = document.read_text()
    assert written.startswith(f"head\n{render.BEGIN}\n2 cores of Z80, Linux 6.1; stompica 1.0; commit c0ffee; ")
    assert written.endswith(f"|\n{render.END}\ntail\n") and f"1970-01-02 (UTC). From {file}.\n" in written
    assert "3.00 M" in written and "1.00 M" not in written and "9.00 M" not in written, "the latest, no smoke run"
    document.write_text("no markers")
    assert render.main([str(file), "--into", str(document)]) == 1
    assert "no markers" in capsys.readouterr().err


def test_the_figures_of_the_readme_are_those_of_the_results_it_names(tmp_path: Path) -> None:
    text = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    figures = text.partition(render.BEGIN)[2].partition(render.END)[0]
    named = figures.partition("From ")[2].partition(".\n")[0].split(", ")
    found = [one for name in named for one in results.read(ROOT / name)]
    assert len(found) >= 60
    document = tmp_path / "README.md"
    document.write_text(text, encoding="utf-8")
    render.render([ROOT / name for name in named], document)
    assert document.read_text(encoding="utf-8").replace(f"{ROOT}/", "") == text


def test_the_kept_results_are_those_that_the_documents_quote() -> None:
    """Each kept file belongs to a campaign that bench/README.md names, and each named campaign is kept."""
    listed = subprocess.run(["git", "ls-files", "bench/results"], cwd=ROOT, capture_output=True, text=True, check=True)
    kept = {line.removeprefix("bench/results/") for line in listed.stdout.splitlines()}
    text = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    table = text.partition("| kept in `bench/results` |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(named) == len(set(named)) >= 4
    assert all(any(file == name or file.startswith(f"{name}/") for file in kept) for name in named)
    assert all(any(file == name or file.startswith(f"{name}/") for name in named) for file in kept)
    quoted = set(re.findall(r"`results/([\w./-]+)`", text))
    assert quoted and quoted <= set(named)


def test_the_readme_quotes_the_results_of_the_peers() -> None:
    found = {}
    for one in results.read(ROOT / "bench" / "results" / "2026-11-21" / "peers" / results.FILE):
        rate, each = (
            statistics.median(run[name] for run in one.runs) for name in ("deliveries_per_s", "cpu_us_per_delivery")
        )
        found[one.workload["name"], one.target] = (rate, each)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| one topic to 75 connections"))
    quoted = re.findall(r"([\d.]+) ([Mk]) \(([\d.]+)\)", row)
    assert len(quoted) == 4
    for target, (figure, unit, cpu_us) in zip(("broker", "redis", "artemis", "rabbitmq"), quoted, strict=True):
        rate, each = found["fanout-75", target]
        assert abs(rate / {"M": 1e6, "k": 1e3}[unit] / float(figure) - 1) < 0.01, target
        assert abs(each / float(cpu_us) - 1) < 0.02, target
