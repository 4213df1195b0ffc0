"""The report: one self-contained HTML file, with the verdict at the top."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from stompica.analysis import charts
from stompica.analysis.batch import Analysis
from stompica.analysis.comparisons import ALPHA, DISPLAY_NAMES
from stompica.analysis.tables import RESULTS, Row
from stompica.recording.schema import Column

ROWS_MAX = 300
"""Maximum rows of a table in the page; the files in `tables` have all rows."""

SWEEPS_MAX = 12

_ORDER = (
    "comparisons",
    "runs",
    "figures",
    "percentiles",
    "bottlenecks",
    "stages",
    "curves",
    "changes",
    "quarantine",
)
_HIDDEN = {"run_id", "base_run_id"}


def write(analysis: Analysis, into: Path) -> Path:
    """Writes `into`/report.html and returns its path."""
    page = into / "report.html"
    into.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(_page(analysis)), encoding="utf-8")
    return page


def verdict(analysis: Analysis) -> tuple[str, str, list[str]]:
    """The verdict: `bad`, `open` or `good`; a sentence; and the findings behind it, one line each."""
    rows = analysis.rows["comparisons"]
    worse = [row for row in rows if row["verdict"] == "worse" and row["kind"] == "variant"]
    suspect = [row for row in rows if row["verdict"] == "suspect"]
    failed = [row for row in analysis.rows["runs"] if row["state"].startswith("failed")]
    lines = [_sentence(row) for row in [*worse, *suspect]]
    lines += [f"{row['run']} {row['state']}" for row in failed]
    if analysis.rows["quarantine"]:
        lines.append(f"{len(analysis.rows['quarantine'])} files were moved to quarantine: see Quarantine")
    compared = sum(row.get("ratio") is not None and row["kind"] == "variant" for row in rows)
    if worse or failed:
        number = f"{len(worse)} regression{'s' * (len(worse) != 1)}"
        ran = f", and {len(failed)} failed run{'s' * (len(failed) != 1)}" if failed else ""
        return "bad", f"{number}{ran}.", lines
    if suspect:
        return "open", "No regression is proven; results differ from earlier runs. Measure both in turns.", lines
    if not compared:
        return "open", "No regression test was possible: no two variants of a workload took enough turns.", lines
    better = [_sentence(row) for row in rows if row["verdict"] == "better" and row["kind"] == "variant"]
    return "good", f"No regression in {compared} comparison{'s' * (compared != 1)}.", [*better, *lines]


def _sentence(row: Row) -> str:
    low, high = row["ratio_low"] - 1, row["ratio_high"] - 1
    interval = f"{1 - row['alpha']:.2%} confidence: between {low:+.1%} and {high:+.1%}"
    name = DISPLAY_NAMES.get(row["metric"], row["metric"])
    return f"{row['run']} compared with {row['base']}: {name} {row['ratio'] - 1:+.1%} ({row['verdict']}; {interval})"


def _page(analysis: Analysis) -> Iterator[str]:
    found = analysis.found
    kind, sentence, lines = verdict(analysis)
    began = min(run.started_at_us for run in found.runs.values())
    ended = max(run.ended_at_us or run.started_at_us for run in found.runs.values())
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<link rel="icon" href="data:,">'
    yield f"<title>stompica: {len(found.runs)} runs</title><style>{_file('report.css')}</style></head><body>"
    yield f"<h1>stompica: {len(found.runs)} recorded run{'s' * (len(found.runs) != 1)}</h1>"
    yield f'<p class="soft">Measured from {_day(began)} to {_day(ended)}.</p>'
    yield f'<section class="verdict {kind}" id="verdict"><p><strong>{html.escape(sentence)}</strong></p>'
    if lines:
        yield "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines[:ROWS_MAX]) + "</ul>"
    yield "</section>"
    yield f"""<p>Runs of one campaign took turns, so their repetitions are compared in pairs; the probability of any
