"""Modules over windows for tests: one of each kind, form and sense of time, in exact arithmetic of integers.

A ``Choice`` is a way to use one, of all that there are; ``refused`` says which of them are not allowed, and why.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

import streamq as sq
from streamq import testing as t
from streamq.plan.aggregate import Aggregate
from streamq.stream import Stream
from streamq.testing.case import Case
from tests.pairwise import covering

PRIME = 1_000_003
Member = Any
"""What a module has of a member: its value, and, if it is time-sensitive, its start and end before that."""

Bag = Counter[Member]
"""Members, with how often each is there."""


def plain(value: Any) -> int | None:
    """An integer of Python's, of an instant its ticks; what is missing is None."""
    if pd.isna(value):
        return None
    return int(value.asm8.astype("M8[us]").astype(int) if isinstance(value, pd.Timestamp) else value)


def weight(value: int | None) -> int:
    return 17 if value is None else (value * value + 3 * value + 1) % PRIME


def of_values(values: pd.Series) -> Bag:
    return Counter(map(plain, values))


def of_events(events: pd.DataFrame) -> Bag:
    return Counter((plain(e.start), plain(e.end), plain(e.v)) for e in events.itertuples())


@dataclass(frozen=True)
class Bounds:
    """A window's start and end in ticks."""

    start: int | None
    end: int | None


def bounds(window: Any) -> Bounds:
    return Bounds(plain(window.start), plain(window.end))


# what modules make of members: exact, and whatever order they come in


def number(bag: Bag) -> int | None:
    """A number that tells most bags apart; None for some."""
    total = sum(weight(v) * n for v, n in bag.items())
    return None if total % 5 == 0 else total % PRIME


def timed_number(bag: Bag, window: Any) -> int | None:
    """The same, of lifetimes and the window, too."""
    ends = {None: -1}
    total = sum((3 * weight(v) + 5 * a + 7 * ends.get(b, b)) * n for (a, b, v), n in bag.items())
    total += 11 * window.start + 13 * ends.get(window.end, window.end)
    return None if total % 5 == 0 else total % PRIME


def tallies(bag: Bag) -> Iterator[tuple[int | None, int]]:
    """How often each value is there; nothing of some bags."""
    if bag.total() % 4:
        yield from sorted(bag.items(), key=repr)


def lives(bag: Bag, window: Any) -> Iterator[Any]:
    """A row for most members, some of which live longer than those, or on the window; nothing of some bags."""
    total = bag.total()
    for a, b, v in sorted(bag.elements(), key=repr) if total % 4 < 3 else ():
        start = max(a, window.start)
        end = None if b is None else max(start + 1, b + (v or 0) % 3)
        yield (v, total) if v is None else (start, end, v, total)


def lived(bag: Bag, window: Any) -> Iterator[Any]:
    """Each member's lifetime within the window, and how many members started before it: nothing later changes that."""
    for a, b, v in sorted(bag.elements(), key=repr):
        ends = [end for end in (b, window.end) if end is not None]
        before = sum(n for (start, _, _), n in bag.items() if start < a)
        yield max(a, window.start), min(ends, default=None), v, before


def at_last(bag: Bag, window: Any) -> Iterator[Any]:
    """A row at the last instant of the window, when all its members are there, and how long they lived in it."""
    if window.end is not None:
        ends = sum(n * min(b or window.end, window.end) for (_, b, _), n in bag.items())
        values = sum(weight(v) * n for (_, _, v), n in bag.items())
        yield window.end - 1, window.end, values % PRIME, ends


def on_axis(answer: Any, window: Any) -> Any:
    """An answer whose rows have their lifetimes in ticks, with instants of the window's axis."""
    if not isinstance(answer, Iterator) or not isinstance(window.start, pd.Timestamp):
        return answer
    return (row if len(row) == 2 else (instant(row[0]), instant(row[1]), *row[2:]) for row in answer)


def instant(ticks: int | None) -> pd.Timestamp | None:
    return None if ticks is None else pd.Timestamp(ticks, unit="us", tz="UTC")


# the forms that modules have

Code = Callable[..., Any]


def function(result: Code, *, timed: bool) -> Code:
    """A function of a whole window."""
    if timed:
        return lambda events, window: on_axis(result(of_events(events), bounds(window)), window)
    return lambda values: result(of_values(values))


