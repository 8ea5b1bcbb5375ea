"""``check_module``: check the laws of user-defined modules (zero, add, remove, merge) on random values.

A module that breaks them gives wrong windows in silence, as hosts merge basic windows, remove retracted events and repeat calls
after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from pyspark.sql import types as t

from streamq.choices import check_word
from streamq.errors import PlanError, TypeMismatch, check_keywords
from streamq.plan.spark_types import parse_type
from streamq.runtime.arrow.arrow_types import BITS
from streamq.testing.intent import ANYTHING
from streamq.testing.module_forms import WINDOW, Check, CheckedModule, Rows, checked_form
from streamq.testing.module_laws import LAWS, Bags, Law, LawBroken
from streamq.testing.payload_values import pool
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
    instants = t.TimestampType() if axis == TIMESTAMP else t.LongType()
    form = checked_form(module, Check(kinds, instants, reference, order_insensitive))
    broken = LawSearch(form, values, tried, seed, tolerance).broken()
    if broken is not None:
        # drop Hypothesis' notes on its own calls
        broken.__notes__ = []
        raise broken.with_traceback(None) from broken.__cause__
    return tuple(dict.fromkeys(law.name for law in LAWS if form.has(law.need)))


def _kinds(types: Any) -> list[t.DataType]:
    """Return the argument types that a text names, none for an empty one; raise TypeMismatch for no text or no type."""
    if not isinstance(types, str):
        hint = 'Write names in SQL, "double, string".'
        raise TypeMismatch(VERB, "not the types of the arguments", f"found {types!r}", hint)
    kinds: list[t.DataType] = []
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
    """The search for the smallest events over which a module breaks a law, with Hypothesis' settings ``tried``.

    ``values`` draws those of an event in place of the values of its types.
    """

    module: CheckedModule
    values: st.SearchStrategy[Any] | None
    tried: settings
    seed: int | None
    tolerance: float

    def broken(self) -> LawBroken | None:
        """Return the error for the smallest values that break a law, or None if all hold; the error is not raised.

        All laws are tried on each example until one fails; only that law is then tried on smaller examples.
        """
        laws = [law for law in LAWS if self.module.has(law.need)]
        tried: list[Law] = []
        first = self._broken(laws, tried, Phase.generate)
        if first is None:
            return None
        broken = [law for law in laws if law.name == tried[-1].name]
        return self._broken(broken, tried, Phase.generate, Phase.shrink) or first

    def _broken(self, laws: Sequence[Law], tried: list[Law], *phases: Phase) -> LawBroken | None:
        """Run these phases of the search and return the error, or None; append each law that breaks to ``tried``.

        A law that holds when Hypothesis repeats the example is reported as a breach of ``deterministic``.
        """
        breaches: list[LawBroken] = []

        def holds(drawn: Bags) -> None:
            """Raise the error of the first law that these bags break, and record both."""
            for law in laws:
                broken = law.broken(self.module, drawn, self.tolerance)
                if broken is not None:
                    tried.append(law)
                    breaches.append(broken)
                    raise broken

        names = sorted({name for law in laws for name in law.bags.values()})
        bags = st.fixed_dictionaries({name: self._bag(huge=name == "huge") for name in names})
        property_of_bags = settings(self.tried, phases=phases)(given(bags)(holds))
        try:
            (property_of_bags if self.seed is None else seeded(self.seed)(property_of_bags))()
        except LawBroken:
            # shrinking ends with the smallest example
            return breaches[-1]
        except Flaky:
            last = breaches[-1]
            claim = f"the law of {last.law} is broken in one run and holds in another on equal events"
            return LawBroken(self.module.name, "deterministic", claim, last.values, last.found, last.expected)
        return None

    def _bag(self, huge: bool) -> st.SearchStrategy[Rows]:
        """Return the strategy for one to four events and, in a third of the bags, three more copies of the last.

        ``huge``: with floats beside which sums lose small values. Lifetimes lie within the window in which modules are checked.
        """
        start, end = WINDOW
        before: st.SearchStrategy[tuple[int, ...]] = (
            st.just(()),
            st.integers(0, 3).map(lambda later: (later,)),
            st.integers(start, end - 1).flatmap(lambda a: st.tuples(st.just(a), st.integers(a + 1, end))),
        )[len(self.module.begins)]
        kinds, own = self.module.kinds, self.values
        if own is None or not kinds:
            own = st.tuples(*(values_of(kind, huge) for kind in kinds))
        elif len(kinds) == 1:
            own = own.map(lambda value: (value,))
        events = st.tuples(before, own).map(lambda drawn: (*drawn[0], *drawn[1]))
        bags = st.tuples(st.lists(events, min_size=1, max_size=4), st.sampled_from((0, 0, 3)))
        return bags.map(lambda drawn: [*drawn[0], *drawn[0][-1:] * drawn[1]])


# values


NAN, INF = float("nan"), float("inf")

HUGE_FLOATS: Mapping[type[t.DataType], tuple[float | None, ...]] = {
    t.DoubleType: (1e16, None, NAN, INF, -INF, -1e308, 1e308),
    t.FloatType: (1e16, None, NAN, INF, -INF, 3e38),
}
"""Floats that a running sum cannot remove again: adding one loses the digits of small values, or all digits."""


def values_of(kind: t.DataType, huge: bool = False) -> st.SearchStrategy[Any]:
    """Return the strategy for values of a type, with None for NULL; ``huge``: floats beside which sums lose small values.

    Raises PlanError for a type without values.
    """
    if isinstance(kind, t.ArrayType):
        return st.none() | st.lists(values_of(kind.elementType, huge), max_size=3)
    if huge and type(kind) in HUGE_FLOATS:
        return st.sampled_from(HUGE_FLOATS[type(kind)])
    first, second, *others = pool(kind, ANYTHING)
    # 1 shows more than 0 does, to which examples shrink else
    plainest = [second, first] if isinstance(kind, t.NumericType) else [first, second]
    return st.sampled_from([*plainest, None, *others, *_great(kind)])


def _great(kind: t.DataType) -> list[Any]:
    """Return great numbers of a type, of which no two cancel out, and wide characters.

    Sums of a few dozen of them still fit the type, but those of integers lose their last digits as floats.
    """
    match kind:
        case t.DoubleType() | t.FloatType():
            return [2.0**60]
        case t.DecimalType(precision=precision, scale=scale):
            return [Decimal(10 ** min(precision, 9) - 1).scaleb(-scale)]
        case t.StringType():
            return ["aa", "\uffff", "\N{GRINNING FACE}"]
    return [2 ** (BITS[type(kind)] - 7) + 1] if type(kind) in BITS else []
