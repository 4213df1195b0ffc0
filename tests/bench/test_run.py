"""`stompica bench run`, with this broker and a fake load generator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stompica.bench import figures, procfs
from stompica.bench.campaign import Campaign, Plan, Variant
from stompica.cli import main
from stompica.recording import check_run, read_info, read_table
from tests.bench.conftest import RUN, Loadgen

Write = Callable[[str, str], Path]


@pytest.fixture
def bench(workloads: Write, tmp_path: Path, generator: Loadgen) -> Callable[..., int]:
    folder = workloads("fan", 'transports = ["tcp", "ws"]\nconnections = 75\nbody = 200\n')

    def run(*words: str) -> int:
        return main(["bench", "run", *words, "--workloads", str(folder)])

    return run


def base(tmp_path: Path) -> list[str]:
    return ["fan", "--transport", "tcp", "--peers", "none", "--repetitions", "2", "--into", str(tmp_path / "out")]


def runs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "out" / "runs").iterdir())


def labels(generator: Loadgen) -> list[str]:
    """Ports of the measured calls, as letters in the order of their first use, without the warm-ups."""
    ports = [call[call.index("--connect") + 1] for call in generator.calls]
    order = list(dict.fromkeys(ports))
    seen: set[str] = set()
    found = []
    for port in ports:
        if port in seen:
            found.append("ABC"[order.index(port)])
        seen.add(port)
    return found


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


SPECIAL = {
    "idle": {"connections": 10_000, "user_bytes_per_connection": 710.25, "message_to_all_ms": 72.5},
    "held": {"count": 1_000_000, "frame_bytes": 168.0, "resident_bytes_each_over_frame": 92.0},
    "firehose": {"alone_per_s": 13.3e6, "ratio": 0.99, "slow_ended": "cut"},
}


@pytest.mark.parametrize(
    ("group", "figures", "shown"),
    [
        (
            "idle",
            {"connections": 10_000, "user_bytes_per_connection": 710.25, "message_to_all_ms": 72.5},
            ["10000", "710.2", "72.5"],
        ),
        (
            "held",
            {"held": 1_000_000, "frame_bytes": 168.0, "resident_bytes_each_over_frame": 92.0},
            ["1000000", "168", "92"],
        ),
        ("firehose", {"alone_per_s": 13.3e6, "beside_by_alone_ratio": 0.99}, ["13300000", "0.99", "cut"]),
    ],
)
def test_figures_that_are_not_rates_are_in_run_json_and_shown(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    group: str, figures: dict[str, float], shown: list[str],
) -> None:  # fmt: skip
    generator.says({**RUN, "latency": None, group: SPECIAL[group]})
    assert bench(*base(tmp_path)) == 0
    assert read_info(runs(tmp_path)[0]).figures == figures
    head, row = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    texts = ["slow_ended"] * (group == "firehose")
    assert head[4:-2] == [*figures, *texts] and row[4:-2] == shown, "and no rate, which would be meaningless"


def test_figures_are_medians_over_the_repetitions_and_a_failed_run_has_none() -> None:
    run = [{"idle": {"connect_s": value}, "shares": {"consumed": [1, value]}} for value in (9, 2, 4)]
    assert figures.medians(run) == {"connect_s": 4, "least_by_most_share": 0.25}
    assert figures.medians([*run, {"fault": "lost"}]) == figures.medians([{}]) == figures.medians([]) == {}


def test_latency_under_a_window_is_a_separate_series(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = [{"at_us": 0, "duration_us": 500_000, "window_us": [[300, 70], [4_000, 5]]}]
    whole = {"p50_us": 300.0, "p99_us": 4_000.0, "max_us": 4_100.0}
    generator.says({**RUN, "latency": None, "window_latency": {"from_batch": whole, "intervals": window}})
    assert bench(*base(tmp_path)) == 0
    head, row = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    assert dict(zip(head[-5:], row[-5:], strict=True)) == {
        "window_p50_us": "300", "window_p99_us": "4000", "generator": "20%", "peak_MiB": row[-2], "repetitions": "2/2",
    }  # fmt: skip
    (folder,) = runs(tmp_path)
    rows = [row for row in read_table(folder, "latency").to_pylist() if row["repetition"] == 1]
    assert [(row["series"], row["at_us"], row["bucket_high_us"], row["count"]) for row in rows] == [
        ("window", RUN["begun_unix_us"], 301, 70),
        ("window", RUN["begun_unix_us"], 4_015, 5),
    ]


def test_a_column_shows_what_a_sweep_varied_and_not_what_was_adapted_to_it(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = [*base(tmp_path)[:-1], str(tmp_path / "one"), "--repetitions", "1", "--no-diag"]
    assert bench(*one, "--sweep", "body=100,65536") == 0
    head, small, large = (line.split() for line in capsys.readouterr().out.splitlines()[:3])
    assert head[:3] == ["workload", "body", "over"] and (small[1], large[1]) == ("100", "65536")
    one[-4] = str(tmp_path / "two")
    assert bench(*one, "--sweep", "window=10,1000") == 0
    head, small, large = (line.split() for line in capsys.readouterr().out.splitlines()[:3])
    assert head[:3] == ["workload", "window", "over"] and (small[1], large[1]) == ("10", "1000")


def test_stages_are_timed_only_on_request(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    assert bench(*base(tmp_path), "--variant", "plain", "--variant", "timed:stages=on") == 0
    plain, timed = sorted(runs(tmp_path), key=lambda folder: read_info(folder).label)
    assert "stages" not in read_info(plain).settings and read_info(timed).settings["stages"] == "timed"
    for folder, asked in ((plain, False), (timed, True)):
        assert ("benchmark" in read_table(folder, "diag")["query"].to_pylist()) == asked


def test_a_plan_times_the_stages_of_all_variants_unless_they_override_it() -> None:
    plan = Plan("all", 1, (), stages=True)
    assert plan.times_stages(Variant("stompica")) and not plan.times_stages(Variant("stompica", stages=False))


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


def test_another_installation_is_a_variant(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    variants = ["--variant", "here", "--variant", f"there:python={sys.executable}"]
    assert bench(*base(tmp_path), *variants) == 0
    assert labels(generator) == ["A", "B", "A", "B"]
    commits = {info.label: info.target.commit for info in map(read_info, runs(tmp_path))}
    assert commits.keys() == {"here", "there"}
    assert commits["there"] == "", "the commit of another installation is unknown"


def test_the_folder_of_another_campaign_is_not_changed(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*base(tmp_path)) == 0
    assert bench(*base(tmp_path), "--sweep", "body=5") == 1
    assert "holds another campaign" in capsys.readouterr().err
    assert main(["bench", "run", "--resume", str(tmp_path)]) == 1
    assert "is not a campaign: it has no campaign.json" in capsys.readouterr().err


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


def test_a_broker_that_does_not_start_ends_the_campaign(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*base(tmp_path), "--set", "host=203.0.113.1") == 1
    assert "203.0.113.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["fun"], "unknown workload 'fun'"),
        ([], "name a workload"),
        (["fan", "--peers", "kafka"], "unknown peer 'kafka'; known peers are relay, rabbitmq"),
        (["fan", "--variant", "a:writers=x"], "writers=x is not a whole number of at least 1"),
        (["fan", "--variant", "a:stages=much"], "stages=much is neither on nor off"),
        (["fan", "--variant", "a:python=/no/python"], "python=/no/python is not a program"),
        (["fan", "--variant", "a", "--variant", "a"], "two have the label 'a'"),
        (["fan", "--set", "x"], "--set x: write KEY=VALUE"),
        (["fan", "--sweep", "colour=1"], "'colour' can't be varied"),
        (["fan", "--pin", "all"], "auto, off, or TARGET:GENERATOR"),
        (["fan", "--pin", "0:4095"], "--pin 0:4095: this process may use the cores 0"),
        (["fan", "--every", "0"], "--every 0: a number of seconds from 0.05 to 60"),
        (["fan", "--sweep", "writers=0"], "--sweep writers=0: writers = '0': writers is a whole number from 1 to 64"),
        (["fan", "--sweep", "transport=udp"], "transport = 'udp': transport is tcp or ws"),
        (["fan", "--sweep", "transport=tcp", "--transport", "ws"], "--transport ws: --sweep varies the transport"),
    ],
)
def test_impossible_requests_are_named(
    bench: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], what: str
) -> None:
    assert bench(*words, "--into", str(tmp_path / "out")) == 1
    assert what in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--set", "outbox_limt=1"], "unknown setting 'outbox_limt' (value '1', --set)"),
        (["--variant", "a", "--variant", "b:ttl=soon"], "setting 'TTL' (value 'soon', --variant b)"),
    ],
)
def test_a_setting_that_the_broker_would_refuse_is_named_before_it_starts(
    bench: Callable[..., int], generator: Loadgen, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    words: list[str], what: str,
) -> None:  # fmt: skip
    assert bench(*base(tmp_path), *words) == 2
    assert what in capsys.readouterr().err
    assert generator.calls == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("word", ["0", "-1", "few"])
def test_the_number_of_repetitions_is_at_least_one(
    bench: Callable[..., int], capsys: pytest.CaptureFixture[str], word: str
) -> None:
    with pytest.raises(SystemExit):
        bench("fan", "--repetitions", word)
    assert f"--repetitions: '{word}' is not a whole number of at least 1" in capsys.readouterr().err


def test_a_folder_that_can_not_be_written_is_named(
    bench: Callable[..., int], generator: Loadgen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file is in the way")
    assert bench(*base(tmp_path)) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"stompica: can't write results into {tmp_path / 'out'}: Not a directory; --into")
    assert len(said.splitlines()) == 1 and generator.calls == []


def test_a_full_disk_ends_it_with_one_line(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Campaign, case: object, repetition: int, part: object) -> None:
        raise OSError(28, "No space left on device", "repetitions/0000.json.gz")

    monkeypatch.setattr(Campaign, "keep", full)
    assert bench(*base(tmp_path)) == 1
    assert capsys.readouterr().err.endswith("stompica: repetitions/0000.json.gz: No space left on device\n")


def test_a_missing_package_is_named_with_what_to_install(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "stompica.bench.show", raising=False)
    monkeypatch.delattr("stompica.bench.show", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert bench(*base(tmp_path)) == 1
    said = capsys.readouterr().err
    assert "rich.console" in said and said.endswith("pip install 'stompica[bench]'\n")


def test_resuming_allows_no_other_plan(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("fan", "--resume", str(tmp_path)) == 1
    assert "--resume uses the plan in its folder" in capsys.readouterr().err


def test_the_command_that_builds_the_generator_is_named(
    bench: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STOMPICA_BENCH_LOADGEN", str(tmp_path / "nothing"))
    assert bench("fan") == 1
    assert "there is no such program" in capsys.readouterr().err
    monkeypatch.delenv("STOMPICA_BENCH_LOADGEN")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench("fan") == 1
    assert "cargo build --release -p stompica-loadgen" in capsys.readouterr().err


def test_the_list_names_workloads_and_peers(
    workloads: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = workloads("fan", 'about = "to many"\n[sweep]\nbody = [1, 2]\nwriters = [1, 2]\n')
    assert main(["bench", "list", "--workloads", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "fan       tcp   body × writers (4)  to many" in printed
    assert all(f"\n{peer} " in printed for peer in ("relay", "rabbitmq", "artemis", "redis", "nats", "mosquitto"))


def test_plans_are_read_back(bench: Callable[..., int], generator: Loadgen, tmp_path: Path) -> None:
    assert bench(*base(tmp_path), "--variant", "a:writers=1") == 0
    campaign = Campaign.open(tmp_path / "out")
    assert Campaign.create(tmp_path / "out", campaign.plan).plan == campaign.plan
    assert json.loads((tmp_path / "out" / "campaign.json").read_text())["format"] == 2


def test_without_pyarrow_one_extra_is_named() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from stompica.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", code, "bench", "run", "fanout-75"], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "stompica: stompica.recording needs pyarrow: pip install 'stompica[record]'\n"
