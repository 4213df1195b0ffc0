"""Reads a run's folder back, and says what is wrong with one."""

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
    """What the check of a run's folder found."""

    info: RunInfo | None
    """What run.json says, where it can be read."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each whole file."""
    faults: list[str] = field(default_factory=list)
    """What is wrong, one line each, each naming its file. Empty: what is there is whole."""
    unfinished: list[str] = field(default_factory=list)
    """What tells of a run that goes on or was cut off, one line each. Empty: it has ended in order."""


def read_info(folder: Path | str) -> RunInfo:
    """run.json of a run's folder; RecordingError where there is none or it can't be used."""
    try:
        return RunInfo.from_json((Path(folder) / RUN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordingError(f"{folder} is not a run: it has no {RUN_FILE}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{folder}/{RUN_FILE} can't be read: {error}") from error


def read_table(folder: Path | str, name: str) -> pa.Table:
    """All rows of one table of a run, in order of its files; empty where there is no such file.

    RecordingError for a file that is not whole, or is of another format. Holds the whole table in memory.
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
    """Looks through a run's folder; never raises for what it finds there.

    `deep` reads every page of every file and verifies the checksums; otherwise footers only.
    """
    folder = Path(folder)
    found = Check(None)
    try:
        found.info = read_info(folder)
    except RecordingError as error:
        found.faults.append(str(error))
    if found.info is not None and found.info.state == "recording":
        found.unfinished.append(
            f"{RUN_FILE} says that it is still being recorded: it goes on, or was cut off and lacks its last rows"
        )
    for path in sorted(folder.glob(f"{TEMPORARY}*")):
        found.unfinished.append(f"{path.name} was begun and is not whole: its rows are missing")
    for path in _files(folder):
        table = table_of(path.name)
        if table is None:
            found.faults.append(f"{path.name} is no file of a recording")
            continue
        try:
            run_id = None if found.info is None else found.info.run_id
            found.rows[path.name] = arrow.check(path, table, path.name, deep=deep, run_id=run_id)
        except RecordingError as error:
            found.faults.append(str(error))
    return found


def _complete(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, in its order; those that an older file lacks are empty."""
    for field_ in schema:
        if field_.name not in found.column_names:
            found = found.append_column(field_, pa.nulls(found.num_rows, field_.type))
    return found.select(schema.names).cast(schema)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))
