"""The laws of user-defined modules, the check of each, and the error for a broken one."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from streamq.errors import sentence
from streamq.runtime.user_code.code_values import FAILURES, LASTS, START, plain_result
from streamq.testing.module_forms import CheckedModule, Rows

ANSWERS = "answers"
"""The law that is broken if a method raises."""

ON_PURPOSE = (
    "If it need not accept such values, pass those that it accepts, as a list or a Hypothesis strategy: values=[...]"
)

Bags = dict[str, Rows]
Claim = tuple[str, Any, Any]
"""A law's claim on some events in words, the actual outcome and the expected one."""


class LawBroken(AssertionError):
    """Raised when a module breaks a law.

    ``law`` is the law's name, ``values`` the bags of events by their role in the law, ``found`` and ``expected`` the two results.
    """

    def __init__(self, module: str, law: str, claim: str, values: Mapping[str, Any], found: Any, expected: Any):
        """Word the error: ``claim`` says in words what should hold, and ``values`` are shown as the smallest that break it."""
        self.module, self.law, self.values, self.found, self.expected = module, law, dict(values), found, expected
        shown = "; ".join(f"{name} = {rows!r}" for name, rows in values.items())
        results = f"found {found!r}, expected {expected!r}"
        hint = f"The smallest values that show it: {shown}"
        if law == ANSWERS:
            hint += f". {ON_PURPOSE}"
        super().__init__(sentence("check_module", f"{module} breaks the law of {law}: {claim}", results, hint))


@dataclass(frozen=True)
class Law:
    """A law: for any events, the two outcomes of each claim that ``claims`` yields must be equal.

    ``need``: the property that a module must have for the law to apply. ``bags``: the bags of events that the law reads, by their
    names in the law. ``exact``: floats must be equal without tolerance.
    """

    name: str
    need: str
    bags: Mapping[str, str]
    claims: Callable[..., Iterator[Claim]]
    exact: bool = False

    def broken(self, module: CheckedModule, drawn: Bags, tolerance: float) -> LawBroken | None:
        """Return the error if the module breaks the law on these events, else None.

        ``drawn`` holds the bags of events by name. A method that raises outside of an outcome breaks the law ``answers``.
        """
        bags = {name: drawn[bag] for name, bag in self.bags.items()}
        allowed = 0.0 if self.exact else tolerance
        try:
            with warnings.catch_warnings():
                # means of nothing and sums of infinities are computed on purpose
                warnings.simplefilter("ignore", RuntimeWarning)
                for claim, actual, expected in self.claims(module, **bags):
                    if not same(actual, expected, allowed):
                        return self._broken(module, bags, claim, *differing(actual, expected, allowed))
        except FAILURES as error:
            return self._broken(module, bags, "a method raises", RaisedError(error), "a state", name=ANSWERS)
        return None

    def _broken(
        self, module: CheckedModule, bags: Bags, claim: str, actual: Any, expected: Any, name: str | None = None
    ) -> LawBroken:
        """Return the error for a claim whose outcomes differ, caused by what a method raised, if any; ``name``: another law's."""
        shown = {name: shown_rows(rows, module.fields) for name, rows in bags.items()}
        error = LawBroken(
            module.name, name or self.name, claim, shown, with_lifetimes(actual), with_lifetimes(expected)
        )
        error.__cause__ = next((r.error for r in (actual, expected) if isinstance(r, RaisedError)), None)
        return error


# outcomes


