"""Spark's view of the recordings: one data frame for each table, with its explicit schema."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from stompica.analysis.intake import Intake
from stompica.recording.schema import TABLES, Table

_TYPES = {
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float64": T.DoubleType(),
    "string": T.StringType(),
}


def schema(table: Table) -> T.StructType:
    """The Spark schema of a table's files."""
    return T.StructType([T.StructField(column.name, _TYPES[column.type], column.nullable) for column in table.columns])


def read(spark: SparkSession, table: str, files: Sequence[str]) -> DataFrame:
    """The rows of the named files; none where there is no file."""
    wanted = schema(TABLES[table])
    if not files:
        return spark.createDataFrame([], wanted)
    return spark.read.schema(wanted).parquet(*files)


def runs(spark: SparkSession, found: Intake) -> DataFrame:
    """`run_id`, `started_at_us`, `has_samples` of each run: small, to be joined with the rest."""
    rows = [(run.run_id, run.started_at_us, run.run_id in found.sampled) for run in found.runs.values()]
    return spark.createDataFrame(rows, "run_id long, started_at_us long, has_samples boolean")
