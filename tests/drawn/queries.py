"""Random queries: verbs with their arguments left open, on each other."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st
from pyspark.sql.types import IntegerType

import streamq as sq
from streamq import testing as t
from streamq.errors import StreamqError, StreamqWarning
from streamq.stream import Stream
from streamq.testing.drawn_expressions import exact
from streamq.testing.intent import Draw
from streamq.testing.scenario import Filler, Scenario, drawing
from streamq.user_code.udo import StatefulOperator

ANY = t.ANY

Step = Callable[[Any, Any], Any]
"""A verb over a stream and, if it is one over two, another stream."""


class ResettingSum:
    """A sum of values that is reduced beyond a limit; in turn, events have one row, two rows and none."""

    def __init__(self, limit: int = 40):
        self.limit = limit

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def step(self, state: tuple[int, int], value: Any) -> tuple[tuple[int, int], list[int]]:
        """Return the state (number of events, sum) after an event, and its rows: none, one or two numbers."""
        count, total = state
        match value:
            case bool() | int():
                weight = value % 7
            case float() if math.isfinite(value):
                weight = int(value * 4) % 7
            case str() | bytes() | list() | dict():
                weight = len(value)
            case _:
                weight = 1
        # double the sum, so that it depends on the order of events
        total = 2 * total + weight
        total = total - self.limit if total > self.limit else total
        return (count + 1, total % self.limit), [total % self.limit, count % 7][: (1, 2, 0)[count % 3]]


RESETTING_SUM: StatefulOperator = sq.udso("total bigint", name="resetting_sum")(ResettingSum)
"""The operator of drawn scans; it is in the repository, so that plans with it can be written as JSON."""


STATELESS: dict[str, Step] = {
    "where": lambda s, _: s.where(ANY),
    "select": lambda s, _: s.select("k", v=ANY),
    "with_columns": lambda s, _: s.with_columns(more=ANY),
    "union": lambda s, other: s.union(other),
    "join_table": lambda s, _: s.join_table(ANY, on=[("k", "name")], how=ANY, name="names"),
    "alter_lifetime": lambda s, _: s.alter_lifetime(start=ANY, duration=ANY),
    "shift": lambda s, _: s.shift(ANY),
    "set_duration": lambda s, _: s.set_duration(ANY),
    "extend": lambda s, _: s.extend(ANY),
    "to_points": lambda s, _: s.to_points(),
    "to_points_at_end": lambda s, _: s.to_points_at_end(),
}
"""Steps that keep no state, by name."""

STATEFUL: dict[str, Step] = {
    "join": lambda s, other: s.join(other, on=ANY, where=ANY, how="inner"),
    "left join": lambda s, other: s.join(other, on=ANY, where=ANY, how="left"),
    "semi join": lambda s, other: s.join(other, on=ANY, where=ANY, how="semi"),
    "left_anti_join": lambda s, other: s.left_anti_join(other, on=ANY, where=ANY),
    "windowed_join": lambda s, other: s.windowed_join(other, on=ANY, size=ANY, hop=ANY, offset=ANY, where=ANY),
    "except_": lambda s, other: s.except_(other),
    "clip": lambda s, other: s.clip(other, on=ANY),
    "to_signal": lambda s, _: s.to_signal(key=ANY),
    "last_rows": lambda s, _: s.last_rows(ANY, ANY, key=ANY, order_by=ANY),
    "chop": lambda s, _: s.chop(ANY, ANY),
    "distinct_ids": lambda s, _: s.distinct_ids(ANY, id=ANY),
    "top_k": lambda s, _: s.hopping_window(ANY, ANY).top_k(ANY, by="k", desc=ANY, ties=ANY),
}
"""Steps that keep state, by name, but for aggregates."""

WINDOWS: dict[str, Step] = {
    "hopping_window": lambda s, _: s.group_by("k").hopping_window(ANY, ANY, ANY, clip_input=ANY, stamp=ANY),
    "tumbling_window": lambda s, _: s.tumbling_window(ANY, clip_input=ANY, stamp=ANY),
    "snapshot_window": lambda s, _: s.group_by("k").snapshot_window(clip_input=ANY, stamp=ANY),
    "sliding_window": lambda s, _: s.sliding_window(ANY),
    "count_window": lambda s, _: s.group_by("k").count_window(ANY, by="start", clip_input=ANY, stamp=ANY),
    "count_window of ends": lambda s, _: s.count_window(ANY, by="end", stamp=ANY),
    "rows_window": lambda s, _: s.group_by("k").rows_window(ANY, ANY, order_by=ANY, clip_input=ANY, stamp=ANY),
    "rows_window of members": lambda s, _: s.rows_window(ANY, ANY, order_by=ANY, stamp=ANY).where(ANY).group_by("k"),
    "session_window": lambda s, _: s.group_by("k").session_window(ANY, clip_input=ANY, stamp=ANY),
    "landmark_window": lambda s, _: s.group_by("k").landmark_window(ANY, period=ANY, clip_input=ANY, stamp=ANY),
    "landmark_window of one start": lambda s, _: s.group_by("k").landmark_window(ANY, start=ANY, stamp=ANY),
}
"""Windows of every kind but the calendar's, whose days are too long for events of a few ticks; by name."""