@dataclass(frozen=True)
class RaisedError:
    """The outcome of a call that raised. A mean over nothing may divide by zero, but then it must do so always."""

    error: BaseException

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}({str(self.error)!r})"


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call as plain Python values, or RaisedError if it failed with one of FAILURES."""
    try:
        return plain(call())
    except FAILURES as error:
        return RaisedError(error)


def plain(value: Any) -> Any:
    """Convert values of numpy and pandas, and Arrow tables, to Python's; NA and NaT become None, NaN stays NaN.

    Tables and frames become dicts of lists; arrays, Series and tuples become lists. Other objects are returned as they are.
    """
    match value:
        case pa.Table():
            return value.to_pydict()
        case pd.DataFrame():
            return {name: plain(value[name]) for name in value.columns}
        case np.ndarray() | pd.Series():
            return [plain(v) for v in value.tolist()]
        case list() | tuple():
            return [plain(v) for v in value]
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case np.generic():
            return value.item()
    return None if value is pd.NA or value is pd.NaT else value


def same(a: Any, b: Any, tolerance: float) -> bool:
    """True if two outcomes are equal: NaN equals itself, floats within ``tolerance`` times the greater of them and 1.

    Calls that raised are equal if their errors have one class.
    """
    if isinstance(a, RaisedError) or isinstance(b, RaisedError):
        return isinstance(a, RaisedError) and isinstance(b, RaisedError) and type(a.error) is type(b.error)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], tolerance) for k in a)
    if isinstance(a, float | int) and isinstance(b, float | int) and float in (type(a), type(b)):
        near = abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) and math.isfinite(a) and math.isfinite(b)
        return a == b or (math.isnan(a) and math.isnan(b)) or near
    return bool(a == b)


def differing(a: Any, b: Any, tolerance: float) -> tuple[Any, Any]:
    """Return two outcomes as they are; of two dicts only the entries that differ, or that one of them lacks."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return a, b
    wrong = [k for k in {**a, **b} if k not in a or k not in b or not same(a[k], b[k], tolerance)]
    return {k: a[k] for k in wrong if k in a}, {k: b[k] for k in wrong if k in b}


def with_lifetimes(value: Any) -> Any:
    """Return an outcome for printing: rows with lifetimes of their own show start and end (None: no end), in ticks.

    Only rows that are the outcome itself or in its lists are changed; anything else is returned as it is.
    """
    match value:
        case list():
            return [with_lifetimes(v) for v in value]
        case dict() if START in value:
            start, lasts = value[START], value[LASTS]
            values = {name: v for name, v in value.items() if name not in (START, LASTS)}
            return {"start": start, "end": None if lasts is None else start + lasts, **values}
    return value


def shown_rows(rows: Rows, fields: Sequence[str]) -> list[Any]:
    """Return events for printing: the value if there is one field, else a dict by field."""
    return [row[0] if len(fields) == 1 else dict(zip(fields, row, strict=True)) for row in rows]


# laws


def _answers(m: CheckedModule, events: Rows) -> Iterator[Claim]:
    """No method raises over any events."""
    answer = outcome(lambda: m.answer(events))
    yield "it has a result over any events", answer, "a result" if isinstance(answer, RaisedError) else answer


def _deterministic(m: CheckedModule, events: Rows, others: Rows) -> Iterator[Claim]:
    """Each method, called twice on equal arguments, returns equal results."""

    def twice(call: Callable[[], Any]) -> tuple[Any, Any]:
        return outcome(call), outcome(call)

    claim = "equal calls on copies of a state give equal results"
    start, state = m.initial(), m.state(events)
    yield f"{claim} (add, result)", *twice(lambda: m.result(m.add(copy.deepcopy(start), m.events(events))))
    if m.remove is not None:
        remove, both = m.remove, m.state([*events, *others])
        yield f"{claim} (remove, result)", *twice(lambda: m.result(remove(copy.deepcopy(both), m.events(others))))
    if m.merge is not None:
        merge, other = m.merge, m.state(others)
        yield f"{claim} (merge, result)", *twice(lambda: m.result(merge(copy.deepcopy(state), copy.deepcopy(other))))


def _first_call(m: CheckedModule, events: Rows) -> Iterator[Claim]:
    """The first call of the code gives the result of later ones, whatever these were called with before."""
    assert m.fresh is not None
    fresh = m.fresh()
    claim = "the first call of the code gives the same result as later ones"
    # states are not compared, as they may be of classes of the code, of which the copy has its own
    yield claim, outcome(lambda: m.sent(m.answer(events))), outcome(lambda: fresh.sent(fresh.answer(events)))


