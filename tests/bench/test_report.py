"""`stompica bench report` and `compare` pass the right folders to the analysis, which is replaced here."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stompica.cli import main

TABLE = "kind,run,base,metric,pairs,base_median,median,ratio,verdict\nvariant,b,a,per_s,5,100,150,1.5,better\n"


class Analysis(types.ModuleType):
    """Replaces stompica.analysis: records what it is called with."""

    def __init__(self) -> None:
        super().__init__("stompica.analysis")
        self.verdict = "good"
        self.seen: list[str] = []

    def report(self, source: str, into: Path, *, master: str | None = None) -> Any:
        self.seen = sorted(str(path.relative_to(source)) for path in Path(source).rglob("run.json"))
        (into / "tables").mkdir(parents=True)
        (into / "tables" / "comparisons.csv").write_text(TABLE)
        return types.SimpleNamespace(verdict=self.verdict, summary=f"all is {self.verdict}\nreport: {into}")


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> Analysis:
    fake = Analysis()
    monkeypatch.setitem(sys.modules, "stompica.analysis", fake)
    return fake


@pytest.fixture
def campaign(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        folder = tmp_path / name
        (folder / "runs" / f"run-of-{name}").mkdir(parents=True)
        (folder / "runs" / f"run-of-{name}" / "run.json").write_text("{}")
        (folder / "campaign.json").write_text("{}")
        return folder

    return make


def test_a_report_is_made_from_the_recordings_of_a_campaign(
    analysis: Analysis, campaign: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = campaign("one")
    assert main(["bench", "report", str(folder)]) == 0
    assert analysis.seen == ["run-of-one/run.json"]
    assert capsys.readouterr().out == f"all is good\nreport: {folder / 'report'}\n"


def test_several_campaigns_become_one_source_and_stay_unchanged(
    analysis: Analysis, campaign: Callable[[str], Path], tmp_path: Path
) -> None:
    folders = [campaign("one"), campaign("two")]
    assert main(["bench", "report", *map(str, folders), "--into", str(tmp_path / "into")]) == 0
    assert analysis.seen == ["0/run-of-one/run.json", "1/run-of-two/run.json"]
    assert sorted(path.name for path in folders[0].iterdir()) == ["campaign.json", "runs"]


def test_a_regression_sets_the_status_on_request(analysis: Analysis, campaign: Callable[[str], Path]) -> None:
    analysis.verdict = "bad"
    folder = str(campaign("one"))
    assert main(["bench", "report", folder, "--into", f"{folder}/a"]) == 0
    assert main(["bench", "report", folder, "--into", f"{folder}/b", "--fail-on-regression"]) == 3


def test_a_comparison_is_printed_as_a_table(
    analysis: Analysis, campaign: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "compare", str(campaign("one"))]) == 0
    heading, row, verdict = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["kind", "run", "base", "metric"] and row.split()[-1] == "better"
    assert verdict == "all is good"


def test_missing_packages_and_folders_are_named(
    campaign: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "stompica.analysis", None)
    assert main(["bench", "report", str(campaign("one"))]) == 1
    assert "stompica.analysis" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "stompica.analysis", Analysis())
    assert main(["bench", "compare", str(tmp_path / "none")]) == 1
    assert "no folder" in capsys.readouterr().err


def test_a_folder_without_a_run_is_named_before_anything_starts(
    analysis: Analysis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "report", str(tmp_path)]) == 1
    assert f"{tmp_path} holds no recorded run" in capsys.readouterr().err
    assert analysis.seen == [] and list(tmp_path.iterdir()) == []
