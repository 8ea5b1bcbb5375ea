"""Calls of verbs, with every argument, and the plans that they mean, or the errors with which they are refused.

The texts of ``tests/golden/plans_of_verbs.txt`` were written down while a second, independent definition of the verbs gave the
same plans. A plan is written as its nodes are made, without fields that have their defaults; sources are called by their names.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any

import pytest
from pyspark.sql.types import DataType

import streamq as sq
from streamq.errors import StreamqError
from streamq.operators import Source
from streamq.patterns.definitions import Definitions
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, Lit
from streamq.plan.function import NamedObject
from streamq.testing.table import table
from tests.drawn.queries import RESETTING_SUM
from tests.golden_table import check_table, read_table
from tests.mutation.queries import rises


def written(part: Any) -> str:
    """The text of a plan, or of a part of one."""
    match part:
        case Source():
            return part.table
        case Definitions():
            return " ".join(part.text.split())
        case Col(name=name):
            return name
        case Lit(value=value, type=None):
            return repr(value)
        case Call() | Aggregate():
            where = [f"where={written(part.where)}"] if isinstance(part, Aggregate) and part.where is not None else []
            options = [repr(part.options)] if isinstance(part, Aggregate) and part.options else []
            return f"{part.function.name}({', '.join([*map(written, part.args), *options, *where])})"
        case DataType():
            return part.simpleString()
        case StrEnum() | str():
            return str(part)
        case NamedObject(name=name):
            return name
        case tuple() if part and all(isinstance(pair, tuple) and len(pair) == 2 for pair in part):
            return f"[{', '.join(f'{written(a)}={written(b)}' for a, b in part)}]"
        case tuple():
            return f"[{', '.join(map(written, part))}]"
    if not is_dataclass(part):
        return repr(part)
    values = []
    for field in fields(part):
        value = getattr(part, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if default is MISSING:
            values.append(written(value))
        elif field.init and written(value) != written(default):
            values.append(f"{field.name}={written(value)}")
    return f"{type(part).__name__}({', '.join(values)})"


def source(name: str, columns: str, time: str = "int") -> sq.Stream:
    """A stream without rows; every verb of it may be called."""
    return sq.intervals(table(f"le {time}, re {time}, {columns}", []), "le", "re", name=name)


def points(name: str, columns: str, **policy: Any) -> sq.Stream:
    return sq.points(table(f"le int, {columns}", []), "le", name=name, **policy)


S, T, U = (source(name, "k string, v double, w double") for name in ("s", "t", "u"))
OTHER, LISTS = (
    source("o", "id string, K string, v double"),
    source("l", "k string, xs array<struct<a: int, b: string>>"),
)
POINTS, MAPS = points("p", "k string, v double, w double"), points("maps", "v double, m map<string,int>")
EDGES = sq.edges(table("at int, what string, v double", []), "at", edge="what", key="v", name="edges")
TIMED = source("m", "k string, v double, at timestamp", "timestamp")
CITIES = table("k string, V double, city string", [])
BY_KEY = S.group_by("k")
TUMBLING = BY_KEY.tumbling_window(4)
N: dict[str, Any] = {"n": sq.count()}
BOUNDS: dict[str, Any] = {"from_": sq.window_start(), "till": sq.window_end(), "lasts": sq.duration(), "at": sq.start()}
OWN: dict[str, Any] = {"clip_input": "left", "stamp": "align"}
x, y, z, w = S.alias("x"), T.alias("y"), U.alias("z"), OTHER.alias("w")
PAIR = sq.sequence(x, y, within=12)
RUN = sq.sequence(sq.repeat(x, 2, within=12), y, within=9)
reciprocal = sq.udf("double", name="reciprocal", on_error="quarantine")(lambda v: 1 / v)


@sq.udso("delta double")
class Difference:
    """How far a value lies from the one before it."""

    def __init__(self, factor: int = 1):
        self.factor = factor

    def initial(self) -> None:
        return None

    def step(self, last: float | None, value: float) -> tuple[float, None]:
        return value, None


def yielding(state: None, v: float) -> Iterator[Any]:
    yield state, v


NAMES = {**globals(), "col": sq.col, "dt": dt, "RESETTING_SUM": RESETTING_SUM, "rises": rises}
"""What the calls of the tables may name."""

QUERIES: list[sq.Stream] = [eval(call, NAMES) for call in read_table("plans_of_verbs.txt")]
"""Each verb with each argument."""


def test_a_verb_makes_the_plan_that_it_means() -> None:
    check_table("plans_of_verbs.txt", lambda call: written(eval(call, NAMES).plan))


def refusal(call: str) -> str:
    with pytest.raises(StreamqError) as refused:
        eval(call, NAMES)
    return f"{type(refused.value).__name__}: {refused.value}"


def test_a_call_that_means_nothing_is_refused() -> None:
    check_table("refusals.txt", refusal)
