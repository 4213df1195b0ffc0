"""The report's verdict, and its page in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stompica.analysis import page
from stompica.analysis.batch import Analysis
from stompica.analysis.discovery import Recordings
from stompica.analysis.tables import RESULTS, Row
from tests.analysis import synthetic
from tests.analysis.conftest import Planted
from tests.interop import runtimes

pytestmark = pytest.mark.timeout(400)


def test_the_verdict_names_the_regression_and_nothing_else(planted: Planted) -> None:
    kind, sentence, lines = page.verdict(planted.analysis)
    assert (kind, sentence) == ("bad", "1 regression.")
    assert len(lines) == 1 and lines[0].startswith("fanout-75 tcp B")
    assert re.search(r"CPU per delivery \+1\d\.\d% \(worse; 99\.\d+% confidence: between \+", lines[0])


def analysis(**rows: list[Row]) -> Analysis:
    """An analysis with only these rows."""
    run = synthetic.info(1, state="complete")
    found = Analysis(Recordings({run.run_id: run}), {run.run_id: "run"}, {name: [] for name in RESULTS})
    found.rows.update(rows)
    return found


COMPARED: dict[str, object] = {
    "kind": "variant",
    "run": "B",
    "base": "A",
    "metric": "p50_us",
    "alpha": 0.002,
    "pairs": 10,
    "ratio": 1.5,
    "ratio_low": 1.4,
    "ratio_high": 1.6,
}


@pytest.mark.parametrize(
    ("comparison", "kind", "sentence"),
    [
        ({"verdict": "worse"}, "bad", "1 regression."),
        ({"verdict": "no difference shown"}, "good", "No regression in 1 comparison."),
        ({"verdict": "worse", "kind": "peer"}, "open", "No regression test was possible: "),
        ({"verdict": "suspect", "kind": "earlier"}, "open", "No regression is proven; "),
        ({"verdict": "too few pairs", "ratio": None}, "open", "No regression test was possible: "),
    ],
    ids=["worse", "same", "peer", "suspect", "few"],
)
def test_verdicts(comparison: dict[str, object], kind: str, sentence: str) -> None:
    found = page.verdict(analysis(comparisons=[{**COMPARED, **comparison}]))
    assert found[0] == kind and found[1].startswith(sentence)


def test_a_failed_run_is_a_bad_verdict() -> None:
    found = page.verdict(analysis(runs=[{"run": "fanout-75 tcp", "state": "failed: lost message 17"}]))
    assert found == ("bad", "0 regressions, and 1 failed run.", ["fanout-75 tcp failed: lost message 17"])


def test_names_from_recordings_cannot_put_markup_into_the_page(tmp_path: Path) -> None:
    found = analysis(quarantine=[{"path": "<script>alert(1)</script>", "reason": "a & b"}])
    text = page.write(found, tmp_path).read_text(encoding="utf-8")
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text and "a &amp; b" in text


def test_the_page_in_a_browser(planted: Planted, tmp_path: Path) -> None:
    node = runtimes.program("node")
    runtimes.installed(runtimes.HERE / "js" / "node_modules" / "playwright-core", "playwright-core")
    runtimes.installed(Path(runtimes.CHROMIUM), "Chromium")
    written = page.write(planted.analysis, planted.into)
    script = Path(__file__).parent / "report_page.mjs"
    seen = json.loads(runtimes.run([node, script, written, tmp_path / "page.png"]))
    assert seen["problems"] == [], "errors on the console, or requests to other servers"
    assert seen["verdict"].startswith("1 regression.")
    sections = [name.capitalize() for name in RESULTS]
    assert sorted(seen["headings"]) == sorted([*sections, "Over time"])
    runs_with_series = len([run for run in planted.analysis.charts.runs if run.run_id != planted.peer.run_id])
    assert len(seen["figures"]) >= 4 + runs_with_series and min(seen["figures"]) > 100
    assert "ratio to the baseline" in seen["texts"]
    assert seen["duplicates"] == [], "an id occurs twice"
    costs = [row["cpu_us_per_delivery"] for row in planted.analysis.rows["runs"]]
    ordered = sorted(cost for cost in costs if cost is not None)
    empty = [""] * costs.count(None)
    assert seen["unsorted"] == ["" if cost is None else repr(cost) for cost in costs]
    assert seen["ascending"] == [*map(repr, ordered), *empty]
    assert seen["descending"] == [*map(repr, reversed(ordered)), *empty]
    assert seen["phoneOverflow"] <= 0, "the page is wider than a phone"
    assert seen["printed"] == "none"
    for picture in ("page.png", "page-phone.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
