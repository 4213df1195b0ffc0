"""Finds the runs in a folder, and moves invalid recordings to quarantine before Spark reads them.

A bad file never ends the job: it is moved to the quarantine folder, next to a file with the reason, and counted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException, fs

from stompica.analysis.session import AnalysisError
from stompica.recording import arrow
from stompica.recording.run import RUN_FILE, RecordingError, RunInfo
from stompica.recording.schema import TABLES, table_of

QUARANTINE = "_quarantine"
"""Default name of the quarantine folder within the recordings."""

READERS = 4
"""Files checked in parallel; most of that is waiting for I/O."""


@dataclass(frozen=True)
class Quarantined:
    """A file or run that was moved to quarantine."""

    path: str
    """Its original path, relative to the recordings."""
    reason: str


@dataclass
class Recordings:
    """The valid runs and files of a folder."""

    runs: dict[int, RunInfo] = field(default_factory=dict)
    folders: dict[int, str] = field(default_factory=dict)
    """Folder of each run, relative to the recordings."""
    files: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in TABLES})
    """Valid files of each table, by their names in Spark."""
    owners: dict[str, int] = field(default_factory=dict)
    """The run of each of these files."""
    sampled: set[int] = field(default_factory=set)
    """Runs with raw samples."""

    repetitions: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the table `repetitions`, which is small enough to be read without a job."""
    bucket_rows: dict[int, int] = field(default_factory=dict)
    """Number of histogram rows of each run."""
    quarantined: list[Quarantined] = field(default_factory=list)

    def files_of(self, table: str, runs: Collection[int]) -> list[str]:
        """Returns the table's files of the given runs."""
        return [file for file in self.files[table] if self.owners[file] in runs]


@dataclass(frozen=True)
class Store:
    """A folder on any file system, by its name in Spark: a path, or a URI such as `s3a://bucket/runs`."""

    files: fs.FileSystem
    root: str
    prefix: str
    """Prefix that turns a path of the file system into a name for Spark."""

    @staticmethod
    def at(location: str) -> Store:
        """Opens the store at `location`. AnalysisError if the file system is unknown or can't be reached."""
        scheme, separator, _ = location.partition("://")
        if not separator:
            return Store(fs.LocalFileSystem(), posixpath.abspath(location), "file://")
        try:
            # Spark's s3a is Arrow's s3.
            found, path = fs.FileSystem.from_uri("s3" + location[3:] if scheme == "s3a" else location)
        except (ArrowException, OSError) as error:
            raise AnalysisError(f"{location}: {error}") from error
        host = location.split("://", 1)[1].split("/", 1)[0]
        return Store(found, path.rstrip("/"), f"{scheme}://{host if scheme == 'hdfs' else ''}")

    def spark_name(self, path: str) -> str:
        """A file's name for Spark, with the characters of patterns escaped, since Spark reads names as patterns."""
        return self.prefix + "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in path)

    def set_aside(self, quarantine: str, found: Quarantined) -> None:
        """Moves a file or folder to `quarantine` and writes the reason next to it."""
        target = posixpath.join(quarantine, found.path)
        self.files.create_dir(posixpath.dirname(target), recursive=True)
        source = posixpath.join(self.root, found.path)
        if self.files.get_file_info(source).type != fs.FileType.NotFound:
            self.files.move(source, target)
        with self.files.open_output_stream(f"{target}.reason.txt") as stream:
            stream.write(f"{found.reason}\n".encode())

    def listing(self) -> list[fs.FileInfo]:
        """Everything below the root but hidden and quarantined files, sorted. AnalysisError if it is not a folder."""
        if self.files.get_file_info(self.root).type != fs.FileType.Directory:
            raise AnalysisError(f"{self.root} is not a folder: give the folder that holds the recorded runs")
        found = self.files.get_file_info(fs.FileSelector(self.root, recursive=True))
        shown = [info for info in found if not _hidden(self.relative(info.path))]
        return sorted(shown, key=lambda info: str(info.path).split("/"))

    def relative(self, path: str) -> str:
        """A path relative to the root."""
        return path.removeprefix(self.root).lstrip("/")


def _hidden(relative: str) -> bool:
    return any(part[:1] in (".", "_") for part in relative.split("/"))


