"""Draw the arguments of verbs that a scenario leaves out, by the argument's name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.errors import PlanError, sentence
from streamq.expressions import duration, end, start, when, window_end, window_start
from streamq.functions.dates import TIMESTAMP_MICROS, UNIX_MICROS
from streamq.operators.windowed_stream import WindowedStream
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.stream import Stream
from streamq.testing.drawn_expressions import aggregate, evaluable, exact, lifetime_parts, matched, numbers, predicates
from streamq.testing.generate import Draw
from streamq.testing.patterns.room import rooms as of_patterns
from streamq.testing.payloads import static, table_for
from streamq.testing.windows.room import rooms
from streamq.time import INTEGER, TIMESTAMP


def argument(draw: Draw, verb: str, name: str, target: Any, named: bool) -> Any:
    """Draw the argument ``name`` of a verb of ``target``, a stream or its windows.

    ``named``: the argument is a column that the verb computes: over windows an aggregate or a bound of the window, else an
    expression.
    Raises PlanError for an argument that has no generator.
    """
    plan: Node = (target if isinstance(target, Stream) else target.stream).plan
    schema, exact_columns = plan.schema, exact(plan)
    columns = sorted(exact_columns) or list(schema.names)
    if named:
        if isinstance(target, WindowedStream):
            bound = draw(st.sampled_from([None] * 10 + [window_start(), window_end()]))
            if bound is not None:
                return bound
            return draw(aggregate(schema, exact_columns))
        column = numbers(schema, draw(st.sampled_from(schema.names)))
        return draw(st.one_of(column, column, lifetime_parts()))
    arguments_of_rooms = [room.arguments for room in rooms().values()] + [
        room.arguments for room in of_patterns().values()
    ]
    for arguments in arguments_of_rooms:
        if (verb, name) in arguments:
            return draw(arguments[verb, name](schema.axis))
    if (verb, name) in INTEGERS or name in INTEGERS:
        low, high = INTEGERS.get((verb, name)) or INTEGERS[name]
        many = draw(st.integers(low, high))
        timed = schema.axis == TIMESTAMP and (verb, name) not in COUNTS and name not in COUNTS
        return dt.timedelta(microseconds=many) if timed else many
    if (verb, name) in WORDS or name in WORDS:
        return draw(st.sampled_from(WORDS.get((verb, name)) or WORDS[name]))
    match verb, name:
        case _, "predicate":
            return draw(predicates(schema, exact_columns))
        case "join_table", "table":
            return static(table_for(schema.type_of("k")))
        case _, "on" | "order_by" | "key":
            keys = matched(schema, columns)
            most = draw(st.sampled_from([1, 1, 1, 2]))
            return draw(st.lists(st.sampled_from(keys), max_size=most, unique=True)) if keys else []
        case _, "id" | "keys" | "k" | "by":
            return draw(st.sampled_from(matched(schema, columns) or columns))
        case _, "columns" | "names":
            return draw(st.sampled_from(columns))
        case _, "where":
            return draw(pair_conditions(schema, columns))
        case "set_duration" | "alter_lifetime", "duration":
            lengths = [1, 3, 5] if schema.axis == INTEGER else [dt.timedelta(microseconds=n) for n in (1, 3, 5)]
            # None: the verb keeps the duration
            as_it_is = [None] * 2 * (verb == "alter_lifetime")
            return draw(st.sampled_from([*lengths, duration() * 2, *as_it_is]))
    raise PlanError(sentence("scenario", f"argument {name!r} of {verb} cannot be drawn", "", "Give it a value."))


STREAMS = {
    ("join", "other"), ("left_anti_join", "other"), ("windowed_join", "other"), ("except_", "other"),
    ("clip", "by"), ("union", "others"),
}  # fmt: skip
"""Arguments that are streams."""

INTEGERS: Mapping[Any, tuple[int, int]] = {
    "size": (1, 9), "hop": (1, 9), "offset": (-9, 9), "period": (1, 9), "within": (0, 6),
    "n": (1, 4), "rows": (1, 4), "step": (1, 4), ("top_k", "k"): (1, 3),
    ("shift", "by"): (-6, 6), ("extend", "by"): (-6, 6),
}  # fmt: skip
"""Arguments that are numbers of ticks or rows: the least value drawn and the greatest."""

COUNTS = ("n", "rows", "step", ("top_k", "k"))
"""The arguments of INTEGERS that count rows."""

WORDS: Mapping[Any, tuple[Any, ...]] = {
    ("join", "how"): ("inner", "left", "semi", "anti"), ("join_table", "how"): ("inner", "left"),
    ("top_k", "row_number"): (False,),
    "clip_input": tuple(ClipInput), "stamp": (Stamp.ALIGN, Stamp.POINT_AT_END),
    "ties": ("keep", "break"), "desc": (True, False), "suffixes": (("", "_r"),),
}  # fmt: skip
"""Arguments that are drawn from a list of values."""


@st.composite
def starts(draw: Draw, plan: Node) -> tuple[Expr | None, Any]:
    """Draw the arguments ``start`` and ``within`` of alter_lifetime; the start reads the event's start, end or payload.

    Each is None where the verb's default is meant.
    """

    def span(ticks: int) -> Any:
        return ticks if plan.schema.axis == INTEGER else dt.timedelta(microseconds=ticks)

    name = draw(st.sampled_from(sorted(exact(plan)) or list(plan.schema.names)))
    match draw(st.sampled_from(["as it is", "start", "later", "earlier", "grid", "grid", "end", "payload", "payload"])):
        case "start":
            return start(), None
        case "grid":
            # round the start down to a multiple
            many = draw(st.integers(2, 5))
            if plan.schema.axis == INTEGER:
                return start() - start() % many, None
            at = Call(UNIX_MICROS, (start(),))
            return Call(TIMESTAMP_MICROS, (at - at % many,)), None
        case "later":
            return start() + span(3), None
        case "earlier":
            return start() - span(2), None
        case "end":
            return end(), None
        case "payload":
            # every event that has a value moves by exactly ``within``, the most that the promise allows
            within = draw(st.integers(0, 6))
            return start() - when(Col(name).is_not_null(), span(within)).otherwise(span(0)), span(within)
    return None, None


@st.composite
def pair_conditions(draw: Draw, schema: Schema, columns: list[str]) -> Any:
    """Draw a function of both events' columns that returns a condition on one of ``columns``, or None."""
    name = draw(st.sampled_from(columns))
    conditions: list[Callable[[Any, Any], Expr]] = [
        lambda l, r: l[name].is_not_null(),
        lambda l, r: l[name] == r[name],
        lambda l, r: l[name] < r[name],
        lambda l, r: l[name].eq_null_safe(r[name]),
    ]
    # try each condition with the same columns on both sides
    one = {name: Col(name)}
    return draw(st.sampled_from([None, *(make for make in conditions if evaluable(make(one, one), schema))]))
