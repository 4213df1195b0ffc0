"""The format's Arrow schemas, and the check of a Parquet file against them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stompica.recording.run import RecordingError
from stompica.recording.schema import FORMAT, Table

FORMAT_KEY = b"stompica.format"
TABLE_KEY = b"stompica.table"

_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}

CHECK_BATCH_ROWS = 65536
"""Rows per batch when a file is read for the check."""


def schema(table: Table) -> pa.Schema:
    """The Arrow schema of a table's files, with the format's version in its metadata."""
    fields = [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in table.columns]
    return pa.schema(fields, {FORMAT_KEY: str(FORMAT).encode(), TABLE_KEY: table.name.encode()})


def check(source: Any, table: Table, name: str, *, deep: bool = False, run_id: int | None = None) -> int:
    """Checks that `source` (a path or an open file) is a valid file of `table`; returns its number of rows.

    Reads the footer only; `deep` reads every page and verifies its checksum. If `run_id` is given, the footer's
    statistics must not show another one. RecordingError calls the file `name`.
    """
    try:
        with pq.ParquetFile(source, page_checksum_verification=deep) as file:
            _check_schema(file.schema_arrow, table, name)
            _check_run(file.metadata, file.schema_arrow, run_id, name)
            if deep:
                for batch in file.iter_batches(batch_size=CHECK_BATCH_ROWS):
                    batch.validate()
            return int(file.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise RecordingError(f"{name} is not a whole Parquet file: {reason}") from error


def _check_schema(found: pa.Schema, table: Table, name: str) -> None:
    metadata = found.metadata or {}
    version = metadata.get(FORMAT_KEY)
    if version is None:
        raise RecordingError(f"{name} was not written by stompica's recorder: it does not name its format")
    if version != str(FORMAT).encode():
        raise RecordingError(f"{name} has format {version.decode()}; this version of stompica reads format {FORMAT}")
    for column in table.columns:
        index = found.get_field_index(column.name)
        if index < 0 and column.nullable:
            continue
        if index < 0:
            raise RecordingError(f"{name} lacks the column {column.name}")
        kind = found.field(index).type
        if kind != _TYPES[column.type]:
            raise RecordingError(f"{name}: column {column.name} is {kind}, not {_TYPES[column.type]}")


def _check_run(metadata: Any, found: pa.Schema, run_id: int | None, name: str) -> None:
    if run_id is None:
        return
    index = found.get_field_index("run_id")
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(index).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        for other in (statistics.min, statistics.max):
            if other != run_id:
                raise RecordingError(f"{name} is of run {other}, but is in the folder of run {run_id}")