def discover(location: str, quarantine: str | None = None, *, deep: bool = False) -> Recordings:
    """Checks every file below `location` and moves the bad ones to quarantine.

    `deep` reads all pages, not only the footers. AnalysisError if there is no run.
    """
    store = Store.at(location)
    folder = posixpath.join(store.root, QUARANTINE) if quarantine is None else Store.at(quarantine).root
    found = Recordings()
    listing = store.listing()
    with ThreadPoolExecutor(READERS) as readers:
        _discover_runs(store, listing, found, readers)
        _discover_files(store, listing, found, readers, deep)
    for bad in found.quarantined:
        store.set_aside(folder, bad)
    if not found.runs:
        bad_ones = f" ({len(found.quarantined)} bad ones are in {folder})" if found.quarantined else ""
        raise AnalysisError(f"{location} holds no recorded run{bad_ones}: a run is a folder with a {RUN_FILE}")
    return found


def _discover_runs(store: Store, listing: list[fs.FileInfo], found: Recordings, readers: ThreadPoolExecutor) -> None:
    def read(info: fs.FileInfo) -> RunInfo | RecordingError:
        try:
            with store.files.open_input_stream(info.path) as stream:
                return RunInfo.from_json(bytes(stream.read()).decode())
        except (RecordingError, UnicodeDecodeError, OSError) as error:
            return error if isinstance(error, RecordingError) else RecordingError(f"{RUN_FILE} can't be read: {error}")

    paths = [info for info in listing if info.base_name == RUN_FILE and info.type == fs.FileType.File]
    for info, run in zip(paths, readers.map(read, paths), strict=True):
        folder = posixpath.dirname(store.relative(info.path))
        if isinstance(run, RecordingError):
            found.quarantined.append(Quarantined(folder, str(run)))
        elif run.run_id in found.runs:
            other = found.folders[run.run_id]
            found.quarantined.append(Quarantined(folder, f"is a copy of {other}: both have run_id {run.run_id}"))
        else:
            found.runs[run.run_id] = run
            found.folders[run.run_id] = folder


def _discover_files(
    store: Store, listing: list[fs.FileInfo], found: Recordings, readers: ThreadPoolExecutor, deep: bool
) -> None:
    owners = {folder: run for run, folder in found.folders.items()}

    def check(info: fs.FileInfo) -> str | int:
        table = table_of(info.base_name)
        if table is None:
            return f"{info.base_name} is not a file of a recording"
        try:
            run_id = owners[posixpath.dirname(store.relative(info.path))]
            with store.files.open_input_file(info.path) as file:
                return arrow.check(file, table, info.base_name, deep=deep, run_id=run_id)
        except (RecordingError, OSError) as error:
            return str(error)

    files = [info for info in _parquet(listing) if posixpath.dirname(store.relative(info.path)) in owners]
    found.bucket_rows = dict.fromkeys(owners.values(), 0)
    for info, checked in zip(files, readers.map(check, files), strict=True):
        path = store.relative(info.path)
        table = table_of(info.base_name)
        if isinstance(checked, str) or table is None:
            found.quarantined.append(Quarantined(path, str(checked)))
            continue
        if table.name == "latency":
            found.bucket_rows[owners[posixpath.dirname(path)]] += checked
        found.files[table.name].append(store.spark_name(info.path))
        found.owners[store.spark_name(info.path)] = owners[posixpath.dirname(path)]
        if table.name == "samples":
            found.sampled.add(owners[posixpath.dirname(path)])
    _read_repetitions(store, files, found, readers)


def _read_repetitions(store: Store, files: list[fs.FileInfo], found: Recordings, readers: ThreadPoolExecutor) -> None:
    whole = set(found.files["repetitions"])
    paths = [info.path for info in files if store.spark_name(info.path) in whole]
    columns = list(TABLES["repetitions"].names)
    for table in readers.map(lambda path: pq.read_table(path, columns=columns, filesystem=store.files), paths):
        found.repetitions += table.to_pylist()


def _parquet(listing: Iterable[fs.FileInfo]) -> list[fs.FileInfo]:
    return [info for info in listing if info.type == fs.FileType.File and info.extension == "parquet"]
