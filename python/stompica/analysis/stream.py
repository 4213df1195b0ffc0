"""The streaming job: follows a folder of growing live recordings and aggregates DIAG's numbers per minute.

    recordings ─► gate: valid files only, bad ones to quarantine ─► ready/ ─► Spark: watermark, minutes ─► per_minute/

Spark reads `ready`, a folder of hard links to files that were read completely and found valid; so a bad file never
reaches the query. A minute is written once, when the watermark has passed it, and never changes. Each batch has its own
folder, which is rewritten when the batch is repeated after a crash; Spark's checkpoint records which batch that is. So
nothing is lost or duplicated, however often the job is killed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from stompica.analysis import frames, series
from stompica.analysis.discovery import QUARANTINE, Quarantined, Store
from stompica.analysis.session import AnalysisError
from stompica.recording import arrow
from stompica.recording.run import RecordingError
from stompica.recording.schema import TABLES, table_of

WATERMARK = "2 minutes"
"""Default limit for how late a file may arrive; a minute is written this long after its end."""

POLL_S = 2.0
"""Interval at which the folder is scanned."""


@dataclass
class Gate:
    """Links each valid DIAG file of `source` into `ready` once; moves bad ones to `quarantine`."""

    source: Path
    ready: Path
    quarantine: Path
    quarantined: list[Quarantined] = field(default_factory=list)
    admitted: int = 0

    def admit(self) -> int:
        """Scans for new files; returns how many were admitted."""
        self.ready.mkdir(parents=True, exist_ok=True)
        new = 0
        for path in sorted(self.source.rglob("diag*.parquet")):
            relative = path.relative_to(self.source)
            if any(part[:1] in (".", "_") for part in relative.parts) or table_of(path.name) is not TABLES["diag"]:
                continue
            if self.ready in path.parents:
                # The results are inside the recordings: admitted files would be admitted again.
                continue
            link = self.ready / "--".join(relative.parts)
            if not link.exists() and self._is_whole(path, relative):
                _link(path, link)
                new += 1
        self.admitted += new
        return new

    def _is_whole(self, path: Path, relative: Path) -> bool:
        try:
            arrow.check(path, TABLES["diag"], path.name, deep=True)
        except RecordingError as error:
            bad = Quarantined(str(relative), str(error))
            Store.at(str(self.source)).set_aside(str(self.quarantine), bad)
            self.quarantined.append(bad)
            return False
        return True


def _link(path: Path, link: Path) -> None:
    """Hard-links the file; across file systems, copies it so that the copy appears complete or not at all."""
    try:
        os.link(path, link)
    except FileExistsError:
        return
    except OSError:
        part = link.with_name(f".{link.name}")
        part.write_bytes(path.read_bytes())
        part.replace(link)


@dataclass
class Following:
    """A running job."""

    gate: Gate
    query: StreamingQuery
    minutes: Path
    """Folder of the results; it has a subfolder for each batch that completed a minute."""

    def process_available(self) -> None:
        """Admits new files and waits until all admitted files have been processed."""
        self.gate.admit()
        self._wait(self.query.processAllAvailable)

    def run(self, stop: threading.Event, poll_s: float = POLL_S) -> None:
        """Admits files until `stop`, every `poll_s` seconds; AnalysisError if the query failed."""
        while not stop.is_set():
            self.gate.admit()
            if not self.query.isActive:
                self._wait(self.query.awaitTermination)
                return
            stop.wait(poll_s)

    def _wait(self, call: Callable[[], object]) -> None:
        try:
            call()
        except PySparkException as error:
            raise AnalysisError(f"the streaming query failed: {' '.join(str(error).split())[:500]}") from error


@contextlib.contextmanager
def following(
    spark: SparkSession,
    source: Path,
    into: Path,
    *,
    quarantine: Path | None = None,
    watermark: str = WATERMARK,
    after_batch: Callable[[int], None] | None = None,
) -> Iterator[Following]:
    """Starts the job that follows `source`, or resumes it from `into`/checkpoint; stops it at the end of the block.

    `after_batch` is called when a batch has been written, before it is committed. AnalysisError if `source` is not a
    folder.
    """
    if not source.is_dir():
        raise AnalysisError(f"{source} is not a folder: give the folder in which recordings grow")
    gate = Gate(source, into / "ready", quarantine or source / QUARANTINE)
    gate.ready.mkdir(parents=True, exist_ok=True)
    minutes = into / "per_minute"

    def write(batch: DataFrame, number: int) -> None:
        # Every batch must be read, even if it completes no minute: otherwise its state would not be saved.
        batch.persist()
        if batch.count():
            target = f"file://{(minutes / f'batch-{number:06}').absolute()}"
            batch.coalesce(1).write.mode("overwrite").parquet(target)
        batch.unpersist()
        if after_batch is not None:
            after_batch(number)

    query = (
        _minutes(spark, gate.ready, watermark)
        .writeStream.outputMode("append")
        .foreachBatch(write)
        .option("checkpointLocation", str((into / "checkpoint").absolute()))
        .queryName("per_minute")
        .start()
    )
    try:
        yield Following(gate, query, minutes)
    finally:
        query.stop()


def _minutes(spark: SparkSession, ready: Path, watermark: str) -> DataFrame:
    rows = spark.readStream.schema(frames.schema(TABLES["diag"])).parquet(f"file://{ready.absolute()}")
    timed = rows.withColumn("at", F.timestamp_micros("at_us")).withWatermark("at", watermark)
    closed = series.per_minute(timed, F.window("at", "1 minute"))
    return closed.withColumn("minute_us", F.unix_micros(F.col("minute_us.start")))


def read_minutes(spark: SparkSession, into: Path) -> DataFrame:
    """Reads the minutes written so far."""
    empty = series.per_minute(frames.read(spark, "diag", []))
    parts = sorted(str(path.parent) for path in (into / "per_minute").glob("*/_SUCCESS"))
    if not parts:
        return empty
    return spark.read.schema(empty.schema).parquet(*[f"file://{Path(part).absolute()}" for part in parts])
