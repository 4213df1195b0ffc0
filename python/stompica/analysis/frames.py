"""Spark's view of the recordings: one data frame for each table, with its explicit schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
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
        # The optimizer sees that nothing is there, and leaves out all that would be done with it.
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in wanted]
        return spark.range(1).select(*nothing).where("false")
    return spark.read.schema(wanted).parquet(*files)


def runs(spark: SparkSession, found: Intake) -> DataFrame:
    """`run_id`, `started_at_us`, `has_samples` of each run: small, to be joined with the rest."""
    known = found.runs.values()
    columns = {
        "run_id": pa.array([run.run_id for run in known], pa.int64()),
        "started_at_us": pa.array([run.started_at_us for run in known], pa.int64()),
        "has_samples": pa.array([run.run_id in found.sampled for run in known], pa.bool_()),
    }
    return spark.createDataFrame(pa.table(columns))
