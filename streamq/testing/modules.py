"""``check_module``: check the laws of user-defined modules (zero, add, remove, merge) on random values.

A module that breaks them gives wrong windows in silence, as hosts merge basic windows, remove retracted events and repeat calls
after a restart.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from streamq.choices import check_word
from streamq.errors import PlanError, TypeMismatch
from streamq.keywords import check_keywords
from streamq.plan.spark_types import parse_type
from streamq.runtime.arrow.arrow_types import BITS
from streamq.testing.module_forms import WINDOW, Check, CheckedModule, Rows, checked_form
from streamq.testing.module_laws import LAWS, Bags, Law, LawBroken
from streamq.time import INTEGER, TIMESTAMP

VERB = "check_module"


@check_keywords
def check_module(
    module: Any,
    types: str = "double",
    *,
    reference: Callable[..., Any] | None = None,
    order_insensitive: bool = False,
    examples: int = 100,
    seed: int | None = None,
    values: st.SearchStrategy[Any] | Sequence[Any] | None = None,
    tolerance: float = 1e-9,
    axis: str = INTEGER,
) -> tuple[str, ...]:
    """Check the laws of a user-defined module; raise LawBroken with the smallest values that break one.

    ``module`` is one of

    - a module made by ``sq.uda`` or ``sq.udo``, or an applied one, with its parameters: ``Ewm("v", tau=6.0)``. It is checked with
      its declared properties and options; its results must be of its declared type. A time-sensitive module declared without
      ``columns=`` must be applied, ``load("v")``, which names its arguments, or ``alive()`` if it reads lifetimes alone. Its
      events lie in one window of the ``axis``, "integer" or "timestamp";
    - a function made by ``sq.udf``, or an applied one, ``size("v")``; its result is a value for each event;
    - a scan made by ``sq.udso``, or an applied one, ``delta("v")``. Its events come one after the other; its result is the rows
      of all of them and the state after the last. A time-sensitive one gets rising starts;
    - an object, or a class without parameters, with ``initial()``, ``add(state, values)``, ``result(state)`` and optionally
      ``remove(state, values)`` and ``merge(a, b)``. Values are a pandas Series for each argument. A method returns a new state
      and does not change its arguments, because windows share states;
    - an object in the shape of Spark's Aggregator: ``zero()``, ``reduce(buffer, value)``, ``merge(a, b)``, ``finish(buffer)``;
      the value is a tuple if there are several arguments. ``reduce`` and ``merge`` may change and return their first buffer;
    - a function of all values of a window, with a Series for each argument;

    ``types`` are the types of the arguments in SQL, ``"double, string"``; for an applied function those of the columns in the
    order in which they are named; for an applied module one may stand for all; ``""`` for a module that reads no column.

    The laws:

    - *answers*: no method raises over one or more events; *deterministic*: equal calls on copies of a state give exactly equal
      results, and the first call of a copy of the code, as in a new worker, gives those of later calls; *pure*: no method
      changes its arguments;
    - *zero*: adding no events, or merging with ``initial()``, changes nothing; *add*: adding events in parts equals adding them
      at once; *order*: events in any order give the same result (for a function only if declared ``order_insensitive``);
    - *remove*: adding events and removing them changes nothing. It forbids subtracting floats from a running sum;
    - *merge*: merging the states of parts gives the state of the whole; it is associative and commutative;
    - *time_bound*, for an operator that promises it: events that start at an instant or later change no row before it;
    - *filters_on*, for an operator that promises it: rows with one value of the columns depend only on events with that value;
    - *apart*, for a function of one event's values: the result for an event depends on that event alone;
    - *reference*: the result is that of ``reference``, a function of Series.

    Each law is tried on about ``examples`` small bags of events, with NULLs, NaN, infinities, -0.0, duplicates, great numbers
    and characters of every width. ``values`` replaces the values of one event (a tuple for several arguments), for a module
    that raises for others on purpose: a list, ``[1.0, 2.0]``, or a Hypothesis strategy, ``st.floats(0.5, 100)``. A strategy
    with floats whose sums depend on their order breaks *add* and *merge*. Floats are equal within ``tolerance`` times the
    greater of them and 1. ``seed`` selects other examples; without it every run tries the same.

    Returns the names of the laws that were checked. Raises PlanError for an object that is not a module, for illegal values, for
    a class whose constructor takes arguments, and for code that cannot be pickled; TypeMismatch for a type that does not exist or
    does not fit.

    >>> from streamq.testing.modules import check_module
    >>> class Mean:
    ...     def initial(self): return 0.0, 0
    ...     def add(self, state, values): return state[0] + values.sum(), state[1] + len(values)
    ...     def remove(self, state, values): return state[0] - values.sum(), state[1] - len(values)
    ...     def result(self, state): return state[0] / state[1]
    >>> check_module(Mean)
    Traceback (most recent call last):
    streamq.testing.module_laws.LawBroken: check_module: Mean breaks the law of remove: adding events and removing them changes
    nothing; found 0.0, expected 1.0. The smallest values that show it: rest = [1.0]; removed = [1e+16]
    >>> check_module(lambda values: len(values), "string", examples=10)
    ('answers', 'deterministic', 'pure')
    """
    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
        raise PlanError(VERB, "examples is not a whole number of at least 1", f"found {examples!r}")
    kinds, values = _kinds(types), _strategy(values)
    tried = settings(
        max_examples=examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    check_word(axis, (INTEGER, TIMESTAMP), "axis", VERB)
    instants = TimestampType() if axis == TIMESTAMP else LongType()
    form = checked_form(module, Check(kinds, instants, reference, order_insensitive))
    broken = LawSearch(_bag(form, values), tried, seed, tolerance).broken(form)
    if broken is not None:
        # drop Hypothesis' notes on its own calls
        broken.__notes__ = []
        raise broken.with_traceback(None) from broken.__cause__
    return tuple(dict.fromkeys(law.name for law in LAWS if form.has(law.need)))


def _kinds(types: Any) -> list[DataType]:
    """Return the argument types that a text names, none for an empty one; raise TypeMismatch for no text or no type."""
    if not isinstance(types, str):
        hint = 'Write names in SQL, "double, string".'
        raise TypeMismatch(VERB, "not the types of the arguments", f"found {types!r}", hint)
    kinds: list[DataType] = []
    if not types.strip():
        return kinds
    for part in re.split(r",(?![^(<]*[)>])", types):
        try:
            kinds.append(parse_type(part))
        except TypeMismatch as error:
            hint = str(error).partition(". ")[2]
            raise TypeMismatch(VERB, "no such type", f"found {part.strip()!r} in {types!r}", hint) from None
    return kinds


def _strategy(values: Any) -> st.SearchStrategy[Any] | None:
    """Return the strategy for the values of events, None if the user gives none; raise PlanError for illegal values."""
    if values is None or isinstance(values, st.SearchStrategy):
        return values
    if not isinstance(values, list | tuple) or not values:
        hint = "Write a list, [1.0, 2.0], or a Hypothesis strategy, st.floats(0.5, 100)."
        raise PlanError(VERB, "no values", f"found values={values!r}", hint)
    return st.sampled_from(values)


@dataclass(frozen=True)
class LawSearch:
    """The search for the smallest bags of events that break a law, with Hypothesis' settings ``tried``."""

    bag: Bag
    tried: settings
    seed: int | None
    tolerance: float

    def broken(self, module: CheckedModule) -> LawBroken | None:
        """Return the error for the smallest values that break a law, or None if all hold; the error is not raised.

        All laws are tried on each example until one fails; only that law is then tried on smaller examples.
        """
        laws = [law for law in LAWS if module.has(law.need)]
        tried: list[Law] = []
        first = self._broken(laws, module, tried, Phase.generate)
        if first is None:
            return None
        broken = [law for law in laws if law.name == tried[-1].name]
        return self._broken(broken, module, tried, Phase.generate, Phase.shrink) or first

    def _broken(self, laws: Sequence[Law], module: CheckedModule, tried: list[Law], *phases: Phase) -> LawBroken | None:
        """Run these phases of the search and return the error, or None; append each law that breaks to ``tried``.

        A law that holds when Hypothesis repeats the example is reported as a breach of ``deterministic``.
        """
        breaches: list[LawBroken] = []

        def holds(drawn: Bags) -> None:
            """Raise the error of the first law that these bags break, and record both."""
            for law in laws:
                broken = law.broken(module, drawn, self.tolerance)
                if broken is not None:
                    tried.append(law)
                    breaches.append(broken)
                    raise broken

        names = sorted({name for law in laws for name in law.bags.values()})
        bags = st.fixed_dictionaries({name: self.bag(name == "huge") for name in names})
        property_of_bags = settings(self.tried, phases=phases)(given(bags)(holds))
        try:
            (property_of_bags if self.seed is None else seeded(self.seed)(property_of_bags))()
        except LawBroken:
            # shrinking ends with the smallest example
            return breaches[-1]
        except Flaky:
            last = breaches[-1]
            claim = f"the law of {last.law} is broken in one run and holds in another on equal events"
            return LawBroken(module.name, "deterministic", claim, last.values, last.found, last.expected)
        return None


