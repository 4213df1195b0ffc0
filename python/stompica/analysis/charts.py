"""The report's charts, as SVG elements that can be combined in one page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stompica.analysis.ranks import QUANTILES, SHOWN
from stompica.analysis.tables import Row
from stompica.recording.run import RunInfo

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stompica",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
}

COLOURS = ("#0b62a4", "#d1495b", "#3a7d44", "#b5651d", "#6a4c93", "#1b9aaa", "#8d6b94", "#5c5c5c")
"""Distinguishable in print and with colour blindness; lines also differ in their dashes."""

DASHES = ("-", "--", "-.", ":")

BARS_MAX = 30


def svg(name: str, width: float, height: float, draw: Callable[[Figure], None]) -> str:
    """A figure as an SVG element whose ids begin with `name`, so that figures in one page don't conflict."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    element = text.getvalue()
    element = element[element.index("<svg") :]
    element = re.sub(r'\bid="', f'id="{name}-', element)
    element = element.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    # As wide as the page allows, up to the drawn width; the height follows from the viewBox.
    opening, rest = element.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    return f'{opening} style="max-width: {width * 6.6:.0f}rem">{rest}'


def throughput(rows: Sequence[Row]) -> str:
    """Deliveries per second and CPU of each run, side by side."""
    shown = [row for row in rows if row["deliveries_per_s"]][-BARS_MAX:]

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        places = np.arange(len(shown))[::-1]
        left.barh(places, [row["deliveries_per_s"] / 1e6 for row in shown], color=COLOURS[0])
        left.set_yticks(places, [row["run"] for row in shown])
        left.set_xlabel("million deliveries per second")
        right.barh(places, [row["cpu_us_per_delivery"] or 0 for row in shown], color=COLOURS[1])
        right.set_xlabel("µs of CPU per delivery")

    return svg("throughput", 9, 0.9 + 0.25 * len(shown), draw) if shown else ""


def latency_curve(rows: Sequence[Row], runs: Sequence[RunInfo]) -> str:
    """Latency over the share of slower deliveries, both logarithmic: each step is one more nine."""
    whole = {row["run_id"]: row for row in rows if row["repetition"] is None and row["series"] in SHOWN}
    shown = [whole[run.run_id] for run in runs if run.run_id in whole]
    slower = [(of - part) / of for part, of in QUANTILES.values()]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, row in enumerate(shown):
            axes.plot(slower, [max(row[name], 1) for name in QUANTILES], marker="o", ms=3, **_look(place, row["run"]))
        axes.set(xscale="log", yscale="log", xlabel="percentile", ylabel="latency, µs")
        axes.set_xticks(slower, ["50", "90", "99", "99.9", "99.99"])
        axes.minorticks_off()
        axes.invert_xaxis()
        axes.legend(fontsize=8)

    return svg("latency", 8, 4, draw) if shown else ""


def over_time(run: RunInfo, name: str, seconds: Sequence[Row], levels: Sequence[Row]) -> str:
    """One run on one time axis: throughput, latency, CPU, memory and DIAG's numbers, as far as recorded."""
    panels: list[tuple[str, list[tuple[str, Sequence[Row], str, float]]]] = [
        ("deliveries/s", [("", seconds, "deliveries_per_s", 1.0)]),
        ("latency, µs", [(part, seconds, f"{part}_us", 1.0) for part in ("p50", "p99", "max")]),
        ("CPU, cores", [("", seconds, "cpu_cores", 1.0)]),
        ("memory, MiB", [("", seconds, "rss_bytes", 2.0**-20)]),
    ]
    shown = [panel for panel in panels if any(row[panel[1][0][2]] is not None for row in seconds)]
    for unit in sorted({row["unit"] for row in levels}):
        names = dict.fromkeys((row["query"], row["name"]) for row in levels if row["unit"] == unit)
        of = {key: [row for row in levels if (row["query"], row["name"]) == key] for key in names}
        shown.append((f"DIAG, {unit}", [(f"{query} {what}", of[query, what], "value", 1.0) for query, what in names]))
    if not shown:
        return ""

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(shown), 1, sharex=True, squeeze=False)
        for axes, (label, lines) in zip(grid[:, 0], shown, strict=True):
            for place, (line, rows, column, scale) in enumerate(lines):
                _line(axes, rows, column, scale, _look(place, line))
            axes.set_ylabel(label)
            if label.startswith("latency"):
                axes.set_yscale("log")
            else:
                axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
            if len(lines) > 1:
                axes.legend(fontsize=7, ncols=3, loc="upper left")
        grid[-1, 0].set_xlabel("seconds since the run began")

    return svg(f"run{run.run_id}", 8, 1.0 + 1.4 * len(shown), draw)


def _line(axes: Axes, rows: Sequence[Row], column: str, scale: float, look: dict[str, Any]) -> None:
    """Draws a line with gaps between repetitions."""
    x: list[float] = []
    y: list[float] = []
    before = None
    for row in rows:
        if row.get("repetition") != before:
            x.append(np.nan)
            y.append(np.nan)
            before = row.get("repetition")
        if row[column] is not None:
            x.append(row["second"])
            y.append(row[column] * scale)
    axes.plot(x, y, marker="o" if len(x) < 40 else None, ms=2.5, lw=1.2, **look)


def sweep(place: int, found: dict[str, Any]) -> str:
    """The points of a sweep and the fitted curve."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        x = np.geomspace(min(found["x"]), max(found["x"]), 100)
        axes.plot(x, found["curve"].at(x), color=COLOURS[1], lw=1.2, label=str(found["curve"]))
        axes.plot(found["x"], found["y"], "o", color=COLOURS[0], ms=4)
        axes.set(xscale="log", yscale="log", xlabel=found["sweep"], ylabel="µs of CPU per delivery")
        axes.legend()

    return svg(f"sweep{place}", 5, 3.2, draw)


def ratios(rows: Sequence[Row]) -> str:
    """The confidence intervals of all comparisons, relative to 1."""
    shown = [row for row in rows if row.get("ratio") is not None][:BARS_MAX]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvline(1, color="#888888", lw=1)
        for place, row in enumerate(reversed(shown)):
            colour = {"worse": COLOURS[1], "better": COLOURS[2]}.get(row["verdict"], COLOURS[7])
            axes.plot([row["ratio_low"], row["ratio_high"]], [place, place], color=colour, lw=2)
            axes.plot(row["ratio"], place, "o", color=colour, ms=4)
        axes.set_yticks(range(len(shown)), [f"{row['run']}: {row['metric']}" for row in reversed(shown)])
        axes.set(xscale="log", xlabel="ratio to the baseline, with its confidence interval")
        axes.xaxis.set_major_formatter("{x:.2g}")
        low, high = axes.get_xlim()
        # Over several powers of ten, minor labels would overlap.
        axes.xaxis.set_minor_formatter("{x:.2g}" if high < 20 * low else "")
        axes.tick_params(axis="x", which="both", labelsize=7)

    return svg("ratios", 9, 0.9 + 0.25 * len(shown), draw) if shown else ""


def _look(place: int, label: str) -> dict[str, Any]:
    dash = DASHES[place // len(COLOURS) % len(DASHES)] if place >= len(COLOURS) else DASHES[place % len(DASHES)]
    return {"color": COLOURS[place % len(COLOURS)], "ls": dash, "label": label or None}
