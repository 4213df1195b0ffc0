"""The recording format: what is written is read back, and the document describes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from stompica.recording import (
    TABLES,
    Bucket,
    Histogram,
    RecordingError,
    RunInfo,
    RunWriter,
    Table,
    check_run,
    quantile,
    read_info,
    read_table,
    table_of,
    writer,
)
from stompica.recording.histogram import PRECISION_BITS, bounds
from tests.analysis import synthetic

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "recording.md"


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    with RunWriter(tmp_path, synthetic.info(1, settings={"writers": "2"})) as run:
        run.add("samples", {"repetition": 0, "at_us": [5, 6], "latency_us": np.array([7, 8])})
        run.add("process", {"repetition": 0, "at_us": 5, "process": "target", "cpu_us": 9})
        run.latency(1, "write", 10, 1000, [Bucket(256, 257, 3)])
        run.latency(1, "write", 11, 1000, [])
    assert read_info(run.folder) == run.info
    assert (run.info.state, run.info.ended_at_us) == ("complete", synthetic.info(1).ended_at_us)
    identity = {"run_id": run.info.run_id}
    assert read_table(run.folder, "samples").to_pylist() == [
        {**identity, "repetition": 0, "at_us": at, "latency_us": latency} for at, latency in ((5, 7), (6, 8))
    ]
    assert read_table(run.folder, "process").to_pylist() == [
        {**identity, "repetition": 0, "at_us": 5, "process": "target", "cpu_us": 9, "rss_bytes": None, "threads": None}
    ]
    bucket = {"bucket_low_us": 256, "bucket_high_us": 257, "count": 3}
    head = {**identity, "repetition": 1, "series": "write", "at_us": 10, "duration_us": 1000}
    assert read_table(run.folder, "latency").to_pylist() == [{**head, **bucket}]
    assert read_table(run.folder, "diag").num_rows == 0
    found = check_run(run.folder)
    assert found.faults == found.unfinished == [] and found.info == run.info
    assert found.rows == {
        f"{name}-000001.parquet": rows for name, rows in (("latency", 1), ("process", 1), ("samples", 2))
    }


def test_numbers_of_a_diag_answer_become_rows(tmp_path: Path) -> None:
    with RunWriter(tmp_path, synthetic.info(1)) as run:
        answer = {"in": {"bytes": 7, "frames": [1, 2]}, "name": "x", "on": True}
        run.diag(5, "shards", answer, shard=1, part_of={"in.bytes": "network.bytes_in"})
    rows = read_table(run.folder, "diag").to_pylist()
    assert [(row["shard"], row["name"], row["value"], row["unit"], row["part_of"]) for row in rows] == [
        (1, "in.bytes", 7.0, "bytes", "network.bytes_in"),
        (1, "in.frames.0", 1.0, "count", None),
        (1, "in.frames.1", 2.0, "count", None),
        (1, "on", 1.0, "count", None),
    ]


def test_a_nullable_column_may_be_missing(tmp_path: Path) -> None:
    """For example `part_of` in files written before that column existed."""
    with RunWriter(tmp_path, synthetic.info(1)) as run:
        run.diag(5, "network", {"bytes_in": 7})
    path = run.folder / "diag-000001.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["part_of"]), path)
    assert check_run(run.folder).faults == []
    (row,) = read_table(run.folder, "diag").to_pylist()
    assert list(row) == list(TABLES["diag"].names) and row["part_of"] is None and row["value"] == 7.0
    pq.write_table(pq.read_table(path).drop_columns(["unit"]), path)
    assert check_run(run.folder).faults == ["diag-000001.parquet lacks the column unit"]


def test_an_exception_marks_the_run_as_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunWriter(tmp_path, synthetic.info(1)) as run:
        raise RuntimeError("message 17 was lost")
    found = read_info(run.folder)
    assert (found.state, found.fault) == ("failed", "RuntimeError: message 17 was lost")


def test_a_run_that_is_not_closed_is_unfinished(tmp_path: Path) -> None:
    run = RunWriter(tmp_path, synthetic.info(1))
    run.latency(0, "intended", 1, 1, [Bucket(1, 1, 1)])
    run.flush()
    (run.folder / ".part-latency-000002.parquet").write_bytes(b"PAR1")
    assert read_info(run.folder).state == "recording"
    assert read_table(run.folder, "latency").num_rows == 1
    found = check_run(run.folder)
    assert found.faults == [] and found.rows == {"latency-000001.parquet": 1}
    assert found.unfinished == [
        "run.json says that it is still being recorded: it continues, or was interrupted and lacks its last rows",
        ".part-latency-000002.parquet is incomplete: its rows are missing",
    ]


def test_a_full_disk_is_reported_and_recorded_as_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_content: object, path: Path) -> None:
        raise OSError(28, "pyarrow's text", str(path))

    monkeypatch.setattr(writer, "write_parquet", fail)
    for explicit in (True, False):
        run = RunWriter(tmp_path, synthetic.info(int(explicit)))
        run.latency(0, "intended", 1, 1, [Bucket(1, 1, 1)])
        with pytest.raises(RecordingError, match=r"latency-000001\.parquet can't be written: No space left on device"):
            if explicit:
                run.close()
            else:
                with run:
                    run.flush()
        found = read_info(run.folder)
        assert found.state == "failed" and "No space left on device" in found.fault
        assert [file.name for file in run.folder.iterdir()] == ["run.json"]


def test_each_flush_writes_a_file_that_appears_only_when_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    write = writer.write_parquet

    def look(content: object, path: Path) -> None:
        write(content, path)
        seen.append(sorted(file.name for file in path.parent.glob("*.parquet") if not file.name.startswith(".")))

    monkeypatch.setattr(writer, "write_parquet", look)
    with RunWriter(tmp_path, synthetic.info(1)) as run:
        for at_us in (1, 2):
            run.latency(0, "intended", at_us, 1, [Bucket(1, 1, 1)])
            run.flush()
            run.flush()
    assert seen == [[], ["latency-000001.parquet"]], "a file has its name only when it is complete"
    assert [file.name for file in run.folder.glob(".*")] == []


def test_many_rows_are_flushed_automatically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS_MAX", 10)
    run = RunWriter(tmp_path, synthetic.info(1))
    run.add("samples", {"repetition": 0, "at_us": range(10), "latency_us": range(10)})
    assert (run.folder / "samples-000001.parquet").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"repetition": 0, "at_us": 1}, "table samples needs the column latency_us"),
        ({"repetition": 0, "at_us": 1, "latency_us": 1, "x": 1}, "table samples has no column x"),
        ({"repetition": 0, "at_us": [1, 2], "latency_us": [1]}, r"columns of different lengths: \[1, 2\]"),
        ({"repetition": 0, "at_us": [1, 2], "latency_us": ["a", "b"]}, "table samples: "),
        ({"repetition": 0, "at_us": 1, "latency_us": None}, "table samples: column latency_us may not be empty"),
    ],
    ids=["missing", "unknown", "lengths", "type", "empty"],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, columns: dict[str, object], message: str) -> None:
    run = RunWriter(tmp_path, synthetic.info(1))
    with pytest.raises(RecordingError, match=message):
        run.add("samples", columns)


def test_the_check_names_every_fault(tmp_path: Path) -> None:
    with RunWriter(tmp_path, synthetic.info(1)) as run:
        synthetic.diag_rows(run, range(10))
    (run.folder / "diag-000002.parquet").write_bytes(b"PAR1")
    (run.folder / "notes.parquet").write_bytes(b"")
    (run.folder / "run.json").write_text("{}", encoding="utf-8")
    faults = check_run(run.folder).faults
    assert faults[0] == "run.json has format None; this version of stompica reads format 1"
    assert faults[1].startswith("diag-000002.parquet is not a whole Parquet file: ")
    assert faults[2] == "notes.parquet is not a file of a recording"
    with pytest.raises(RecordingError, match=r"is not a run: it has no run\.json"):
        read_info(tmp_path)


@pytest.mark.parametrize("value", [0, 1, 127, 255, 256, 257, 511, 512, 1000, 123_456_789, 2**40 + 12345])
def test_a_bucket_is_narrow_and_contains_its_value(value: int) -> None:
    low, high = bounds(value)
    assert low <= value <= high
    assert high - low <= value / 2 ** (PRECISION_BITS - 1)
    assert bounds(low) == bounds(high) == (low, high)
    assert bounds(high + 1)[0] == high + 1, "buckets are adjacent"


def test_merged_histograms_have_the_sum_of_all_counts() -> None:
    first, second, both = Histogram(), Histogram(), Histogram()
    values = np.random.default_rng(1).lognormal(6, 2, 2000).astype(int).tolist()
    first.record_all(values[:700])
    second.record_all(values[700:])
    both.record_all(values)
    first.merge(second)
    assert list(first) == list(both) and len(first) == 2000
    assert quantile(first, 0.99) == bounds(sorted(values)[1979])[1]


def test_quantiles_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values were counted"):
        quantile([], 0.5)


@pytest.mark.parametrize(
    ("name", "table"),
    [("diag.parquet", "diag"), ("diag-000007.parquet", "diag"), ("diag-x.parquet", None), ("diag.csv", None)],
)
def test_files_are_recognised_by_their_names(name: str, table: str | None) -> None:
    found = table_of(name)
    assert (None if found is None else found.name) == table


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_document_describes_every_column(table: Table) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"### `{table.name}`\n\n{table.doc}\n" in text
    for column in table.columns:
        empty = "yes" if column.nullable else ""
        assert f"| `{column.name}` | {column.type} | {column.unit} | {empty} | {column.doc} |\n" in text


def test_the_document_names_every_field_of_run_json() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [name for name in RunInfo.__dataclass_fields__ if f"`{name}`" not in text]
    assert missing == []
