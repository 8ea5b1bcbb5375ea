"""What modules fail for on Spark: in batch and as a stream the rows set aside are those that are set aside in-process."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import col
from streamq.errors import StreamqWarning
from streamq.runtime.time.lateness import LATE_SCHEMA
from tests.failing_modules import FAILING, function_of, operator_of
from tests.spark.replay import ended
from tests.test_quarantine import EVENTS

ROWS = pa.table(
    {
        "at": [start for start, _, _ in EVENTS],
        "to": [end for _, end, _ in EVENTS],
        "k": [event["k"] for *_, event in EVENTS],
        "v": [event["v"] for *_, event in EVENTS],
    }
)


def query(table: Any) -> sq.Stream:
    """A function, an operator of scan, and a module over windows, as one result."""
    s = sq.intervals(table, "at", "to", name="s", progress=sq.generate(20))
    doubled = s.select(of=sq.lit("udf"), k=col("k"), a=function_of("values", "raises", "quarantine")("v"))
    totals = s.to_points().group_by("k").scan(operator_of("class", "leaves", "quarantine")("v"))
    numbers = FAILING[0].over(s, "hopping", FAILING[0].module()).select("of", "k", "a")
    return doubled.union(totals.select(of=sq.lit("udso"), k=col("k"), a=col("total")), numbers)


@pytest.mark.usefixtures("plain")
def test_the_same_is_set_aside_in_process_in_batch_and_on_a_stream(
    spark: SparkSession, plain: None, tmp_path: Path
) -> None:
    path = str(tmp_path / "rows")
    spark.createDataFrame(ROWS).coalesce(1).write.parquet(path)
    with pytest.warns(StreamqWarning, match="set aside"):
        wanted = query(ROWS).to_arrow()
    expected = query(ROWS).quarantine().to_arrow()
    assert len(set(expected.column("source").to_pylist())) == 3

    in_batch = query(spark.read.parquet(path))
    with pytest.warns(StreamqWarning, match=r"to_arrow: \d+ event\(s\) are set aside and left out, of "):
        assert in_batch.to_arrow().to_pylist() == wanted.to_pylist()
    assert in_batch.quarantine().to_arrow() == expected
    with pytest.warns(
        StreamqWarning, match="to_df: what .* fails for is left out of this DataFrame; it is not counted"
    ):
        in_batch.to_df()

    schema = spark.read.parquet(path).schema
    stream = query(spark.readStream.schema(schema).parquet(path))
    with pytest.warns(
        StreamqWarning, match="to_stream: on_error='quarantine' of .* the first event that fails"
    ) as warned:
        stream.to_stream()
    assert [w.filename for w in warned] == [__file__]
    late, out = str(tmp_path / "late"), str(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error", StreamqWarning)
        run = ended(stream, checkpoint=str(tmp_path / "cp"), sink=out, late_sink=late)
    rows = spark.read.parquet(out).drop("micro_batch").toArrow()
    assert sorted(map(str, rows.select(wanted.column_names).to_pylist())) == sorted(map(str, wanted.to_pylist()))
    stored = spark.read.parquet(late)
    assert stream.quarantine(stored).to_arrow() == expected
    assert stored.select(*LATE_SCHEMA.names).count() == expected.num_rows
    calls = {
        (row["source"], row["group"], row["window_start"], row["window_end"], row["window_end"] or row["payload"])
        for row in expected.to_pylist()
    }
    assert sum(run.metrics["quarantined"].values()) == len(calls), "windows, and events of functions and of scan"
