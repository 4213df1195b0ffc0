"""The Spark session: local by default, or on a cluster, for the same job."""

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
"""Default heap of the driver's virtual machine; in local mode the executors share it."""

_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Recordings are many small files: pack them by size instead of by number, and list them without a separate job.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "20000",
    # Detect damaged pages instead of reading wrong values.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}

_LOCAL = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Most jobs end before the optimizing compiler pays off: without it 1,000 runs take a quarter less CPU, and the
    # hottest loop (20 million samples, once warm) a third more.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class AnalysisError(StompicaError):
    """The analysis failed; the message is one line with the reason and the remedy."""


@contextlib.contextmanager
def session(master: str | None = None, config: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session for a `with` block; `master` as for spark-submit.

    Without `master`, that of spark-submit is used, else `local[*]`. AnalysisError if Spark can't start.
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
    """Sets options that depend on where the session runs."""
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * spark.sparkContext.defaultParallelism)))
