"""Spark's view of the recordings: one data frame for each table, with its explicit schema."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stompica.analysis.discovery import Recordings
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
    """The rows of the given files; without files an empty frame."""
    wanted = schema(TABLES[table])
    if not files:
        # The optimizer recognizes the empty frame and removes all work on it.
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in wanted]
        return spark.range(1).select(*nothing).where("false")
    return spark.read.schema(wanted).parquet(*files)


def runs(spark: SparkSession, found: Recordings) -> DataFrame:
    """`run_id` and `started_at_us` of each run: a small frame for joins."""
    rows = [{"run_id": run.run_id, "started_at_us": run.started_at_us} for run in found.runs.values()]
    # As a literal in the plan: rows from Python would need a Python worker or Arrow, which take long to start.
    parsed = F.from_json(F.lit(json.dumps(rows)), "array<struct<run_id: long, started_at_us: long>>")
    return spark.range(1).select(F.inline(parsed))