def incremental(result: Code, *, timed: bool) -> type:
    """A class that adds and removes."""
    members, ask = (of_events if timed else of_values), result

    class Incremental:
        def initial(self) -> Bag:
            return Counter()

        def add(self, state: Bag, events: Any) -> Bag:
            return state + members(events)

        def remove(self, state: Bag, events: Any) -> Bag:
            assert members(events) <= state, "what was never added is removed"
            return state - members(events)

        def result(self, state: Bag, *window: Any) -> Any:
            answer = ask(state, *map(bounds, window))
            return on_axis(answer, *window) if window else answer

    return Incremental


def merging(result: Code, *, timed: bool) -> type:
    """A class that merges, too, if it does not read lifetimes."""
    if timed:
        return incremental(result, timed=timed)

    class Merging(incremental(result, timed=timed)):  # type: ignore[misc]
        def merge(self, a: Bag, b: Bag) -> Bag:
            return a + b

    return Merging


def adding(result: Code, *, timed: bool) -> type:
    """A class that only adds."""

    class Adding(incremental(result, timed=timed)):  # type: ignore[misc]
        remove = None

    return Adding


FORMS = {"function": function, "incremental": incremental, "merging": merging, "adding": adding}
KINDS = ("uda", "udo")
OWN_STAMPS = ("unchanged", "clip", "time_bound")


def made(kind: str, form: str, *, timed: bool, result: Code, name: str, **more: Any) -> Any:
    decorator, returns = (sq.uda, "bigint") if kind == "uda" else (sq.udo, "a bigint, b bigint")
    return decorator(returns, name=name, time_sensitive=timed, **more)(FORMS[form](result, timed=timed))


RESULTS = {("uda", False): number, ("uda", True): timed_number, ("udo", False): tallies, ("udo", True): lives}

MODULES = {
    (kind, form, timed): made(
        kind, form, timed=timed, result=RESULTS[kind, timed], name=f"{form}_{RESULTS[kind, timed].__name__}"
    )
    for kind, form, timed in itertools.product(KINDS, FORMS, (False, True))
}
"""By kind, form, and whether it is time-sensitive."""

BOUND = {
    (form, result): made(
        "udo", form, timed=True, result=result, name=f"{form}_{result.__name__}", properties=[sq.time_bound]
    )
    for form, result in itertools.product(FORMS, (lived, at_last))
}
"""Operators that keep a promise to be time-bound, by form and what they make."""


@sq.uda("bigint", name="in_order")
def in_order(values: pd.Series) -> int:
    """A number that goes by the order of members."""
    total = 0
    for value in values:
        total = (total * 31 + weight(plain(value))) % PRIME
    return total


@sq.udo("v bigint, n bigint", name="per_value", time_sensitive=True, columns=["v"], properties=[sq.filters_on("v")])
def per_value(events: pd.DataFrame, window: Any) -> Iterator[tuple[int | None, int]]:
    """A row for each value, with a number that tells most lifetimes apart."""
    numbers: Counter[int | None] = Counter()
    for (a, b, v), n in of_events(events).items():
        numbers[v] += (5 * a + 7 * (-1 if b is None else b)) * n
    yield from sorted(numbers.items(), key=repr)


# windows, and the ways to use modules over them

Windows = Callable[..., Any]
WINDOWS: dict[str, Windows] = {
    "hopping": lambda s, **p: s.hopping_window(4, 2, 1, **p),
    "tumbling": lambda s, **p: s.tumbling_window(5, **p),
    "snapshot": lambda s, **p: s.snapshot_window(**p),
    "sliding": lambda s, **p: s.sliding_window(3, **p),
    "count": lambda s, **p: s.count_window(2, **p),
    "ends": lambda s, **p: s.count_window(2, by="end", **p),
    "rows": lambda s, **p: s.rows_window(3, 2, order_by="v", **p),
    "session": lambda s, **p: s.session_window(4, **p),
    "landmark": lambda s, **p: s.landmark_window(3, period=9, **p),
    "hopping over 3 ticks": lambda s, **p: s.hopping_window(4, 2, 1, **p),
}
OVER_TICKS = ("hopping over 3 ticks",)
"""Windows over events that last 3 ticks each, so that each window may have a state of a module."""

CLIPS = ("full", "left", "right", "none")
STAMPS = ("align", "point_at_end", *OWN_STAMPS)

