"""`stompica bench report` and `compare`: stompica.analysis on recorded runs."""

from __future__ import annotations

import contextlib
import csv
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stompica.bench import BenchError
from stompica.bench.campaign import PLAN, RUNS
from stompica.tabular import table

BAD = 3
"""Exit status if the verdict is bad."""

_COLUMNS = ("kind", "run", "base", "metric", "pairs", "base_median", "median", "ratio", "ratio_low", "ratio_high")


def report(folders: Sequence[Path], into: Path, master: str | None) -> tuple[int, str]:
    """Writes the report of all runs below the folders; returns the exit status for its verdict, and the summary."""
    analysis = _analysis()
    with _together(folders) as source:
        done = analysis.report(str(source), into, master=master)
    return (BAD if done.verdict == "bad" else 0), done.summary


def compare(folders: Sequence[Path], master: str | None) -> Iterator[str]:
    """The lines of the table of comparisons, and the verdict."""
    analysis = _analysis()
    with _together(folders) as source, tempfile.TemporaryDirectory() as into:
        done = analysis.report(str(source), Path(into), master=master)
        with (Path(into) / "tables" / "comparisons.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    yield from table(
        [{**{name: _short(row.get(name)) for name in _COLUMNS}, "verdict": row["verdict"]} for row in rows]
    )
    yield done.summary.splitlines()[0] if rows else "nothing to compare: one run of each workload"


def _analysis() -> Any:
    try:
        return importlib.import_module("stompica.analysis")
    except ImportError as error:
        raise BenchError(str(error)) from None


@contextlib.contextmanager
def _together(folders: Sequence[Path]) -> Iterator[Path]:
    """One folder with the runs of all folders. The analysis reads one source, so several are linked into a new one."""
    from stompica.recording.run import RUN_FILE

    for folder in folders:
        if not folder.is_dir():
            raise BenchError(f"no folder {folder}")
        if next(folder.rglob(RUN_FILE), None) is None:
            raise BenchError(f"{folder} holds no recorded run: a run is a folder with a {RUN_FILE}")
    roots = [_runs(folder) for folder in folders]
    if len(roots) == 1:
        yield roots[0]
        return
    with tempfile.TemporaryDirectory(prefix="stompica-runs-", dir=roots[0].parent) as together:
        for number, root in enumerate(roots):
            shutil.copytree(root, Path(together) / str(number), copy_function=_link)
        yield Path(together)


def _runs(folder: Path) -> Path:
    """The folder of a campaign's recordings; for any other folder, the folder itself."""
    return folder / RUNS if (folder / PLAN).is_file() else folder


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _short(value: str | None) -> str:
    try:
        return f"{float(value or ''):.4g}"
    except ValueError:
        return value or ""