# bags of events


Bag = Callable[[bool], st.SearchStrategy[Rows]]
"""Returns the strategy for a bag of events, not empty; True: with floats beside which sums lose small values."""


def _bag(module: CheckedModule, values: st.SearchStrategy[Any] | None) -> Bag:
    """Return the strategies for bags of a module's events, with ``values`` in place of those of their types.

    Lifetimes lie within the window in which modules are checked.
    """
    start, end = WINDOW
    before: dict[int, st.SearchStrategy[tuple[int, ...]]] = {
        0: st.just(()),
        1: st.integers(0, 3).map(lambda later: (later,)),
        2: st.integers(start, end - 1).flatmap(lambda a: st.tuples(st.just(a), st.integers(a + 1, end))),
    }

    def bag(huge: bool) -> st.SearchStrategy[Rows]:
        own = st.tuples(before[len(module.begins)], event_values(module.kinds, values, huge))
        return with_copies_of(own.map(lambda drawn: (*drawn[0], *drawn[1])))

    return bag


def event_values(
    kinds: Sequence[DataType], values: st.SearchStrategy[Any] | None, huge: bool
) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return a strategy for the tuple of an event's values; a user's strategy draws the whole tuple if there are several."""
    if values is None or not kinds:
        return st.tuples(*(values_of(kind, huge) for kind in kinds))
    return values if len(kinds) > 1 else values.map(lambda v: (v,))


def with_copies_of(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Draw one to four elements and, in a third of the lists, three more copies of the last."""
    bags = st.tuples(st.lists(one, min_size=1, max_size=4), st.sampled_from((0, 0, 3)))
    return bags.map(lambda drawn: [*drawn[0], *drawn[0][-1:] * drawn[1]])