MEETS = ("count", "ends", "rows", "landmark")
"""Windows that are there only once their last members are, so that what is time-bound comes at their last instant."""


@dataclass(frozen=True)
class Choice:
    """A way to use a module."""

    kind: str
    form: str
    timed: bool
    window: str
    clip: str
    stamp: str

    def parts(self) -> tuple[Any, ...]:
        return self.kind, self.form, self.timed, self.window, self.clip, self.stamp

    @property
    def module(self) -> Any:
        if self.kind == "udo" and self.timed and self.stamp == "time_bound":
            return BOUND[self.form, at_last if self.window in MEETS else lived]
        return MODULES[self.kind, self.form, self.timed]

    def over(self, stream: Stream, *keys: str, where: Any = None) -> Stream:
        """The query, with what it is, and ``a`` and ``b``."""
        stream = stream.set_duration(3) if self.window in OVER_TICKS else stream
        grouped: Any = stream.group_by(*keys) if keys else stream
        applied: Aggregate = self.module("v", where=where)
        windows = WINDOWS[self.window](grouped, clip_input=self.clip, stamp=self.stamp)
        rows = windows.select(applied) if self.kind == "udo" else windows.select(a=applied, b=sq.count())
        key = sq.col(keys[0]) if keys else sq.lit(None).cast("string")
        return rows.select(of=sq.lit(str(self)), k=key, a=sq.col("a"), b=sq.col("b"))

    def __str__(self) -> str:
        """What it is but for its form, which makes no difference to the answer."""
        timed = "timed" if self.timed else "plain"
        return f"{timed} {self.kind} over {self.window}, clip {self.clip}, stamp {self.stamp}"


CHOICES = [Choice(*parts) for parts in itertools.product(KINDS, FORMS, (False, True), WINDOWS, CLIPS, STAMPS)]


def refused(choice: Choice) -> str | None:
    """What an error says of a choice that is not allowed (docs/modules.md); None for one that is."""
    if choice.window == "ends" and choice.clip in ("left", "full"):
        return f"count_window: windows of ends clip right or not at all; found {choice.clip!r}"
    if choice.stamp in OWN_STAMPS and choice.kind == "uda":
        return f"select: stamp '{choice.stamp}' is for operations that give their own lifetimes; aggregates and top_k have none"
    if choice.stamp in OWN_STAMPS and not choice.timed:
        why = "for operators that give their own lifetimes; it is not time-sensitive"
        return f"{choice.module.name}: stamp '{choice.stamp}' is {why}"
    return None


ALLOWED = [choice for choice in CHOICES if refused(choice) is None]


def together(stream: Stream, choices: Iterable[Choice]) -> Stream:
    """Many queries as one, by groups and not, with a filter and without, in turn."""
    ways = itertools.cycle([((), None), (("k",), None), ((), sq.col("v") > 1), (("k",), sq.col("v").is_not_null())])
    first, *others = (
        choice.over(stream, *keys, where=where) for choice, (keys, where) in zip(choices, ways, strict=False)
    )
    return first.union(*others) if others else first


# What arrives at queries with modules: corrections and disorder in a few micro-batches; and a sample of ways to use modules.

S = sq.events(
    [sq.insert(1, 4, k="a", v=3), sq.retract(1, 4, 2, k="a", v=3), sq.cti(2)],
    name="s",
    schema={"k": "string", "v": "bigint"},
)
DATA = t.Intent(
    events=6,
    duration=("short", "infinite"),
    late="none",
    invalid=False,
    payload={"k": ["a", "b"], "v": [0, 1, 2, 3, 4, None]},
)
BATCHES = 3
"""So many micro-batches a case: in the second and third what came before changes, and is read back from the state."""

SAMPLE = covering(ALLOWED, Choice.parts)


def cut(case: Case) -> Case:
    """The case in so many micro-batches; of lifetimes without an end a few windows are there behind the last instant."""
    n = len(case.arrival)
    lengths = (n * (i + 1) // BATCHES - n * i // BATCHES for i in range(BATCHES))
    return replace(case, until=case.latest + 3).with_cut(*lengths)


CASES = t.concrete(S, DATA).filter(lambda case: 8 <= len(case.arrival) <= 12).map(cut)


def over(case: Case, choices: Iterable[Choice]) -> Case:
    """The choices as one query over what arrives."""
    return replace(case, plan=together(case.query, choices).plan)
