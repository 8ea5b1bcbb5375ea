"""Every case of ``tests/host_cases.py`` on Spark, in a batch and, several in one run, as a stream, gives the answer in-process.

The time zone of Spark's session is New York's, which changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import streamq as sq
from streamq.runtime.time.lateness import LATE_SCHEMA
from streamq.testing.backends import land, stream
from streamq.testing.history import assert_same_history, from_changelog, net
from tests import test_own_aggregates
from tests.host_cases import CASES, HostCase


@pytest.fixture(autouse=True)
def elsewhere(spark: SparkSession, plain: None) -> Iterator[None]:
    """A session far from UTC, as from a notebook: no worker can import what is defined there."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    cloudpickle.register_pickle_by_value(test_own_aggregates)
    yield
    cloudpickle.unregister_pickle_by_value(test_own_aggregates)
    spark.conf.set("spark.sql.session.timeZone", before)


def check(name: str, rows: pa.Table, query: sq.Stream, until: int | None = None) -> None:
    """Compare rows with the answer in-process; Spark has another name for the elements of an array."""
    expected = query.to_arrow(until)
    times = [f for f in expected.schema if f.name in ("start", "end")]
    schema = pa.schema([rows.schema.field(f.name) if f in times else f for f in expected.schema])
    try:
        assert_same_history(rows.select(schema.names).cast(schema), expected)
    except AssertionError as error:
        error.add_note(f"case: {name}")
        raise


@pytest.mark.parametrize("case", [case for case in CASES if "batch" in case.hosts], ids=lambda case: case.name)
def test_a_batch(spark: SparkSession, tmp_path: Path, case: HostCase) -> None:
    tables = {}
    for name, parts in case.parts.items():
        land(tmp_path / name, parts)
        tables[name] = spark.read.parquet(str(tmp_path / name))
    for there, here in zip(case.queries(tables), case.local, strict=True):
        for until in {None, case.until}:
            check(case.name, there.to_df(until).toArrow(), here, until)


def runs() -> list[Any]:
    """The cases that are streams, in runs: of one axis, and few, as a micro-batch costs the square of their number."""
    streams = [case for case in CASES if "stream" in case.hosts]
    others = [case for case in streams if case.local[0].schema.axis == "timestamp"]
    longest = [case for case in streams if max(map(len, case.parts.values())) > 2]
    rest = [case for case in streams if case not in (*others, *longest)]
    return [*(rest[i::4] for i in range(4)), longest, others]


@pytest.mark.parametrize("cases", runs(), ids=lambda cases: cases[0].name)
def test_a_stream(spark: SparkSession, tmp_path: Path, cases: list[HostCase]) -> None:
    """One run, started again after the first micro-batch; rows that are set aside are counted, and are in the late sink."""
    streams, rest = {}, {}
    for case in cases:
        tables = {}
        for name, parts in case.parts.items():
            folder = tmp_path / "in" / f"{case.name} {name}"
            land(folder, parts[:1])
            rest[folder] = parts[1:]
            tables[name] = stream(spark, folder, parts[0].schema)
        made = zip(case.queries(tables), case.local, case.outputs, strict=True)
        streams |= {f"{case.name}, {number}": query for number, query in enumerate(made)}
    sinks = {name: str(tmp_path / "out" / str(number)) for number, name in enumerate(streams)}

    def run(**how: Any) -> Any:
        results = [sq.result(there, sink=sinks[n], output=output) for n, (there, _, output) in streams.items()]
        where = {"checkpoint": str(tmp_path / "checkpoint"), "late_sink": str(tmp_path / "late")}
        return sq.run_all(results, **where, buckets=2, **how)

    run(trigger="available_now")
    for folder, parts in rest.items():
        land(folder, parts, first=1)
    with run() as last:
        last.finish()
    counted = sum((Counter(case.counted) for case in cases), Counter[str]())
    assert +Counter(last.late) == counted
    if counted:
        late = spark.read.parquet(str(tmp_path / "late")).select(LATE_SCHEMA.names).collect()
        expected = (row for case in cases for table in case.arrive()[0].run.late for row in table.to_pylist())
        assert Counter(map(tuple, late)) == Counter(tuple(row[name] for name in LATE_SCHEMA.names) for row in expected)
    for name, (_, here, output) in streams.items():
        rows = spark.read.parquet(sinks[name]).drop("streamq_batch").toArrow()
        if output == "changelog":
            rows = net([from_changelog(rows)])
        check(name, rows, here)
