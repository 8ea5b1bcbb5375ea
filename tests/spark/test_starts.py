"""However a query is started on Spark, in whatever session, by ``run`` or by a writeStream, it gives what it should."""

from __future__ import annotations

import itertools
import os

import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.run.session.findings import active_session
from streamq.run.session.spark_session import REQUIRED
from streamq.testing.arrival import Item
from streamq.testing.backends import answer_before_end, session_in
from streamq.testing.execution import BATCH, CONTROLLED, RUN, SPARK, STARTS, WRITTEN, Execution
from streamq.testing.trial import check
from tests.conftest import INTERPRETED

SOAK = bool(os.environ.get("STREAMQ_SOAK"))
HOUR = 3_600_000_000
POLICY = {"progress": sq.generate("5 hours")}
STAYS = sq.intervals(t.table("s timestamp, e timestamp, k string", []), start="s", end="e", name="a", **POLICY)
CALLS = sq.points(t.table("at timestamp, k string", []), time="at", name="b", **POLICY)
# an hour by the clock is another in each time zone; the windows share a stage, in which one sends its rows to the other
QUERY = (
    STAYS.select("k", hour=sq.functions.hour(sq.start()))
    .group_by("k")
    .tumbling_window("10 hours")
    .select(n=sq.count(), hours=sq.sum("hour"))
    .group_by("k")
    .snapshot_window()
    .select(n=sq.sum("n"), hours=sq.max("hours"))
    .union(CALLS.select("k", n=sq.lit(0).cast("bigint"), hours=sq.functions.hour(sq.start()).cast("bigint")))
)
TIMES = [(0, 4, "a"), (9, 12, "b"), (7, 30, "a"), (25, 26, "b"), (22, 24, "a"), (41, 47, "a")]
ARRIVAL = [("a", Item("insert", s * HOUR, e * HOUR, payload={"k": k})) for s, e, k in TIMES]
ARRIVAL.insert(2, ("b", Item("insert", 8 * HOUR, 8 * HOUR + 1, payload={"k": "a"})))
CASE = t.Case(QUERY.plan, tuple(ARRIVAL), (2, 2, 2, 1) if SOAK else (4, 3))
WAYS = [
    Execution(SPARK, output, buckets=2, restart=restart, started=started, zone=zone, silent=silent)
    for output, restart, started, zone, silent in itertools.product(
        (OutputForm.FINAL, OutputForm.CHANGELOG), (False, True), STARTS, ("", "Asia/Tokyo"), (False, True)
    )
] + [Execution(BATCH, zone="Asia/Tokyo")]
SOME = [
    Execution(SPARK, OutputForm.FINAL, buckets=2, restart=True, started=WRITTEN, silent=True),
    Execution(SPARK, OutputForm.CHANGELOG, buckets=2, restart=True, started=CONTROLLED, zone="Asia/Tokyo"),
    Execution(SPARK, OutputForm.FINAL, buckets=2, started=RUN, zone="America/New_York", silent=True),
    Execution(BATCH, zone="Asia/Tokyo"),
]


@pytest.mark.parametrize("how", WAYS if SOAK else SOME, ids=str)
def test_every_way_to_start_gives_the_answer(how: Execution, spark: SparkSession, plain: None) -> None:
    assert check(CASE, [how], spark)
    assert active_session() is spark


def test_a_session_of_sparks_own_has_all_settings_but_those_of_streamq(spark: SparkSession, plain: None) -> None:
    with session_in(spark, "Asia/Tokyo") as other:
        assert {key: other.conf.get(key) for key in INTERPRETED} == INTERPRETED
        assert other.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert all(other.conf.get(key, None) != value for key, value in REQUIRED.items())
    assert active_session() is spark


def test_what_nobody_ends_gives_what_is_final_and_no_more() -> None:
    ended, so_far = (rows.num_rows for rows in (CASE.answer(), answer_before_end(CASE, Execution())))
    assert 2 < so_far < ended
