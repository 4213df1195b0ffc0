"""The Spark session: local by default, on a cluster when asked, the same job either way."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stompica.errors import StompicaError

DRIVER_MEMORY = "640m"
"""Heap of the driver's virtual machine where nobody sets another; in local mode the executors live in it too."""

_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Recordings are many small files: pack them by size instead of by number, list them without a job of its own.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "20000",
    # Damaged pages are found instead of read as nonsense.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}

_LOCAL = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Most jobs are over before the second compiler pays: without it 1,000 runs take a quarter less CPU, and the hottest
    # loop (20 million samples, once warm) a third more.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class AnalysisError(StompicaError):
    """The analysis can't do what it was asked for; one line that says why and what to do."""


@contextlib.contextmanager
def session(master: str | None = None, config: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session for the time of a `with` block; `master` as spark-submit has it.

    Without `master`, what spark-submit says counts, then `local[*]`. AnalysisError where Spark can't start.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = "local[*]"
    if not submitted and not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise AnalysisError("Spark needs Java 17 or later, and there is no 'java': install one, or set JAVA_HOME")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("stompica")
    if master is not None:
        builder = builder.master(master)
    local = _LOCAL if master is not None and master.startswith("local") else {}
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in {**_ALWAYS, **local, **(config or {})}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise AnalysisError(f"Spark can't start with master {master}: {' '.join(str(error).split())[:300]}") from error
    try:
        prepare(spark)
        yield spark
    finally:
        spark.stop()


def prepare(spark: SparkSession) -> None:
    """Sets what can be set only when it is known where the session runs."""
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * spark.sparkContext.defaultParallelism)))