false difference in a campaign is at most {ALPHA:.0%}. Percentiles are exact ranks of raw microseconds or of histogram
buckets (then the bucket's upper bound, less than 1 % above).</p>"""
    for name in _ORDER:
        yield from _section(analysis, name)
    yield from _over_time(analysis)
    yield f"<script>{_file('report.js')}</script></body></html>"


def _section(analysis: Analysis, name: str) -> Iterator[str]:
    rows = analysis.rows[name]
    yield f'<h2 id="{name}">{name.capitalize()}</h2><p>{html.escape(RESULTS[name].doc)}</p>'
    if not rows:
        yield '<p class="soft">None.</p>'
        return
    if name == "percentiles":
        rows = [row for row in rows if row["repetition"] is None]
    yield from _charts(analysis, name)
    yield from _table(name, rows)


def _charts(analysis: Analysis, name: str) -> Iterator[str]:
    rows = analysis.rows[name]
    if name == "runs":
        yield _figure(charts.throughput(rows), "Throughput and CPU: medians over the repetitions.")
    elif name == "percentiles":
        chart = charts.latency_curve(rows, analysis.charts.runs)
        since = "the scheduled time of sending, or, with a window, from the writing of the batch"
        yield _figure(chart, f"Latency from {since}; the latest runs.")
    elif name == "comparisons":
        yield _figure(charts.ratios(rows), "Ratios to the baseline. An interval that includes 1 shows no difference.")
    elif name == "curves":
        for place, sweep in enumerate(analysis.sweeps[:SWEEPS_MAX]):
            yield _figure(charts.sweep(place, sweep), sweep["group"])


def _over_time(analysis: Analysis) -> Iterator[str]:
    yield '<h2 id="time">Over time</h2><p>The latest runs; everything recorded of one run has the same time axis.</p>'
    for run in reversed(analysis.charts.runs):
        seconds, levels = (
            [row for row in rows if row["run_id"] == run.run_id]
            for rows in (analysis.charts.seconds, analysis.charts.levels)
        )
        name = analysis.names[run.run_id]
        chart = charts.over_time(run, name, seconds, levels)
        if chart:
            yield f"<h3>{html.escape(name)}</h3>"
            yield _figure(chart, f"{name}, {_day(run.started_at_us)}")


def _figure(svg: str, caption: str) -> str:
    if not svg:
        return ""
    label = html.escape(caption, quote=True)
    drawn = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"<figure>{drawn}<figcaption>{label}</figcaption></figure>"


def _table(name: str, rows: Sequence[Row]) -> Iterator[str]:
    columns = [column for column in RESULTS[name].columns if column.name not in _HIDDEN]
    files = f'<a href="tables/{name}.csv">CSV</a>, <a href="tables/{name}.parquet">Parquet</a>'
    left_out = f"The first {ROWS_MAX} of {len(rows)} rows; all are in: " if len(rows) > ROWS_MAX else "All rows: "
    yield f'<p class="soft screen">{left_out}{files}</p><div class="table"><table><thead><tr>'
    for column in columns:
        title = html.escape(column.doc + (f" ({column.unit})" if column.unit else ""), quote=True)
        yield f'<th{_class(column)} title="{title}"><button type="button">{column.name}</button></th>'
    yield "</tr></thead><tbody>"
    for row in rows[:ROWS_MAX]:
        yield "<tr>" + "".join(_cell(column, row.get(column.name)) for column in columns) + "</tr>"
    yield "</tbody></table></div>"


def _class(column: Column) -> str:
    return "" if column.type == "string" else ' class="number"'


def _cell(column: Column, value: object) -> str:
    if value is None:
        return f'<td{_class(column)} data-value=""></td>'
    if isinstance(value, float):
        return f'<td class="number" data-value="{value!r}">{_number(value)}</td>'
    if isinstance(value, int):
        return f'<td class="number" data-value="{value}">{value:,}</td>'
    text = html.escape(str(value))
    kind = text if text in ("worse", "better", "suspect") else "long" if len(text) > 40 else ""
    return f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _day(at_us: int) -> str:
    return f"{datetime.datetime.fromtimestamp(at_us / 1e6, datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"


def _file(name: str) -> str:
    return (resources.files("stompica.analysis") / name).read_text(encoding="utf-8")
