"""What `stompica bench` refuses, and how it says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stompica.bench.campaign import Campaign
from stompica.cli import main
from tests.bench.conftest import Loadgen, base

Write = Callable[[str, str], Path]


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


def test_without_pyarrow_one_extra_is_named() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from stompica.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", code, "bench", "run", "fanout-75"], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "stompica: stompica.recording needs pyarrow: pip install 'stompica[record]'\n"