def _pure(m: CheckedModule, events: Rows, others: Rows) -> Iterator[Claim]:
    """No method changes its arguments, and calls share no state; without parts, only that the values do not change."""
    values, before = m.events(events), plain(m.events(events))
    state = m.add(m.initial(), values)
    first = outcome(lambda: m.result(state))
    yield "add and result do not change the values", plain(values), before
    if not m.in_parts:
        return
    empty = outcome(lambda: m.result(m.initial()))
    start = m.initial()
    more = m.add(state, m.events(others))
    yield "add does not change its state argument", outcome(lambda: m.result(state)), first
    whole = outcome(lambda: m.result(more))
    if m.remove is not None:
        gone = m.events(others)
        m.remove(more, gone)
        yield "remove does not change its state argument", outcome(lambda: m.result(more)), whole
        yield "remove does not change the values", plain(gone), plain(m.events(others))
    if m.merge is not None:
        m.merge(state, more)
        yield "merge does not change its first state", outcome(lambda: m.result(state)), first
        yield "merge does not change its second state", outcome(lambda: m.result(more)), whole
    yield "nothing is kept between calls", outcome(lambda: m.result(start)), empty


def _zero(m: CheckedModule, events: Rows) -> Iterator[Claim]:
    """Adding no events, or merging with the initial state, before or after the events, does not change the result."""
    whole = outcome(lambda: m.answer(events))
    claim = "adding no events changes nothing"
    yield claim, outcome(lambda: m.result(m.add(m.add(m.initial(), m.events(())), m.events(events)))), whole
    yield claim, outcome(lambda: m.result(m.add(m.state(events), m.events(())))), whole
    if m.merge is not None:
        merge = m.merge
        claim = "merging with the initial state changes nothing"
        yield claim, outcome(lambda: m.result(merge(m.state(events), m.initial()))), whole
        yield claim, outcome(lambda: m.result(merge(m.initial(), m.state(events)))), whole


def _add(m: CheckedModule, first: Rows, then: Rows) -> Iterator[Claim]:
    """Adding events in two parts gives the result of adding them at once."""
    added = outcome(lambda: m.result(m.add(m.state(first), m.events(then))))
    yield "adding events in parts equals adding them at once", added, outcome(lambda: m.answer([*first, *then]))


def _order(m: CheckedModule, first: Rows, then: Rows) -> Iterator[Claim]:
    """Adding events in another order gives the same result."""
    reordered = outcome(lambda: m.answer([*then, *first[::-1]]))
    yield "events in another order give the same result", reordered, outcome(lambda: m.answer([*first, *then]))


def _remove_copies(m: CheckedModule, rest: Rows) -> Iterator[Claim]:
    """Adding the same events once more and removing them does not change the result."""
    yield from _remove(m, rest, rest)


def _remove(m: CheckedModule, rest: Rows, removed: Rows) -> Iterator[Claim]:
    """Adding events and removing them, at once or in two parts, leaves the result over the rest."""
    assert m.remove is not None
    remove, gone = m.remove, removed[::-1]
    whole = outcome(lambda: m.answer(rest))
    claim = "adding events and removing them changes nothing"
    yield claim, outcome(lambda: m.result(remove(m.add(m.state(rest), m.events(removed)), m.events(gone)))), whole
    yield claim, outcome(lambda: m.result(m.add(remove(m.state(removed), m.events(gone)), m.events(rest)))), whole
    one = m.events(gone[:1])
    remaining = outcome(lambda: m.result(remove(remove(m.state([*removed, *rest]), one), m.events(gone[1:]))))
    yield "adding events and removing them in parts changes nothing", remaining, whole


def _merge(m: CheckedModule, first: Rows, second: Rows, third: Rows) -> Iterator[Claim]:
    """Merging the states of parts gives the state of the whole; it is commutative and associative."""
    assert m.merge is not None
    merge = m.merge
    a, b, c = m.state(first), m.state(second), m.state(third)
    left = outcome(lambda: m.result(merge(a, b)))
    yield "merging the states of two parts gives the whole", left, outcome(lambda: m.answer([*first, *second]))
    yield "merge is commutative", outcome(lambda: m.result(merge(b, a))), left
    left = outcome(lambda: m.result(merge(merge(a, b), c)))
    right = outcome(lambda: m.result(merge(a, merge(b, c))))
    yield "merge is associative", right, left
    added = outcome(lambda: m.result(m.add(merge(a, b), m.events(third))))
    yield (
        "adding events to a merged state equals adding them at once",
        added,
        outcome(lambda: m.answer([*first, *second, *third])),
    )