def of_key(window: Step) -> Step:
    """Return the aggregates of a window as columns ``v`` and ``more``, beside the key if there is one."""
    return lambda s, other: window(s, other).select(v=ANY, more=ANY)


def collected(s: Any) -> Any:
    return s.tumbling_window(ANY).select(k=sq.first("k"), v=sq.collect("v"))


STEPS: dict[str, Step] = {
    **STATELESS,
    **STATEFUL,
    **{name: of_key(window) for name, window in WINDOWS.items()},
    "union of two columns": lambda s, other: s.select("k", "v").union(other),
    "union with itself": lambda s, _: s.union(s.shift(ANY)),
    "join with itself": lambda s, _: s.join(s.shift(ANY), on=ANY, where=ANY, how=ANY),
    "except_ some": lambda s, _: s.except_(s.where(ANY)),
    "clip by some": lambda s, _: s.clip(s.where(ANY), on=ANY),
    "scan": lambda s, _: s.to_points().group_by("k").scan(RESETTING_SUM("v")).select("k", v=sq.col("total")),
    "scan of some": lambda s, _: s.to_points().scan(RESETTING_SUM("v", where=ANY)),
    "explode": lambda s, _: collected(s).explode("v"),
}
"""Every step of which queries are composed, by name."""

BY_ALL_COLUMNS = {
    *("except_", "except_ some", "last_rows", "distinct_ids", "top_k", "rows_window", "rows_window of members"),
    *("scan", "scan of some", "explode", "to_signal"),
}
"""The steps that go by the whole payload, so that no column may be a sum that depends on how floats are rounded."""

TRIES = 8
"""How many steps are drawn for one that is legal over a query."""


def composition(least: int = 3, most: int = 6, *inputs: Scenario) -> Scenario:
    """Return a scenario that stands for any query of ``least`` to ``most`` steps over one of two open streams, or both."""
    return drawing(partial(_composed, least, most), *(inputs or (t.stream(), t.stream())))


def _composed(least: int, most: int, draw: Draw, query: Stream, other: Stream) -> Stream:
    for _ in range(draw(st.integers(least, most))):
        query = _after_a_step(draw, query, other)
    return query


def _after_a_step(draw: Draw, query: Stream, other: Stream) -> Stream:
    """Draw a step over a query; the query as it is if none of TRIES is legal, or leaves a column that does not go by rounding."""
    for _ in range(TRIES):
        name = draw(st.sampled_from(list(STEPS)))
        if name in BY_ALL_COLUMNS and not exact(query.plan) >= {*query.columns}:
            continue
        one, two = (drawing(lambda draw, stream: stream, stream) for stream in (query, other))
        types = IntegerType(), IntegerType()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StreamqWarning)
                after: Stream = Filler(draw, query.schema.axis, types).filled(STEPS[name](one, two))
        except StreamqError:
            # a column that it names is not there, or has another type
            continue
        if exact(after.plan):
            return after
    return query
