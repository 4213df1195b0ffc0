"""The command line, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stompica import analysis
from stompica.analysis import Report, __main__


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, object]]:
    """Records the calls of `report`, which is replaced and reports a regression."""
    calls: list[dict[str, object]] = []

    def report(source: str, into: Path, **others: object) -> Report:
        calls.append({"source": source, "into": into, **others})
        return Report(tmp_path / "report.html", "bad", "1 regression.", 1.0)

    monkeypatch.setattr(__main__, "report", report)
    return calls


def test_report_prints_the_verdict(reported: list[dict[str, object]], capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["report", "runs", "--into", "out", "--master", "local[1]"]) == 0
    assert capsys.readouterr().out == "1 regression.\n"
    assert reported == [{"source": "runs", "into": Path("out"), "quarantine": None, "master": "local[1]"}]


def test_a_regression_sets_the_exit_status_on_request(reported: list[dict[str, object]]) -> None:
    assert __main__.main(["report", "runs", "--into", "out", "--fail-on-regression"]) == 3


def test_an_error_is_printed_as_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert __main__.main(["report", "runs", "--into", "out"]) == 1
    assert capsys.readouterr().err == (
        "stompica: Spark needs Java 17 or later, and there is no 'java': install one, or set JAVA_HOME\n"
    )


def test_the_package_exports_what_the_command_uses() -> None:
    assert analysis.__all__ == ["AnalysisError", "Report", "follow", "report"]


def test_without_spark_one_line_names_the_extra(tmp_path: Path) -> None:
    for package in ("matplotlib", "pandas", "pyarrow"):
        (tmp_path / f"{package}.py").touch()
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no such module', name=__name__)")
    found = os.pathsep.join([str(tmp_path), *sys.path])
    for arguments in (
        ["-m", "stompica.analysis", "report", "runs", "--into", "out"],
        ["-m", "stompica.analysis", "--help"],
    ):
        ran = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": found},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == "stompica: stompica.analysis needs pyspark: pip install 'stompica[analysis]'\n"
