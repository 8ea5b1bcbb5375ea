"""Every operator, window and aggregate once, over two streams with open ends, NULLs and NaN: what backends are compared on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import streamq as sq
from streamq import col
from tests.drawn.queries import RESETTING_SUM

SCHEMA = pa.schema(
    [("from", pa.int64()), ("to", pa.int64()), ("k", pa.string()), ("v", pa.int32()), ("w", pa.float64())]
)
SIZES = pa.table({"k": ["a", "a", None, "z"], "size": [1, 2, 3, 4]})


def intervals(seed: int, count: int = 40) -> pa.Table:
    """Events in order of their starts; one in six has no end."""
    rng = random.Random(seed)
    made = []
    for start in sorted(rng.randint(-10, 60) for _ in range(count)):
        lasts = rng.choice([None, 1, *(rng.randint(1, 9) for _ in range(4)), rng.randint(1, 200)])
        made.append(
            {
                "from": start,
                "to": None if lasts is None else start + lasts,
                "k": rng.choice(["a", "b", None]),
                "v": rng.choice([1, 2, 3, None, -4]),
                "w": rng.choice([0.5, 1.25, None, -2.0, float("nan"), -0.0, 0.0]),
            }
        )
    return pa.Table.from_pylist(made, schema=SCHEMA)


@sq.udo("y int")
def values(v: Any) -> Any:
    """A row for each value that a window's members have."""
    yield from ((value,) for value in v.dropna())


@sq.udo("y int", time_sensitive=True)
def pieces(events: Any, window: Any) -> Any:
    """Two events for each member, next to each other."""
    for event in events.itertuples():
        if event.end > event.start + 1:
            yield event.start, event.start + 1, 0
            yield event.start + 1, event.end, 1


Query = Callable[[Any, Any, Any], Any]
"""A query over two streams and a static table ``k, size``."""

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "hopping": lambda s: s.hopping_window(7, 3, offset=1),
    "hopping, point at end": lambda s: s.hopping_window(7, 3, stamp="point_at_end", clip_input="right"),
    "snapshot": lambda s: s.snapshot_window(),
    "snapshot, point at end": lambda s: s.snapshot_window(stamp="point_at_end"),
    "sliding": lambda s: s.sliding_window(5),
    "count by start": lambda s: s.count_window(3, stamp="align"),
    "count by end": lambda s: s.count_window(2, by="end"),
    "rows": lambda s: s.rows_window(4, 3, order_by=["v"]),
    "session": lambda s: s.session_window(3),
    "periodic landmark": lambda s: s.landmark_window(7, period=20, start=3),
    "landmark": lambda s: s.landmark_window(25, start=3, stamp="align", clip_input="left"),
}

AGGREGATES = {
    "n": sq.count(),
    "positive": sq.sum("v", where=col("v") > 0),
    "least": sq.min("w"),
    "mean": sq.avg("v"),
    "spread": sq.stddev("v"),
    "different": sq.count_distinct("w"),
    "pairs": sq.count_distinct("v", "w"),
    "first": sq.first("w"),
    "last": sq.last("v", where=col("v") > 1),
    "every": sq.collect("v"),
    "median": sq.median("v"),
    "covariance": sq.covar("v", "v"),
    "correlation": sq.corr("v", "v"),
    "load": sq.time_weighted_avg("v"),
    "known": sq.count("v"),
}

WITHOUT_PARTIALS = {
    "first": sq.first("k"),
    "different": sq.count_distinct("k"),
    "pairs": sq.count_distinct("k", "w"),
    **{name: AGGREGATES[name] for name in ("n", "spread", "last", "median", "covariance", "correlation")},
}


def _joined(how: str) -> Query:
    return lambda s, t, z: s.join(t, on="k", how=how, suffixes=("", "_r"))


def _compared(how: str) -> Query:
    return lambda s, t, z: s.join(t, where=lambda a, b: a.v < b.v, how=how, suffixes=("_l", "_r"))


def _aggregated(window: Callable[[Any], Any]) -> Query:
    return lambda s, t, z: window(s.group_by("k")).select(**AGGREGATES)


def _ranked(window: Callable[[Any], Any]) -> Query:
    return lambda s, t, z: window(s).top_k(2, by="v", ties="break", row_number=True)


