"""Every operator as a scenario: any stream, any arguments, held against the oracle, its CTIs watched."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace

import pytest

import streamq as sq
from streamq import testing as t
from tests.drawn.queries import RESETTING_SUM, STATEFUL, STATELESS, WINDOWS, composition
from tests.window_modules import BOUND, MODULES, lived

ANY = t.ANY


def heard(scenario: t.Scenario) -> t.Scenario:
    """A stateless operator below one that believes what it makes of the CTI, and shows something of the payload."""
    return scenario.snapshot_window().select(n=sq.count(), shown=ANY)


def windowed(scenario: t.Scenario) -> t.Scenario:
    return scenario.select(one=ANY, two=ANY, three=ANY)


def aggregates(columns: str, more: dict[str, sq.Expr]) -> t.Scenario:
    """Aggregates of every kind over windows that overlap: of partial results, of values with weights, and of all members."""
    some = {
        "n": sq.count("v"),
        "least": sq.min("v"),
        "most": sq.max("w"),
        "first": sq.first("v"),
        "all": sq.collect("w"),
    }
    windows = t.stream(columns=f"k string, {columns}").group_by("k").hopping_window(ANY, ANY)
    return windows.select(last=sq.last("w"), different=sq.count_distinct("v", "w"), **some, **more)


V, W = sq.col("v"), sq.col("w")

OF_NUMBERS = {
    **{name: getattr(sq, name)("v") for name in ("sum", "avg", "var", "var_pop", "stddev", "stddev_pop", "median")},
    **{name: getattr(sq, name)("v", "w") for name in ("covar", "covar_pop", "corr")},
    "high": sq.percentile("w", 0.9, where=V > 0),
    "load": sq.time_weighted_avg("v"),
}
AGGREGATES: dict[str, tuple[str, dict[str, sq.Expr]]] = {
    "aggregates of doubles": ("v double, w int", OF_NUMBERS),
    "aggregates of integers": ("v bigint, w float", OF_NUMBERS),
    # a mean of decimals takes Spark
    "aggregates of decimals": ("v decimal(10,2), w bigint", {"sum": sq.sum("v"), "whole": sq.sum("w", where=V > 0)}),
    "aggregates of texts": ("v string, w boolean", {"some": sq.count(where=W)}),
}

GROUPED = t.stream().group_by("k")
WHOLE_NUMBERS = t.stream(columns="k string, v bigint").group_by("k")
ONE = t.stream()

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
    **{name: heard(step(t.stream(), ANY)) for name, step in STATELESS.items()},
    **{name: step(t.stream(), ANY) for name, step in STATEFUL.items()},
    **{name: windowed(window(t.stream(), ANY)) for name, window in WINDOWS.items()},
    "pairs by window": t.stream(shape="points")
    .windowed_join(t.stream(shape="points"), on=ANY, size=ANY, hop=ANY, offset=ANY, where=ANY)
    .select(n=sq.count()),
    "windowed_join of rows": t.stream().windowed_join(ANY, on=ANY, rows=ANY, step=ANY, order_by=ANY, where=ANY),
    "pairs of last rows": t.stream()
    .windowed_join(t.stream(), on=ANY, rows=ANY, step=ANY)
    .select(n=sq.count(), last=sq.max("v")),
    "scan": heard(t.stream().to_points().group_by("k").scan(RESETTING_SUM("v"))),
    "scan of edges": heard(t.stream(shape="edges").scan(RESETTING_SUM("v", where=sq.col("k").is_not_null()))),
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
    "calendar_window": windowed(
        t.stream(axis="timestamp").group_by("k").calendar_window(ANY, zone=ANY, clip_input=ANY, stamp=ANY)
    ),
    "bounds of windows": windowed(GROUPED.hopping_window(ANY, ANY, ANY, stamp=ANY)).where(ANY).with_columns(more=ANY),
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
    "group_by, apply": GROUPED.apply(lambda g: g.join(g.shift(ANY), suffixes=("", "_s")).count_window(2).select(n=ANY)),
    "used twice": ONE.join(ONE.shift(ANY), on=ANY).snapshot_window().select(n=ANY),
    **{name: aggregates(columns, more) for name, (columns, more) in AGGREGATES.items()},
    "any operator": composition(1, 1),
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
    report = t.verify(OPERATORS[name], profile=profile(3 if name == "any operator" or name in AGGREGATES else 1, name))
    assert report.empty < report.cases and report.executions["stream"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_composition(part: int) -> None:
    """Two to six operators on each other, four times; `make soak` and `make fuzz` go on."""
    t.verify(composition(2, 6), profile=profile(4, f"composition {part}", share=3))
