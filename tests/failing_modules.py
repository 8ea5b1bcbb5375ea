"""Modules for tests that fail for a window, or an event, with a poisonous value in it, each in its own way; and what is mended.

Of every kind and form, in the catalogue of ``window_modules``; what is mended is the same code without the fault.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import streamq as sq
from streamq.stream import Stream
from tests.window_modules import FORMS, KINDS, RESULTS, WINDOWS, Bag, made

POISON = 3
"""A value of ``v``."""


def raises(answer: Any) -> Any:
    raise ValueError("poison")


def leaves(answer: Any) -> Any:
    sys.exit("poison")


def misfits(answer: Any) -> Any:
    """Neither a value nor rows of any type that modules here have."""
    return ["poison"] if not isinstance(answer, Iterator) else iter([("poison",) * 9])


def differs(answer: Any) -> Any:
    """Another answer each time, which is found out in checking mode."""
    number = time.perf_counter_ns()
    if isinstance(answer, pd.Series | pa.Array):
        return pa.array([number] * len(answer))
    return number if not isinstance(answer, Iterator) else iter([(number, number)])


def dawdles(answer: Any) -> Any:
    time.sleep(0.2)
    return answer


FAULTS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], str]] = {
    "raises": (raises, {}, "ValueError: poison"),
    "leaves": (leaves, {}, "SystemExit: poison"),
    "misfits": (misfits, {}, "poison"),
    "differs": (differs, {"checked": True}, "two calls with the same events gave"),
    "dawdles": (dawdles, {"time_limit": 0.1}, "it took longer than 0.1 seconds"),
}
"""By name: what becomes of an answer, the options by which that fails, and the reason."""


def value_of(member: Any) -> Any:
    return member[-1] if isinstance(member, tuple) else member


def is_poisoned(bag: Bag) -> bool:
    return any(value_of(member) == POISON for member in bag)


@dataclass(frozen=True)
class Failing:
    """A module over windows that fails by a fault, and what it is without."""

    kind: str
    form: str
    timed: bool
    fault: str

    @property
    def name(self) -> str:
        return f"{self.fault}_{self.kind}_{self.form}_{'timed' if self.timed else 'plain'}"

    def module(self, on_error: str = "quarantine") -> Any:
        fail, options, _ = FAULTS[self.fault]
        result: Any = RESULTS[self.kind, self.timed]

        def poisoned(bag: Bag, *window: Any) -> Any:
            return fail(result(bag, *window)) if is_poisoned(bag) else result(bag, *window)

        options = {**options, "on_error": on_error}
        return made(self.kind, self.form, timed=self.timed, result=poisoned, name=self.name, **options)

    @property
    def mended(self) -> Any:
        result: Any = RESULTS[self.kind, self.timed]
        return made(self.kind, self.form, timed=self.timed, result=result, name=f"mended_{self.name}")

    def over(self, stream: Stream, window: str, module: Any) -> Stream:
        """The query: what it is, the group, and what the module gives; rows of operators stand on their windows."""
        windows = WINDOWS[window](stream.group_by("k"), stamp="align", **CLIPS.get(window, {}))
        rows = windows.select(module("v")) if self.kind == "udo" else windows.select(a=module("v"), b=sq.count())
        return rows.select(of=sq.lit(self.name), k=sq.col("k"), a=sq.col("a"), b=sq.col("b"))


CLIPS = {"ends": {"clip_input": "right"}}

_faults = itertools.cycle(FAULTS)
FAILING = [
    Failing(kind, form, timed, next(_faults)) for form, kind, timed in itertools.product(FORMS, KINDS, (False, True))
]
"""Of each kind, form and sense of time one, by one fault after the other."""


# functions of events


def poisoned_value(fail: Callable[[Any], Any], v: Any) -> Any:
    return fail(v * 2) if v == POISON else v * 2


def function_of(takes: str, fault: str, on_error: str) -> Any:
    """A function that doubles a value, called with values, a Series or an Array."""
    fail, options, _ = FAULTS[fault]

    def values(v: Any) -> Any:
        return None if v is None else poisoned_value(fail, v)

    def series(v: pd.Series) -> Any:
        return fail(v * 2) if (v == POISON).any() else v * 2

    def arrays(v: pa.Array) -> Any:
        doubled = pc.multiply(v, 2)
        return fail(doubled) if pc.any(pc.equal(v, POISON)).as_py() else doubled

    code = {"values": values, "series": series, "arrays": arrays}[takes]
    return sq.udf("bigint", name=f"{fault}_{takes}", takes=takes, on_error=on_error, **options)(code)


def operator_of(form: str, fault: str, on_error: str) -> Any:
    """An operator over events that adds up values, of which a poisonous one fails before it is added."""
    fail, options, _ = FAULTS[fault]

    def step(total: int, v: int | None) -> Any:
        after = total + (v or 0)
        return fail((after, [after])) if v == POISON else (after, [after])

    class Adding:
        def initial(self) -> int:
            return 0

        def step(self, total: int, v: int | None) -> Any:
            return step(total, v)

    options = {**options, "name": f"{fault}_{form}", "on_error": on_error}
    if form == "function":
        return sq.udso("total bigint", initial=0, **options)(step)
    return sq.udso("total bigint", **options)(Adding)
