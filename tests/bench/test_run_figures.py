"""The figures that `stompica bench run` shows and records, with a fake load generator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stompica.bench import figures
from stompica.recording import read_info, read_table
from tests.bench.conftest import RUN, Loadgen, base, runs

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
