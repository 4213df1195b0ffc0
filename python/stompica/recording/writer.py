"""Writes a run as Parquet files; each has a temporary name until it is complete."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stompica.recording import arrow
from stompica.recording.histogram import Bucket
from stompica.recording.run import RUN_FILE, TEMPORARY, RecordingError, RunInfo, State
from stompica.recording.schema import TABLES, Table

ROWS_MAX = 1_000_000
"""Maximum number of rows of one table in memory; then they are written to a file."""

_DELTA = ("at_us", "latency_us")


class RunWriter:
    """Writes one run's folder, which it creates in `root`.

    Rows are held until `flush`, `close`, or until there are `ROWS_MAX`; a recorder of a live broker calls `flush` at
    intervals, and each call writes one file for each table that has rows. `close` records how the run ended; a folder
    without that is an interrupted run. Use it as a context manager: an exception marks the run as failed.
    RecordingError if a file can't be written. Not thread-safe.
    """

    def __init__(self, root: Path | str, info: RunInfo) -> None:
        self.info = info
        started = datetime.datetime.fromtimestamp(info.started_at_us / 1e6, datetime.timezone.utc)
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{info.workload.name} {info.workload.transport} {info.target.name}")
        self.folder = Path(root) / f"{started:%Y%m%dT%H%M%SZ}-{words}-{info.run_id}"
        with _named(self.folder):
            self.folder.mkdir(parents=True)
        self._held: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._files = dict.fromkeys(TABLES, 0)
        self._schemas = {name: arrow.schema(table) for name, table in TABLES.items()}
        self._write_info()

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Adds rows: a value or a sequence (or a numpy or Arrow array) for each column except `run_id`.

        Single values are repeated for all rows; missing nullable columns are null. RecordingError for a column that is
        missing, unknown, or has values that do not fit its type.
        """
        kind = TABLES[table]
        rows = _rows(columns)
        unknown = set(columns) - set(kind.names)
        if unknown:
            raise RecordingError(f"table {table} has no column {sorted(unknown)[0]}")
        try:
            arrays = [self._array(kind, name, columns, rows) for name in kind.names]
            made = pa.Table.from_arrays(arrays, schema=self._schemas[table])
        except (pa.ArrowException, TypeError) as error:
            raise RecordingError(f"table {table}: {error}") from error
        for name in kind.names:
            if not kind.columns[kind.names.index(name)].nullable and made[name].null_count:
                raise RecordingError(f"table {table}: column {name} may not be empty")
        self._held[table].append(made)
        if sum(part.num_rows for part in self._held[table]) >= ROWS_MAX:
            self._flush(kind)

    def latency(self, repetition: int, series: str, at_us: int, duration_us: int, buckets: Iterable[Bucket]) -> None:
        """Adds the histogram of one interval; an empty one adds no rows."""
        names = _buckets(buckets, "us")
        head = {"repetition": repetition, "series": series, "at_us": at_us, "duration_us": duration_us}
        self.add("latency", {**head, **names})

    def stage(self, at_us: int, shard: int | None, stage: str, buckets: Iterable[Bucket]) -> None:
        """Adds the times, in ns, of one stage since the previous `at_us`; without passes it adds no rows."""
        self.add("stages", {"at_us": at_us, "shard": shard, "stage": stage, **_buckets(buckets, "ns")})

    def diag(
        self,
        at_us: int,
        query: str,
        answer: Mapping[str, Any],
        *,
        shard: int | None = None,
        part_of: Mapping[str, str] | None = None,
    ) -> None:
        """Adds one answer of DIAG, a JSON object: every number in it becomes a row; other values are skipped.

        Names of nested values are joined by dots. The unit is taken from the end of the name. `part_of` maps the name
        of a number to the total that includes it.
        """
        numbers = list(_numbers("", answer))
        names = [name for name, _ in numbers]
        totals = part_of or {}
        self.add(
            "diag",
            {
                "at_us": at_us,
                "query": query,
                "shard": shard,
                "name": names,
                "value": [value for _, value in numbers],
                "unit": [_unit(name) for name in names],
                "part_of": [totals.get(name) for name in names],
            },
        )

    def flush(self) -> None:
        """Writes all rows held to files."""
        for table in TABLES.values():
            self._flush(table)

    def close(self, fault: str = "") -> None:
        """Writes the rows held and the end of the run; `fault` says why it failed. Idempotent."""
        if self.info.state != "recording":
            return
        try:
            self.flush()
        except RecordingError as error:
            fault = fault or str(error)
            raise
        finally:
            ended_at_us = time.time_ns() // 1000 if self.info.ended_at_us is None else self.info.ended_at_us
            state: State = "failed" if fault else "complete"
            self.info = dataclasses.replace(self.info, ended_at_us=ended_at_us, state=state, fault=fault)
            self._write_info()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(RecordingError):  # as on a full disk; the first error is the one to report
            self.close(f"{type(error).__name__}: {error}")

    def _array(self, table: Table, name: str, columns: Mapping[str, Any], rows: int) -> Any:
        kind = self._schemas[table.name].field(name).type
        if name == "run_id":
            return pa.repeat(pa.scalar(self.info.run_id, kind), rows)
        if name not in columns:
            if not table.columns[table.names.index(name)].nullable:
                raise RecordingError(f"table {table.name} needs the column {name}")
            return pa.nulls(rows, kind)
        value = columns[name]
        if _is_sequence(value):
            return pa.array(value, kind) if not isinstance(value, (pa.Array, pa.ChunkedArray)) else value.cast(kind)
        return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)

    def _flush(self, table: Table) -> None:
        held = [part for part in self._held[table.name] if part.num_rows]
        self._held[table.name] = []
        if not held:
            return
        self._files[table.name] += 1
        name = f"{table.name}-{self._files[table.name]:06}.parquet"
        content = pa.concat_tables(held)
        with _whole(self.folder / name) as part:
            write_parquet(content, part)

    def _write_info(self) -> None:
        with _whole(self.folder / RUN_FILE) as part:
            part.write_text(self.info.to_json(), encoding="utf-8")


