"""Every operator as a scenario: any stream, any arguments, held against the oracle, its CTIs watched."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace

import pytest

import streamq as sq
from streamq import testing as t
from tests.drawn.operators import RESETTING_SUM
from tests.drawn.scenarios import composition, operator
from tests.window_modules import BOUND, MODULES, lived

ANY = t.ANY


def heard(scenario: t.Scenario) -> t.Scenario:
    """A stateless operator below one that believes what it makes of the CTI, and shows something of the payload."""
    return scenario.snapshot_window().select(n=sq.count(), shown=ANY)


def windowed(scenario: t.Scenario) -> t.Scenario:
    return scenario.select(one=ANY, two=ANY, three=ANY)


GROUPED = t.stream().group_by("k")
WHOLE_NUMBERS = t.stream(columns="k string, v bigint").group_by("k")
ONE, TWO = t.stream(), t.stream()

OPERATORS: dict[str, t.Scenario] = {
    "ingress": t.stream(),
    "points": heard(t.stream(shape="points")),
    "intervals": heard(t.stream(shape="intervals")),
    "edges": heard(t.stream(shape="edges")),
    "physical": heard(t.stream(shape="physical")),
    "points with ids": heard(t.stream(shape="points_ids")),
    "intervals with ids": heard(t.stream(shape="intervals_ids")),
    "physical with ids": heard(t.stream(shape="physical_ids")),
    "signal": t.stream(shape="signal"),
    "where": heard(t.stream().where(ANY)),
    "select": heard(t.stream().select("k", v=ANY)),
    "with_columns": heard(t.stream().with_columns(more=ANY)),
    "union": heard(t.stream().union(ANY)),
    "join": t.stream().join(ANY, on=ANY, where=ANY, how="inner"),
    "left join": t.stream().join(ANY, on=ANY, where=ANY, how="left"),
    "semi join": t.stream().join(ANY, on=ANY, where=ANY, how="semi"),
    "left_anti_join": t.stream().left_anti_join(ANY, on=ANY, where=ANY),
    "windowed_join": t.stream().windowed_join(ANY, on=ANY, size=ANY, hop=ANY, offset=ANY, where=ANY),
    "pairs by window": t.stream(shape="points")
    .windowed_join(t.stream(shape="points"), on=ANY, size=ANY, hop=ANY, offset=ANY, where=ANY)
    .select(n=sq.count()),
    "windowed_join of rows": t.stream().windowed_join(ANY, on=ANY, rows=ANY, step=ANY, order_by=ANY, where=ANY),
    "pairs of last rows": t.stream()
    .windowed_join(t.stream(), on=ANY, rows=ANY, step=ANY)
    .select(n=sq.count(), last=sq.max("v")),
    "except_": t.stream().except_(ANY),
    "clip": t.stream().clip(ANY, on=ANY),
    "join_table": heard(t.stream().join_table(ANY, on=[("k", "name")], how=ANY, name="names")),
    "alter_lifetime": heard(t.stream().alter_lifetime(start=ANY, duration=ANY)),
    "shift": heard(t.stream().shift(ANY)),
    "set_duration": heard(t.stream().set_duration(ANY)),
    "extend": heard(t.stream().extend(ANY)),
    "to_points": heard(t.stream().to_points()),
    "to_points_at_end": heard(t.stream().to_points_at_end()),
    "to_signal": t.stream().to_signal(key=ANY),
    "last_rows": t.stream().last_rows(ANY, ANY, key=ANY, order_by=ANY),
    "scan": heard(t.stream().to_points().group_by("k").scan(RESETTING_SUM("v"))),
    "scan of edges": heard(t.stream(shape="edges").scan(RESETTING_SUM("v", where=sq.col("k").is_not_null()))),
    "chop": t.stream().chop(ANY, ANY),
    "distinct_ids": t.stream().distinct_ids(ANY, id=ANY),
    "hopping_window": windowed(GROUPED.hopping_window(ANY, ANY, ANY, clip_input=ANY, stamp=ANY)),
    "tumbling_window": windowed(t.stream().tumbling_window(ANY, clip_input=ANY, stamp=ANY)),
    "snapshot_window": windowed(GROUPED.snapshot_window(clip_input=ANY, stamp=ANY)),
    "sliding_window": windowed(t.stream().sliding_window(ANY)),
    "count_window": windowed(GROUPED.count_window(ANY, by="start", clip_input=ANY, stamp=ANY)),
    "count_window of ends": windowed(t.stream().count_window(ANY, by="end", stamp=ANY)),
    "rows_window": windowed(GROUPED.rows_window(ANY, ANY, order_by=ANY, clip_input=ANY, stamp=ANY)),
    "rows_window of members": windowed(
        t.stream().rows_window(ANY, ANY, order_by=ANY, stamp=ANY).where(ANY).group_by("k")
    ),
    "sums of a rows_window's groups": t.stream()
    .rows_window(ANY, ANY, order_by=ANY)
    .group_by("k")
    .where(ANY)
    .select(n=sq.count(), s=sq.sum("v"), m=sq.max("v")),
    "rows_window of groups in groups": t.stream(columns="k string, v bigint")
    .group_by("k")
    .rows_window(ANY, ANY)
    .group_by(w=sq.col("v") % 2)
    .top_k(1, by="v"),
    "session_window": windowed(GROUPED.session_window(ANY, clip_input=ANY, stamp=ANY)),
    "landmark_window": windowed(GROUPED.landmark_window(ANY, period=ANY, clip_input=ANY, stamp=ANY)),
    "calendar_window": windowed(
        t.stream(axis="timestamp").group_by("k").calendar_window(ANY, zone=ANY, clip_input=ANY, stamp=ANY)
    ),
    "bounds of windows": windowed(GROUPED.hopping_window(ANY, ANY, ANY, stamp=ANY)).where(ANY).with_columns(more=ANY),
    "landmark_window of one start": windowed(GROUPED.landmark_window(ANY, start=ANY, stamp=ANY)),
    "where above windows": windowed(GROUPED.hopping_window(ANY, ANY)).where(ANY),
    "where above landmarks": windowed(GROUPED.landmark_window(ANY, period=ANY, start=ANY)).where(ANY),
    "time_weighted_avg": GROUPED.tumbling_window(ANY, clip_input=ANY, stamp=ANY).select(
        x=sq.time_weighted_avg("v"), n=ANY
    ),
    "uda": WHOLE_NUMBERS.hopping_window(ANY, ANY, ANY, clip_input=ANY, stamp=ANY).select(
        x=MODULES["uda", "incremental", False]("v"), y=MODULES["uda", "incremental", True]("v")
    ),
    "uda that merges": WHOLE_NUMBERS.hopping_window(ANY, ANY, ANY).select(
        x=MODULES["uda", "merging", False]("v"), y=MODULES["uda", "merging", False]("v", where=sq.col("v") > 1)
    ),
    "pattern": sq.cedr(  # type: ignore[dict-item]
        "EVENT E WHEN SEQUENCE(ANY(A, B) AS s, UNLESS(A AS x, B AS n, 1 second) AS u, 6 seconds) "
        "WHERE s.root < x.Vs AND s.k = u.k AND n.k = x.k OUTPUT s.Vs AS at, x.k AS k, s.v AS v, u.v AS w",
        **{name: t.stream(columns="k string, v double", axis="timestamp") for name in "AB"},  # type: ignore[arg-type]
    ),
    "pattern that needs only some of its sources": sq.cedr(  # type: ignore[dict-item]
        "EVENT E WHEN NOT(A AS n, ALL(B AS x, C AS y, 1 microsecond)) OUTPUT x.k AS k, y.v AS v",
        **{name: t.stream(columns="k string, v bigint", axis="timestamp") for name in "ABC"},  # type: ignore[arg-type]
    ),
    "udo": WHOLE_NUMBERS.session_window(ANY, clip_input=ANY).select(MODULES["udo", "incremental", True]("v")),
    "udo that is time-bound": WHOLE_NUMBERS.snapshot_window(clip_input=ANY).select(BOUND["function", lived]("v")),
    "top_k": t.stream().hopping_window(ANY, ANY).top_k(ANY, by="k", desc=ANY, ties=ANY),
    "group_by, apply": GROUPED.apply(lambda g: g.join(g.shift(ANY), suffixes=("", "_s")).count_window(2).select(n=ANY)),
    "used twice": ONE.join(ONE.shift(ANY), on=ANY).snapshot_window().select(n=ANY),
    "any operator": operator(),
    "any pair": operator(ONE, TWO),
}
"""Every verb, what is not said of it left open."""


SECONDS = float(os.environ.get("STREAMQ_FUZZ") or 0)
"""How long `make fuzz` searches for each operator; `make test` tries a few cases, the same each time."""


SOAK = 40 if os.environ.get("STREAMQ_SOAK") else 1


def profile(examples: int, name: str, share: int = 1) -> t.Profile:
    """So many examples, others for each name, or as many as there is time for."""
    given = t.load_profile(None)
    if given.seed is not None:
        given = replace(given, seed=given.seed + zlib.crc32(name.encode()))
    if not SECONDS:
        return replace(given, examples=SOAK * examples, batch=0, streams=0)
    return replace(given, examples=1_000_000, batch=0, streams=0, seconds=share * SECONDS, shrinking=60)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    # any of them may refuse its first case
    report = t.verify(OPERATORS[name], profile=profile(3 if name == "any operator" else 1, name))
    assert report.empty < report.cases and report.executions["stream"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_composition(part: int) -> None:
    """Three to six operators on each other, twice; `make soak` and `make fuzz` go on."""
    t.verify(composition(3, 6), profile=profile(2, f"composition {part}", share=3))
