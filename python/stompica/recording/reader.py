"""Reads a run's folder, and checks one for defects."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stompica.recording import arrow
from stompica.recording.run import RUN_FILE, TEMPORARY, RecordingError, RunInfo
from stompica.recording.schema import TABLES, table_of


@dataclass
class Check:
    """Result of the check of a run's folder."""

    info: RunInfo | None
    """Content of run.json; None if it can't be read."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows of each valid file."""
    faults: list[str] = field(default_factory=list)
    """Defects, one line each, which names the file. Empty: all files that exist are valid."""
    unfinished: list[str] = field(default_factory=list)
    """Signs of a run that continues or was interrupted, one line each. Empty: it ended properly."""


def read_info(folder: Path | str) -> RunInfo:
    """Reads run.json of a run's folder; RecordingError if it is missing or invalid."""
    try:
        return RunInfo.from_json((Path(folder) / RUN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordingError(f"{folder} is not a run: it has no {RUN_FILE}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{folder}/{RUN_FILE} can't be read: {error}") from error


def read_table(folder: Path | str, name: str) -> pa.Table:
    """Reads all rows of one table of a run, in order of its files; no file gives an empty table.

    RecordingError for a damaged file or one of another format. Holds the whole table in memory.
    """
    table = TABLES[name]
    schema = arrow.schema(table)
    parts = [schema.empty_table()]
    for path in _files(Path(folder)):
        if table_of(path.name) is table:
            arrow.check(path, table, path.name)
            parts.append(_complete(pq.read_table(path), schema))
    return pa.concat_tables(parts)


def check_run(folder: Path | str, *, deep: bool = True) -> Check:
    """Checks a run's folder; reports defects in the result and never raises for them.

    `deep` reads every page of every file and verifies the checksums; without it, only the footers are read.
    """
    folder = Path(folder)
    found = Check(None)
    try:
        found.info = read_info(folder)
    except RecordingError as error:
        found.faults.append(str(error))
    if found.info is not None and found.info.state == "recording":
        found.unfinished.append(
            f"{RUN_FILE} says that it is still being recorded: it continues, or was interrupted and lacks its last rows"
        )
    for path in sorted(folder.glob(f"{TEMPORARY}*")):
        found.unfinished.append(f"{path.name} is incomplete: its rows are missing")
    for path in _files(folder):
        table = table_of(path.name)
        if table is None:
            found.faults.append(f"{path.name} is not a file of a recording")
            continue
        try:
            run_id = None if found.info is None else found.info.run_id
            found.rows[path.name] = arrow.check(path, table, path.name, deep=deep, run_id=run_id)
        except RecordingError as error:
            found.faults.append(str(error))
    return found


def _complete(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the columns of `schema`, in its order; those that an older file lacks are null."""
    for field_ in schema:
        if field_.name not in found.column_names:
            found = found.append_column(field_, pa.nulls(found.num_rows, field_.type))
    return found.select(schema.names).cast(schema)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))