# values


NAN, INF = float("nan"), float("inf")


PLAIN_FLOATS = (1.0, 0.0, 2.5, -0.25, None, 7.0, NAN, INF, -INF, -0.0, 2.0**60)
"""Floats whose sums, and sums of squares, are exact or differ by rounding only, in any order: no great ones cancel out."""


HUGE_FLOATS = {DoubleType: (1e16, None, NAN, INF, -INF, -1e308, 1e308), FloatType: (1e16, None, NAN, INF, -INF, 3e38)}
"""Floats that a running sum cannot remove again: adding one loses the digits of small values, or all digits."""


TEXTS = ("a", "", "b", None, "aa", "B", "é", "e\u0301", "ß", " a", "日本", "\uffff", "😀")


_DAYS = (dt.date(1970, 1, 1), None, dt.date(2000, 2, 29), dt.date(1969, 12, 31), dt.date(1900, 1, 1))


_TIMES = (0, None, 1, -1, 951_782_400_000_000)


def values_of(kind: DataType, huge: bool = False) -> st.SearchStrategy[Any]:
    """Return the strategy for values of a type, with None for NULL; ``huge``: floats beside which sums lose small values.

    Raises PlanError for a type without values.
    """
    if isinstance(kind, ArrayType):
        return st.none() | st.lists(values_of(kind.elementType, huge), max_size=3)
    return st.sampled_from(_values(kind, huge))


def _values(kind: DataType, huge: bool) -> Sequence[Any]:
    """Return the values of a type that is not an array, the plainest first; ``huge`` as for :func:`values_of`.

    Raises PlanError for a type without values.
    """
    match kind:
        case DoubleType() | FloatType():
            return HUGE_FLOATS[type(kind)] if huge else PLAIN_FLOATS
        case DecimalType(precision=precision, scale=scale):
            units = (100, 0, 1, None, -250, 333, 10 ** min(precision, 9) - 1)
            return [None if n is None else Decimal(n).scaleb(-scale) for n in units if n is None or n < 10**precision]
        case BooleanType():
            return (True, False, None)
        case StringType():
            return TEXTS
        case BinaryType():
            return (b"a", b"", None, b"\x00", b"\xff")
        case DateType():
            return _DAYS
        case TimestampType() | TimestampNTZType():
            zone = dt.UTC if isinstance(kind, TimestampType) else None
            epoch = dt.datetime(1970, 1, 1, tzinfo=zone)
            return [None if n is None else epoch + dt.timedelta(microseconds=n) for n in _TIMES]
    if type(kind) in BITS:
        # sums of a few dozen of the greatest still fit the type, but lose their last digits as floats
        return (1, 0, 2, None, -3, 7, 2 ** (BITS[type(kind)] - 7) + 1)
    raise PlanError(
        "check_module", f"no values of type {kind.simpleString()}", "", "Give a strategy: values=st.text()."
    )