QUERIES: dict[str, Query] = {
    **{f"{how} join": _joined(how) for how in ("inner", "left", "semi", "anti")},
    **{f"{how} join without keys": _compared(how) for how in ("inner", "left", "semi", "anti")},
    "except": lambda s, t, z: s.select("k").except_(t.select("k")),
    "clip": lambda s, t, z: s.clip(t, on="k"),
    "clip by anything": lambda s, t, z: s.clip(t),
    "to_signal": lambda s, t, z: s.to_signal("k"),
    "last_rows": lambda s, t, z: s.last_rows(3, 2, key="k", order_by="v"),
    "chop": lambda s, t, z: s.chop(5, 1),
    "per window": lambda s, t, z: (
        s.group_by("k").hopping_window(7, 3).select(n=sq.count(), v=sq.max("v")).per_window().top_k(2, by="n")
    ),
    "per window, aggregates": lambda s, t, z: (
        s.hopping_window(7, 3)
        .select(n=sq.count())
        .union(s.select(n=sq.lit(1).cast("bigint")))
        .per_window()
        .select(n=sq.sum("n"))
    ),
    "explode": lambda s, t, z: s.tumbling_window(5).select(n=sq.count(), all=sq.collect("v")).explode("all"),
    "rows of a UDO": lambda s, t, z: s.group_by("k").tumbling_window(5).select(values("v")),
    "events of a UDO": lambda s, t, z: s.group_by("k").tumbling_window(9).select(pieces("v")),
    "scan": lambda s, t, z: s.to_points().group_by("k").scan(RESETTING_SUM("v", where=col("v") != 2)),
    "distinct_ids": lambda s, t, z: s.distinct_ids(within=4, id="k"),
    "windowed_join": lambda s, t, z: s.windowed_join(
        t, on="k", size=5, hop=3, suffixes=("", "_r"), where=lambda a, b: a.v < b.v
    ),
    "pairs by window": lambda s, t, z: (
        s.to_points()
        .windowed_join(t.set_duration(3), on="k", size=5, hop=2, suffixes=("", "_r"))
        .select(n=sq.count(), most=sq.max("v"), total=sq.sum("v_r"))
    ),
    "pairs of last rows": lambda s, t, z: s.windowed_join(t, on="k", rows=4, step=3, suffixes=("", "_r")).select(
        n=sq.count(), most=sq.max("v"), total=sq.sum("v_r")
    ),
    "shift, extend, to_points_at_end": lambda s, t, z: s.shift(5).extend(-2).to_points_at_end(),
    "alter_lifetime": lambda s, t, z: s.alter_lifetime(start=sq.start() - sq.start() % 4, duration=col("v")),
    "join_table": lambda s, t, z: s.join_table(z, on="k", how="left", name="sizes"),
    "apply": lambda s, t, z: s.group_by("k").apply(
        lambda g: g.join(g.shift(2), suffixes=("", "_s")).snapshot_window().select(n=sq.count())
    ),
    **{f"{name}: aggregates": _aggregated(w) for name, w in WINDOWS.items()},
    **{f"{name}: top_k": _ranked(w) for name, w in WINDOWS.items()},
    "snapshot by a sweep": lambda s, t, z: s.group_by("k").snapshot_window().select(n=sq.count(), s=sq.sum("v")),
    "snapshot by merging": lambda s, t, z: (
        s.group_by("k").snapshot_window().select(n=sq.count(), s=sq.sum("w"), m=sq.max("v"), d=sq.var("v"))
    ),
    "snapshot by the evaluator": lambda s, t, z: (
        s.group_by("w").snapshot_window().select(**WITHOUT_PARTIALS, since=sq.window_start())
    ),
    "snapshot by the evaluator, at its end": lambda s, t, z: s.snapshot_window(stamp="point_at_end").select(
        **WITHOUT_PARTIALS
    ),
}


def plans(tables: dict[str, Any]) -> dict[str, sq.Stream]:
    """The queries over tables l, r and sizes."""
    left, right = (sq.intervals(tables[n], start="from", end="to", name=n) for n in "lr")
    return {name: query(left, right, tables["sizes"]) for name, query in QUERIES.items()}


__all__ = ["AGGREGATES", "QUERIES", "SCHEMA", "SIZES", "WINDOWS", "intervals", "plans"]
