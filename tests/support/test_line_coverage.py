"""The summary of line coverage counts the broker's own code, and fails if the share is too low."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import line_coverage

SOURCE = """\
use std::io;
#[cfg(test)]
use std::fs;

fn run() -> u8 {
    1
}

#[cfg(any(test, feature = "simulation"))]
#[must_use]
pub fn look(
    at: u8,
) -> u8 {
    at
}

struct Both {
    #[cfg(test)]
    double: u8,
    real: u8,
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs() {}
}
"""


def write_report(root: Path, hits: dict[str, list[int]]) -> Path:
    """An lcov report in which these lines of these files were counted: run if positive, not run if negative."""
    lines = []
    for name, numbers in hits.items():
        path = root / line_coverage.SOURCES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
        lines += [f"SF:{path}", *(f"DA:{abs(number)},{int(number > 0)}" for number in numbers), "end_of_record"]
    report = root / "lcov"
    report.write_text("\n".join(lines))
    return report


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    root: Path,
    hits: dict[str, list[int]],
    *more: str,
) -> tuple[int, str]:
    """The exit status of the script and its output."""
    report = write_report(root, hits)
    monkeypatch.chdir(root)
    monkeypatch.setattr("sys.argv", ["line_coverage", str(report), *more])
    status = line_coverage.main()
    return status, capsys.readouterr().out


def test_items_that_only_tests_have_are_found() -> None:
    assert line_coverage.test_only_lines(SOURCE) == {2, 3, *range(9, 16), 18, 19, *range(23, 28)}


def test_a_required_folder_below_the_mark_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hits = {"queue/home.rs": [5, 6, -7], "router/mod.rs": [5, 6, 7]}
    status, text = run(monkeypatch, capsys, tmp_path, hits, "--require", "queue", "router", "--uncovered")
    assert status == 1
    assert "queue/home.rs (2 of 3): 7" in text
    status, _ = run(monkeypatch, capsys, tmp_path, hits, "--require", "router")
    assert status == 0


def test_lines_of_tests_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hits = {"queue/home.rs": [5, -14, -26], "queue/tests.rs": [-5], "queue/home_model.rs": [-5]}
    hits |= {"simulation/client.rs": [-5], "connection/fixtures.rs": [-5]}
    status, text = run(monkeypatch, capsys, tmp_path, hits, "--require", "queue", "--percent", "100")
    assert status == 0, text
    assert text.split()[-4:] == ["all", "1", "1", "100.0"]


def test_a_folder_that_the_report_lacks_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, capsys, tmp_path, {"queue/home.rs": [5]}, "--require", "router")[0] == 1


def test_uncovered_lines_are_ranges_of_counted_lines() -> None:
    assert line_coverage.ranges([3, 7, 9, 12], [1, 3, 7, 8, 9, 12]) == "3-7 9-12"
