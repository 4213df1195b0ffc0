"""Recorded runs: a folder with run.json and Parquet files, in the format of docs/recording.md.

`RunWriter` writes one; `read_info`, `read_table` and `check_run` read it. Needs pyarrow, the extra `stompica[record]`.
"""

from __future__ import annotations

try:
    import pyarrow as _pyarrow
except ImportError as error:
    raise ImportError("stompica.recording needs pyarrow: pip install 'stompica[record]'") from error

from stompica.recording.histogram import Bucket, Histogram, quantile
from stompica.recording.reader import Check, check_run, read_info, read_table
from stompica.recording.run import Machine, RecordingError, RunInfo, Target, Workload, new_run_id
from stompica.recording.schema import FORMAT, TABLES, Column, Table, table_of
from stompica.recording.writer import RunWriter

del _pyarrow

__all__ = [
    "FORMAT",
    "TABLES",
    "Bucket",
    "Check",
    "Column",
    "Histogram",
    "Machine",
    "RecordingError",
    "RunInfo",
    "RunWriter",
    "Table",
    "Target",
    "Workload",
    "check_run",
    "new_run_id",
    "quantile",
    "read_info",
    "read_table",
    "table_of",
]
