"""The streaming job: nothing is lost or duplicated, whatever happens to it and to its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from stompica.analysis import discovery, frames, series, stream
from stompica.analysis.session import AnalysisError
from stompica.recording import RunWriter
from tests.analysis import synthetic

pytestmark = pytest.mark.timeout(400)

LATE_US = 120_000_000
"""The watermark."""


def closed_minutes(spark: SparkSession, source: Path) -> Counter[Row]:
    """The aggregates of all minutes that the watermark has passed, computed as in the batch job."""
    rows = frames.read(spark, "diag", discovery.discover(str(source)).files["diag"])
    newest = rows.agg({"at_us": "max"}).collect()[0][0]
    closed = series.per_minute(rows).where(f"minute_us + 60000000 <= {newest} - {LATE_US}")
    return Counter(closed.collect())


def written_minutes(spark: SparkSession, into: Path) -> Counter[Row]:
    """The minutes that the streaming job has written."""
    return Counter(stream.read_minutes(spark, into).collect())


@pytest.fixture
def recorder(tmp_path: Path) -> RunWriter:
    """A live recording."""
    return RunWriter(tmp_path / "runs", synthetic.info(1, kind="live"))


def test_minutes_are_complete_when_the_job_is_interrupted(
    spark: SparkSession, recorder: RunWriter, tmp_path: Path
) -> None:
    """Fails between the write of a batch and its commit: the batch is repeated and must not count twice."""
    source, into = tmp_path / "runs", tmp_path / "followed"
    broken = False

    def fail_if_broken(number: int) -> None:
        if broken:
            raise RuntimeError("interrupted")

    with stream.following(spark, source, into, after_batch=fail_if_broken) as job:
        for part in range(3):
            synthetic.diag_rows(recorder, range(part * 150, part * 150 + 150))
            recorder.flush()
            job.process_available()
        assert written_minutes(spark, into) == closed_minutes(spark, source) != Counter()
        broken = True
        synthetic.diag_rows(recorder, range(450, 700))
        recorder.flush()
        with pytest.raises(AnalysisError, match="the streaming query failed"):
            job.process_available()
    broken = False
    synthetic.diag_rows(recorder, range(700, 900))
    recorder.flush()
    with stream.following(spark, source, into, after_batch=fail_if_broken) as job:
        job.process_available()
    assert written_minutes(spark, into) == closed_minutes(spark, source)
    assert max(written_minutes(spark, into).values()) == 1


def test_bad_files_are_quarantined_and_counted_while_the_job_continues(
    spark: SparkSession, recorder: RunWriter, tmp_path: Path
) -> None:
    source, into = tmp_path / "runs", tmp_path / "followed"
    with stream.following(spark, source, into) as job:
        synthetic.diag_rows(recorder, range(200))
        recorder.flush()
        whole = next(recorder.folder.glob("diag-*.parquet")).read_bytes()
        (recorder.folder / "diag-000900.parquet").write_bytes(whole[: len(whole) // 2])
        (recorder.folder / "diag-000901.parquet").write_bytes(b"")
        (recorder.folder / ".part-diag-000902.parquet").write_bytes(whole[:100])
        job.process_available()
        synthetic.diag_rows(recorder, range(200, 400))
        recorder.flush()
        job.process_available()
        assert [Path(bad.path).name for bad in job.gate.quarantined] == ["diag-000900.parquet", "diag-000901.parquet"]
        assert job.gate.admitted == 2
    assert written_minutes(spark, into) == closed_minutes(spark, source) != Counter()
    quarantine = source / "_quarantine" / recorder.folder.name
    assert "not a whole Parquet file" in (quarantine / "diag-000900.parquet.reason.txt").read_text(encoding="utf-8")
    assert (recorder.folder / ".part-diag-000902.parquet").exists(), "an unfinished file is ignored"


def test_a_killed_job_continues_where_it_stopped(spark: SparkSession, recorder: RunWriter, tmp_path: Path) -> None:
    """Kills the process of the job as soon as it has written a minute; the rest is done in this process."""
    source, into = tmp_path / "runs", tmp_path / "followed"
    command = [sys.executable, "-m", "stompica.analysis", "follow", str(source), "--into", str(into)]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            [*command, "--master", "local[1]"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        second, deadline = 0, time.monotonic() + 300
        while not list(into.glob("per_minute/*/_SUCCESS")):
            assert job.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline, "nothing was written"
            synthetic.diag_rows(recorder, range(second, second + 60))
            recorder.flush()
            second += 60
            time.sleep(0.5)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    synthetic.diag_rows(recorder, range(second, second + 300))
    recorder.flush()
    with stream.following(spark, source, into) as resumed:
        resumed.process_available()
    assert written_minutes(spark, into) == closed_minutes(spark, source) != Counter()


def test_results_within_the_recordings_are_not_admitted_again(recorder: RunWriter) -> None:
    """The followed folder may be that of one run, and may contain the results."""
    synthetic.diag_rows(recorder, range(10))
    recorder.flush()
    ready = recorder.folder / "followed" / "ready"
    gate = stream.Gate(recorder.folder, ready, recorder.folder / "_quarantine")
    assert [gate.admit(), gate.admit()] == [1, 0]


def test_a_missing_folder_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(AnalysisError, match="missing is not a folder"),
        stream.following(spark, tmp_path / "missing", tmp_path / "into"),
    ):
        pass
