"""Bad files and runs: they give a clear message or are quarantined, and never end the job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from stompica.analysis import batch, discovery
from stompica.analysis.session import AnalysisError
from stompica.recording import RunWriter
from stompica.recording.arrow import schema
from stompica.recording.schema import TABLES
from tests.analysis import synthetic
from tests.analysis.synthetic import Shape

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a complete run."""
    with RunWriter(tmp_path / "runs", synthetic.info(1)) as writer:
        synthetic.repetitions(writer, Shape(), 3, np.random.default_rng(1))
    return writer.folder


def edit(run: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Changes run.json."""
    content = json.loads((run / "run.json").read_text(encoding="utf-8"))
    change(content)
    (run / "run.json").write_text(json.dumps(content), encoding="utf-8")


def reasons(run: Path) -> list[str]:
    """The reasons why files of the run, or the run itself, were quarantined."""
    try:
        return [bad.reason for bad in discovery.discover(str(run.parent)).quarantined]
    except AnalysisError:
        quarantine = run.parent / "_quarantine"
        return [path.read_text(encoding="utf-8").strip() for path in quarantine.rglob("*.reason.txt")]


def test_the_error_for_an_empty_folder_explains_what_a_run_is(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"holds no recorded run: a run is a folder with a run.json"):
        discovery.discover(str(tmp_path))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="missing is not a folder"):
        discovery.discover(str(tmp_path / "missing"))


def test_a_truncated_file_is_quarantined(run: Path) -> None:
    file = run / "latency-000001.parquet"
    file.write_bytes(file.read_bytes()[:-200])
    found = discovery.discover(str(run.parent))
    assert [bad.path for bad in found.quarantined] == [f"{run.name}/latency-000001.parquet"]
    assert not file.exists() and (run.parent / "_quarantine" / run.name / file.name).exists()
    assert found.files["latency"] == [] and len(found.files["repetitions"]) == 1
    assert discovery.discover(str(run.parent)).quarantined == [], "it was moved away"


def test_quarantine_may_be_elsewhere(run: Path, tmp_path: Path) -> None:
    (run / "latency-000001.parquet").write_bytes(b"")
    discovery.discover(str(run.parent), str(tmp_path / "bad"))
    assert (tmp_path / "bad" / run.name / "latency-000001.parquet").exists()


def test_a_file_with_a_wrong_schema_is_quarantined(run: Path) -> None:
    table = pa.table({"run_id": ["a"]}, schema=pa.schema([("run_id", pa.string())], schema(TABLES["diag"]).metadata))
    pq.write_table(table, run / "diag-000001.parquet")
    assert reasons(run) == ["diag-000001.parquet: column run_id is string, not int64"]


def test_a_file_that_lacks_a_column_is_quarantined(run: Path) -> None:
    whole = pq.read_table(run / "throughput-000001.parquet")
    pq.write_table(whole.drop_columns(["deliveries"]), run / "throughput-000001.parquet")
    assert reasons(run) == ["throughput-000001.parquet lacks the column deliveries"]


def test_a_foreign_parquet_file_is_quarantined(run: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), run / "samples-000001.parquet")
    (reason,) = reasons(run)
    assert reason.startswith("samples-000001.parquet was not written by stompica's recorder")


def test_a_file_of_another_format_is_quarantined(run: Path) -> None:
    table = pq.read_table(run / "latency-000001.parquet")
    metadata = {**table.schema.metadata, b"stompica.format": b"2"}
    pq.write_table(table.replace_schema_metadata(metadata), run / "latency-000001.parquet")
    assert reasons(run) == ["latency-000001.parquet has format 2; this version of stompica reads format 1"]


def test_a_file_of_another_run_is_quarantined(run: Path) -> None:
    table = pq.read_table(run / "latency-000001.parquet")
    other = table.set_column(0, table.schema.field("run_id"), pa.array([7] * len(table), pa.int64()))
    pq.write_table(other, run / "latency-000001.parquet")
    (reason,) = reasons(run)
    assert reason.startswith("latency-000001.parquet is of run 7, but is in the folder of run ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.update(format=2), "run.json has format 2; this version of stompica reads format 1"),
        (lambda content: content.pop("machine"), "run.json lacks machine"),
        (lambda content: content["workload"].pop("name"), "run.json lacks workload.name"),
        (lambda content: content["workload"].update(subscribers="x"), "run.json: workload.subscribers is 'x', not int"),
        (lambda content: content.update(settings=["a"]), "run.json: settings is ['a'], not an object of texts"),
        (
            lambda content: content.update(figures={"a": "1"}),
            "run.json: figures is {'a': '1'}, not an object of numbers",
        ),
        (lambda content: content.update(state="done"), "run.json: state is 'done', not one of recording, complete,"),
        (lambda content: content.update(run_id=1 << 60), "run.json: run_id 1152921504606846976 is not between"),
    ],
    ids=["format", "lacks", "lacks-inner", "type", "map", "figures", "state", "id"],
)
def test_a_run_with_a_bad_run_json_is_quarantined(
    run: Path, change: Callable[[dict[str, object]], object], reason: str
) -> None:
    edit(run, change)
    (found,) = reasons(run)
    assert found.startswith(reason)
    assert not run.exists()


def test_a_run_whose_run_json_is_not_json_is_quarantined(run: Path) -> None:
    (run / "run.json").write_text('{"format": 1, ', encoding="utf-8")
    (found,) = reasons(run)
    assert found.startswith("run.json is not JSON: ")


def test_unknown_names_in_run_json_are_ignored(run: Path) -> None:
    edit(run, lambda content: content.update(weather="fine"))
    assert discovery.discover(str(run.parent)).quarantined == []


def test_a_copy_of_a_run_is_quarantined(run: Path) -> None:
    copy = run.parent / f"{run.name}-copy"
    copy.mkdir()
    for file in run.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (reason,) = reasons(run)
    assert reason.startswith(f"is a copy of {run.name}: both have run_id ")


def test_an_interrupted_run_is_shown_as_cut_off(run: Path, spark: SparkSession, tmp_path: Path) -> None:
    edit(run, lambda content: content.update(state="recording", ended_at_us=None))
    (row,) = batch.analyse(spark, str(run.parent), tmp_path / "into").rows["runs"]
    assert row["state"] == "cut off" and row["repetitions"] == 3


def test_a_damaged_page_is_found_by_its_checksum_and_the_job_continues(
    run: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """The footer is valid, so only reading finds the damage; then every page is checked and the job runs again."""
    file = run / "latency-000001.parquet"
    content = bytearray(file.read_bytes())
    group = pq.read_metadata(file).row_group(0)
    column = group.column(pq.read_schema(file).get_field_index("bucket_high_us"))
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    file.write_bytes(bytes(content))
    result = batch.analyse(spark, str(run.parent), tmp_path / "into")
    (bad,) = result.rows["quarantine"]
    assert bad["path"] == f"{run.name}/latency-000001.parquet"
    (row,) = result.rows["runs"]
    assert row["state"] == "complete, without latency-000001.parquet"
    assert row["deliveries_per_s"] is not None and result.rows["percentiles"] == []
