"""A progress policy of a user's own is one more: no file of streamq knows of it; and what the hosts ask of those there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.progress_policies import GeneratedCtis, ProgressArgument, verbs
from streamq.runtime.deltas import LE
from streamq.runtime.time.progress_policy import ProgressPolicy, SourceParts
from streamq.runtime.time.progress_rule import ARRAYS, INTEGERS, Arithmetic
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows.batch_events import SQL, TickSql
from tests.programs import compiled


@dataclass(frozen=True)
class Lanes(SourceParts):
    """The greatest start in each of so many lanes, whose numbers are in the only column."""

    columns: tuple[str, ...]
    count: int

    def summary(self, items: pa.Table) -> Any:
        greatest = items.group_by(self.columns[0]).aggregate([(LE, "max")])
        lanes = map(str, greatest.column(self.columns[0]).to_pylist())
        return dict(zip(lanes, greatest.column(f"{LE}_max").to_pylist(), strict=True))

    def keep(self, state: dict[str, Any], summaries: Sequence[Any], idle_before: int) -> None:
        for lane, start in (pair for summary in summaries for pair in summary.items()):
            state[lane] = max(start, state.get(lane, start))

    def cti(self, state: Mapping[str, Any]) -> int:
        return min(state.values()) if len(state) == self.count else MINUS_INFINITY


@dataclass(frozen=True)
class LeastOfLanes(ProgressPolicy):
    """The least over the lanes of a road of the greatest start in each."""

    lane: str
    lanes: int

    name = "least_of_lanes"

    @property
    def parts(self) -> Lanes:
        return Lanes((self.lane,), self.lanes)

    def shown(self, axis: str) -> str:
        return f"least_of_lanes({self.lane})"

    def remedy(self, leader: str) -> str:
        return "another lane takes them in"


CARS = pa.table({"at": pa.array([], pa.int64()), "lane": pa.array([], pa.int64())})
BY_LANE = ProgressArgument("least_of_lanes(lane)", lambda axis: LeastOfLanes("lane", 2))


def cars(*rows: tuple[int, int]) -> dict[str, pa.Table]:
    return {"cars": pa.table({"at": [at for at, _ in rows], "lane": [lane for _, lane in rows]}, schema=CARS.schema)}


@pytest.mark.parametrize("buckets", [1, 3])
def test_its_state_lasts_and_counts_once_all_tasks_are_heard(buckets: int) -> None:
    query = sq.points(CARS, time="at", name="cars", progress=BY_LANE).tumbling_window(10).select(n=sq.count())
    run = LocalRun(compiled(number_sources(query.plan)[0], OutputForm.FINAL, buckets=buckets))
    assert run.batch(cars((35, 1), (3, 1))).num_rows == 0, "nothing of the other lane yet"
    run = run.restart()
    assert run.batch(cars((21, 2), (12, 2))).column(LE).to_pylist() == [0, 10]
    assert run.batch(cars((60, 2))).column(LE).to_pylist() == [20], "cti(35): [30, 40) is open"
    run.batch(cars((34, 1)))
    assert {key: n for totals in run.totals.values() for key, n in totals.items()} == {}, "30 is the end of a window"
    run.batch(cars((29, 1)))
    assert {key: n for totals in run.totals.values() for key, n in totals.items()} == {"cars|dropped": 1}


def test_what_users_can_write_is_what_the_rooms_have() -> None:
    assert verbs() == ["clock", "explicit", "follow", "generate"]


STARTS = [MINUS_INFINITY + 1, MINUS_INFINITY + 9, -11, -1, 0, 1, 13, INFINITY - 2]


@pytest.mark.parametrize("policy", [GeneratedCtis(), GeneratedCtis(2, 10), GeneratedCtis(7, 3), GeneratedCtis(0, 7)])
def test_a_cti_of_integers_is_that_of_arrays(policy: GeneratedCtis) -> None:
    of_integers = [policy.steps.cti(start, INTEGERS) for start in STARTS]
    assert policy.steps.cti(np.array(STARTS), ARRAYS).tolist() == of_integers
    for start, cti in zip(STARTS, of_integers, strict=True):
        exact = (start - policy.delay) // policy.every * policy.every
        assert cti == max(exact, MINUS_INFINITY + 1)
        # the least start that makes a CTI makes it, and the one before does not
        if cti > MINUS_INFINITY + 1:
            least = policy.steps.least_instant(cti)
            assert policy.steps.cti(least, INTEGERS) == cti > policy.steps.cti(least - 1, INTEGERS)


POLICIES = [GeneratedCtis(), GeneratedCtis(2, 10), GeneratedCtis(7, 3)]
NUMBERS = (1, 2, 7, 10**12, INFINITY - 1)


def calculated(x: Any, rules: Arithmetic) -> list[Any]:
    """Return what an arithmetic makes of an instant: CTIs, quotients, remainders, multiples and moved instants."""
    values = [policy.steps.cti(x, rules) for policy in POLICIES]
    for by in NUMBERS:
        values += [
            rules.quotient(x, by),
            rules.remainder(x, by),
            rules.floor(x, by),
            rules.moved(x, by),
            rules.moved(x, -by),
        ]
    return values


AXIS = [*STARTS, INFINITY - 1, INFINITY]
OF_INTEGERS = [calculated(start, INTEGERS) for start in AXIS]


def test_arrays_calculate_as_integers_do() -> None:
    assert np.transpose(calculated(np.array(AXIS), ARRAYS)).tolist() == OF_INTEGERS


@pytest.mark.spark
def test_sql_calculates_as_integers_do(spark: SparkSession) -> None:
    columns = [value.column.alias(f"c{i}") for i, value in enumerate(calculated(TickSql("start"), SQL))]
    rows = spark.createDataFrame([(start,) for start in AXIS], "start bigint").select(*columns).collect()
    assert [list(row) for row in rows] == OF_INTEGERS