def _time_bound(m: CheckedModule, events: Rows, later: Rows) -> Iterator[Claim]:
    """Later events do not change the parts of rows before their first start; a row without such a part is not compared."""
    starts = m.fields.index("start")
    at = min(row[starts] for row in later)

    def before(rows: Rows) -> list[Any]:
        return [cut for row in plain(m.answer(rows)) if (cut := _cut(row, at)) is not None]

    claim = f"events that start at {at} or later change no row before that"
    yield claim, outcome(lambda: before([*events, *later])), outcome(lambda: before(events))


def _cut(row: dict[str, Any], at: int) -> dict[str, Any] | None:
    """Return the part of an operator's row that lies before an instant; None if there is none."""
    row = with_lifetimes(row)
    end = at if row["end"] is None else min(row["end"], at)
    return None if row["start"] >= at else {**row, "end": end}


def _filters_on(m: CheckedModule, first: Rows, then: Rows) -> Iterator[Claim]:
    """The events with one value of the filter columns give exactly those rows of all events' results that have this value."""
    events, columns = [*first, *then], m.filters_on
    places = [m.fields.index(name) for name in columns]
    # pandas, and hence the code, treats NaN as NULL
    values_of_events = [[plain_result(event[i]) for i in places] for event in events]
    rows = [([row[name] for name in columns], row) for row in plain(m.answer(events))]
    values: list[list[Any]] = []
    for value in [*values_of_events, *(value for value, _ in rows)]:
        values += [value] if not any(same(value, other, 0.0) for other in values) else []
    for value in values:
        alone = [event for event, own in zip(events, values_of_events, strict=True) if same(own, value, 0.0)]
        shown = ", ".join(f"{name} = {v!r}" for name, v in zip(columns, value, strict=True))
        rows_of_all = [row for own, row in rows if same(own, value, 0.0)]
        claim = f"rows with {shown} depend only on events with {shown}"
        yield claim, rows_of_all, outcome(partial(m.answer, alone)) if alone else []


def _apart(m: CheckedModule, first: Rows, then: Rows) -> Iterator[Claim]:
    """The results for all events are those for each event alone."""
    together = outcome(lambda: m.answer([*first, *then]))
    claim = "the result for an event depends on that event alone"
    yield claim, together, outcome(lambda: [result for event in (*first, *then) for result in m.answer([event])])


def _reference(m: CheckedModule, events: Rows) -> Iterator[Claim]:
    """The result over any events is the reference's."""
    assert m.reference is not None
    reference = m.reference
    yield "the result is the reference's", outcome(lambda: m.answer(events)), outcome(lambda: reference(events))


LAWS = (
    Law(ANSWERS, "", {"events": "a"}, _answers),
    Law("deterministic", "", {"events": "a", "others": "b"}, _deterministic, exact=True),
    Law("deterministic", "fresh", {"events": "a"}, _first_call, exact=True),
    Law("pure", "", {"events": "a", "others": "b"}, _pure, exact=True),
    Law("zero", "in_parts", {"events": "a"}, _zero),
    Law("add", "in_parts", {"first": "a", "then": "b"}, _add),
    Law("order", "any_order", {"first": "a", "then": "b"}, _order),
    Law("remove", "remove", {"rest": "a", "removed": "huge"}, _remove),
    Law("remove", "remove", {"rest": "a", "removed": "b"}, _remove),
    Law("remove", "remove", {"rest": "a"}, _remove_copies),
    Law("merge", "merge", {"first": "a", "second": "b", "third": "c"}, _merge),
    Law("time_bound", "time_bound", {"events": "a", "later": "b"}, _time_bound),
    Law("filters_on", "filters_on", {"first": "a", "then": "b"}, _filters_on),
    Law("apart", "by_event", {"first": "a", "then": "b"}, _apart),
    Law("reference", "reference", {"events": "a"}, _reference),
)
"""The laws in the order in which they are checked; the first that a module breaks is mostly the cause of the others."""
