"""What a streaming query has written is a legal physical stream, read from its folder or as a DataFrame."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import SourceError
from streamq.testing.validator import check_stream, find_breaches
from tests.algebra import SCHEMA, intervals
from tests.spark.replay import land, stream


def test_a_changelog_on_disk_breaks_nothing(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    table = intervals(1)
    # every other row comes a micro-batch late
    order = sorted(range(table.num_rows), key=lambda i: (i // 10 + i % 2, i))
    land(tmp_path / "in", [table.take(order[:20]), table.take(order[20:])])
    rows = sq.intervals(stream(spark, tmp_path / "in", SCHEMA), "from", "to", progress=sq.generate(30))
    query = rows.select("k").to_signal("k")
    out = str(tmp_path / "out")
    query.run(checkpoint=f"{out}-cp", sink=out, output="changelog", trigger="available_now", buckets=1)

    checked = check_stream(out, order="chain", shape="signal", key="k")
    found = spark.read.parquet(out)
    assert checked == check_stream(found, shape="signal", key="k")
    with pytest.raises(SourceError, match="rows without an order cannot be judged for order.*batch="):
        check_stream(found, order="chain")
    alone = find_breaches(found.where("kind = 'retract'"))
    assert alone.rows
    assert alone.counts == {"match": alone.rows}
    with pytest.raises(SourceError, match="a streaming DataFrame"):
        check_stream(stream(spark, tmp_path / "in", SCHEMA))
