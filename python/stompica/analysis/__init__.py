"""Analysis of recorded runs with Spark: `report` writes tables and one HTML page, `follow` aggregates live recordings.

Needs the extra `stompica[analysis]` and Java 17 or later. `python -m stompica.analysis` is the command line.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path

try:
    import matplotlib as _matplotlib
    import pandas as _pandas
    import pyarrow as _pyarrow
    import pyspark as _pyspark
except ImportError as error:
    needs = f"stompica.analysis needs {error.name}: pip install 'stompica[analysis]'"
    # sys.argv while `python -m` locates the module (docs.python.org, sys.argv): `__main__` would run too late.
    if sys.argv[:1] == ["-m"]:
        sys.exit(f"stompica: {needs}")
    raise ImportError(needs) from error

from stompica.analysis import batch, page, stream
from stompica.analysis.session import AnalysisError, session

del _matplotlib, _pandas, _pyarrow, _pyspark

__all__ = ["AnalysisError", "Report", "follow", "report"]


@dataclass(frozen=True)
class Report:
    """A finished report."""

    page: Path
    """The HTML file; its tables are in the folder `tables` beside it."""
    verdict: str
    """`good`, `bad` (a regression or a failed run), or `open` (nothing to compare, or only earlier runs differ)."""
    summary: str
    """The verdict in words, and the path of the page."""
    took_s: float
    """Duration of the job in seconds, without starting the Spark session and drawing the charts."""


def report(source: str, into: Path | str, *, quarantine: str | None = None, master: str | None = None) -> Report:
    """Analyses all runs below `source`; writes `into`/report.html and `into`/tables. AnalysisError if that fails."""
    into = Path(into)
    with session(master) as spark:
        analysis = batch.analyse(spark, source, into, quarantine)
    written = page.write(analysis, into)
    verdict, sentence, lines = page.verdict(analysis)
    summary = "\n".join([sentence, *(f"  {line}" for line in lines), f"report: {written}"])
    return Report(written, verdict, summary, analysis.took_s)


def follow(
    source: Path | str,
    into: Path | str,
    stop: threading.Event | None = None,
    *,
    quarantine: str | None = None,
    master: str | None = None,
    watermark: str = stream.WATERMARK,
    once: bool = False,
) -> int:
    """Follows the live recordings below `source` until `stop`; with `once`, processes what exists and returns.

    Writes aggregates per minute to `into`/per_minute, continuing where the last call ended. Returns the number of files
    moved to quarantine. AnalysisError if it can't start or the query fails.
    """
    folder = None if quarantine is None else Path(quarantine)
    with (
        session(master) as spark,
        stream.following(spark, Path(source), Path(into), quarantine=folder, watermark=watermark) as job,
    ):
        if once:
            job.process_available()
        else:
            job.run(stop or threading.Event())
        return len(job.gate.quarantined)