def write_parquet(content: pa.Table, path: Path) -> None:
    """Writes one table in the recordings' encoding: zstd, page checksums, deltas for increasing columns."""
    encodings = {name: "DELTA_BINARY_PACKED" for name in _DELTA if name in content.column_names}
    pq.write_table(
        content,
        path,
        compression="zstd",
        use_dictionary=[name for name in content.column_names if name not in encodings],
        column_encoding=encodings or None,
        write_page_checksum=True,
    )


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yields a temporary name; the file written there then appears as `path` complete, or not at all."""
    part = path.with_name(f"{TEMPORARY}{path.name}")
    with _named(path):
        try:
            yield part
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns an OSError, as on a full disk, into a RecordingError that names the file."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RecordingError(f"{path} can't be written: {reason}") from error


def _is_sequence(value: Any) -> bool:
    return (isinstance(value, (Sequence, pa.Array, pa.ChunkedArray)) and not isinstance(value, str)) or (
        hasattr(value, "__array__") and getattr(value, "ndim", 0) == 1
    )


def _rows(columns: Mapping[str, Any]) -> int:
    lengths = {len(value) for value in columns.values() if _is_sequence(value)}
    if len(lengths) > 1:
        raise RecordingError(f"columns of different lengths: {sorted(lengths)}")
    return lengths.pop() if lengths else 1


def _buckets(buckets: Iterable[Bucket], unit: str) -> dict[str, list[int]]:
    rows = list(buckets)
    return {
        f"bucket_low_{unit}": [row.low for row in rows],
        f"bucket_high_{unit}": [row.high for row in rows],
        "count": [row.count for row in rows],
    }


def _numbers(path: str, value: Any) -> Iterable[tuple[str, float]]:
    if isinstance(value, (bool, int, float)):
        yield path, float(value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(f"{path}.{name}" if path else str(name), inner)
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _numbers(f"{path}.{index}" if path else str(index), inner)


def _unit(name: str) -> str:
    last = re.split(r"[._-]", name)[-1]
    return last if last in ("bytes", "us", "ns", "ms", "s", "percent", "ratio") else "count"
