"""``check_module``: the laws of aggregates and user-defined modules (zero, add, remove, merge), on random values.

Without them windows go wrong in silence: basic windows are merged, retracted events removed, calls repeated after a restart.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from pyspark.sql.types import DataType, LongType, TimestampType

from streamq.choices import check_word
from streamq.errors import PlanError, TypeMismatch, sentence
from streamq.plan.aggregate import Aggregate
from streamq.plan.spark_types import parse_type
from streamq.testing.decorated_modules import WINDOW, checked_decorated, decorated
from streamq.testing.event_functions import checked_function, event_function
from streamq.testing.module_forms import (
    HOP,
    SIZE,
    Checked,
    Rows,
    aggregate_forms,
    checked_module,
    given_aggregates,
    selected,
)
from streamq.testing.module_laws import LAWS, Bags, Law, LawBroken
from streamq.testing.module_values import values_of
from streamq.testing.stateful_modules import checked_stateful, stateful
from streamq.time import INTEGER, TIMESTAMP

VERB = "check_module"
GROUPS = 16
"""Aggregates are checked with up to so many groups of events at a time."""


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
    """Check the laws of an aggregate or a user-defined module; raises LawBroken with the smallest values that break one.

    ``module`` is

    - what ``sq.uda`` or ``sq.udo`` has made, with the properties, the options and the sense of time that it was declared with;
      its results must be of its type. A time-sensitive one without ``columns=`` comes applied, ``load("v")``, so that its
      arguments have names, or ``alive()`` if it reads lifetimes alone; its events lie in one window of an ``axis``, "integer" or
      "timestamp";
    - what ``sq.udf`` has made, with its options, or applied, ``size("v")``: a result for each event;
    - what ``sq.udso`` has made, with its options, or applied, ``delta("v")``: events come one after the other, and its answer
      are the rows of all of them and the state behind the last; a time-sensitive one is given starts that rise;
    - an object, or a class without parameters, with ``initial()``, ``add(state, values)``, ``result(state)`` and maybe
      ``remove(state, values)`` and ``merge(a, b)``. Values are a pandas Series an argument; states are values: a method gives
      a new one and leaves those it is given as they are, for windows share them;
    - one in the shape of Spark's Aggregator: ``zero()``, ``reduce(buffer, value)``, ``merge(a, b)``, ``finish(buffer)``, a
      tuple for several arguments; ``reduce`` and ``merge`` may change and return their first buffer;
    - a function of all values of a window, a Series an argument;
    - an aggregate, such as ``sq.sum("v")``, or a list of them as in one ``select``: checked in every way it is computed.

    ``types`` are the arguments' in SQL, ``"double, string"``; for aggregates those of the columns in the order in which they
    are named, or one for all; ``""`` for what takes no column.

    The laws:

    - *answers*: it does not raise over one or more events; *deterministic*: the same call on a copy gives exactly the same;
      *pure*: no state and no value that it was given changes;
    - *zero*: no events change nothing, nor does merging with ``initial()``; *add*: events in parts are events at once; *order*:
      and in any order (of a function only if it is declared ``order_insensitive``);
    - *remove*: what is added and removed leaves no trace. No float may be subtracted back out of a running sum;
    - *merge*: parts merged are the whole, associative and commutative;
    - *time_bound*, of an operator that promises it: what starts at an instant changes no row before it;
    - *filters_on*, of an operator that promises it: events of one value give the rows of that value that all events give;
    - *apart*, of a function of one event's values: what it gives for an event goes by that event alone;
    - *reference*: it gives what ``reference``, a function of Series, gives; of an aggregate, what the oracle does.

    Each law is tried on about ``examples`` small bags of events: NULLs, NaN, infinities, -0.0, duplicates, great numbers,
    characters of every width. ``values`` are those of one event instead (a tuple for several arguments), for a module that
    raises for others on purpose: a list, ``[1.0, 2.0]``, or a Hypothesis strategy, ``st.floats(0.5, 100)``. Floats from it
    whose sums depend on the order break *add* and *merge*. Floats are equal within ``tolerance`` times the greater of them
    and 1. ``seed``: other examples; without one every run tries the same. Returns the names of the laws that were checked.
    Raises PlanError for what is no module, for values that are none, and for a class whose objects take arguments;
    TypeMismatch for a type that does not exist or does not fit.

    >>> import streamq as sq
    >>> from streamq.testing.modules import check_module
    >>> class Mean:
    ...     def initial(self): return 0.0, 0
    ...     def add(self, state, values): return state[0] + values.sum(), state[1] + len(values)
    ...     def remove(self, state, values): return state[0] - values.sum(), state[1] - len(values)
    ...     def result(self, state): return state[0] / state[1]
    >>> check_module(Mean)
    Traceback (most recent call last):
    streamq.testing.module_laws.LawBroken: check_module: Mean breaks the law of remove: what is added and removed leaves no trace;
    found 0.0, expected 1.0. The smallest values that show it: rest = [1.0]; removed = [1e+16]
    >>> check_module(sq.max("v"), "string", examples=10)
    ('answers', 'deterministic', 'pure', 'zero', 'add', 'order', 'remove', 'merge', 'reference')
    """
    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
        raise PlanError(sentence(VERB, "examples is how many bags are tried, from 1", f"found {examples!r}"))
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
    window_module, walked, function = decorated(module), stateful(module), event_function(module)
    instants = TimestampType() if axis == TIMESTAMP else LongType()
    if function is not None:
        forms = [checked_function(function, kinds, reference, order_insensitive=order_insensitive)]
        bags = _Bags(kinds, values)
    elif walked is not None:
        asks = reference is not None or order_insensitive
        kinds = [] if walked[1] == 0 else kinds
        forms = [checked_stateful(*walked, kinds, instants, aggregates=asks)]
        bags = _Bags(kinds, values, follows=walked[0].time_sensitive)
    elif window_module is not None:
        kinds = [] if isinstance(module, Aggregate) and not module.args else kinds
        forms = [checked_decorated(*window_module, kinds, instants, reference, order_insensitive=order_insensitive)]
        bags = _Bags(kinds, values, timed=window_module[0].time_sensitive)
    elif (aggregates := given_aggregates(module)) is not None:
        select = selected(aggregates, kinds)
        forms = aggregate_forms(select)
        bags = _Bags([f.type for f in select.payload.fields[1:]], values, GROUPS)
        tried = settings(tried, max_examples=max(1, examples // GROUPS))
    else:
        _check_made(module)
        if not kinds:
            raise PlanError(sentence(VERB, "no types", "it is called with a Series an argument", 'Say "double".'))
        forms = [checked_module(module, kinds, order_insensitive, reference)]
        bags = _Bags(kinds, values)
    for form in forms:
        broken = _Search(bags, tried, seed, tolerance).broken(form)
        if broken is not None:
            # without what Hypothesis says of its own calls
            broken.__notes__ = []
            raise broken.with_traceback(None) from broken.__cause__
    return tuple(dict.fromkeys(law.name for law in LAWS if any(form.has(law.need) for form in forms)))


def _kinds(types: Any) -> list[DataType]:
    if not isinstance(types, str):
        hint = 'Write names in SQL, "double, string".'
        raise TypeMismatch(sentence(VERB, "not the types of the arguments", f"found {types!r}", hint))
    kinds: list[DataType] = []
    if not types.strip():
        return kinds
    for part in re.split(r",(?![^(<]*[)>])", types):
        try:
            kinds.append(parse_type(part))
        except TypeMismatch as error:
            hint = str(error).partition(". ")[2]
            raise TypeMismatch(sentence(VERB, "no such type", f"found {part.strip()!r} in {types!r}", hint)) from None
    return kinds


def _strategy(values: Any) -> st.SearchStrategy[Any] | None:
    """Return what draws the values of events; raises PlanError for what are none."""
    if values is None or isinstance(values, st.SearchStrategy):
        return values
    if not isinstance(values, list | tuple) or not values:
        hint = "Write a list, [1.0, 2.0], or a Hypothesis strategy, st.floats(0.5, 100)."
        raise PlanError(sentence(VERB, "no values", f"found values={values!r}", hint))
    return st.sampled_from(values)


def _check_made(module: Any) -> None:
    """A class is made into an object without arguments, or not at all."""
    if not inspect.isclass(module):
        return
    try:
        inspect.signature(module).bind()
    except TypeError as error:
        hint = f"Give an object: {module.__name__}(...)."
        raise PlanError(sentence(VERB, f"{module.__name__} takes arguments", str(error), hint)) from None
    except ValueError:
        # a class that is not written in Python does not say what it takes
        return


@dataclass(frozen=True)
class _Bags:
    """Bags of events by the types of their values; of aggregates several groups of events with lifetimes.

    timed: events have lifetimes within the window in which decorated modules are checked; follows: an event says first how much
    later than the one before it starts.
    """

    kinds: Sequence[DataType]
    values: st.SearchStrategy[Any] | None
    groups: int = 0
    timed: bool = False
    follows: bool = False

    def drawn(self, laws: Sequence[Law]) -> st.SearchStrategy[Bags]:
        """The bags that laws take, none empty; ``huge`` holds values that float sums lose others beside."""
        names = sorted({name for law in laws for name in law.bags.values()})
        return st.fixed_dictionaries({name: self._bag(name == "huge") for name in names})

    def _bag(self, huge: bool) -> st.SearchStrategy[Rows]:
        one = self._row(huge)
        if self.timed:
            start, end = WINDOW
            lifetimes = st.integers(start, end - 1).flatmap(lambda a: st.tuples(st.just(a), st.integers(a + 1, end)))
            return _some(st.tuples(lifetimes, one).map(lambda drawn: (*drawn[0], *drawn[1])))
        if self.follows:
            return _some(st.tuples(st.integers(0, 3), one).map(lambda drawn: (drawn[0], *drawn[1])))
        if not self.groups:
            return _some(one)
        alive = st.tuples(st.integers(0, SIZE - 1), st.integers(1, HOP), one)
        rows_of_bag = alive.map(lambda drawn: (drawn[0], drawn[0] + drawn[1], *drawn[2]))
        groups = st.lists(_some(rows_of_bag), min_size=1, max_size=self.groups)
        return groups.map(lambda drawn: [(g, *row) for g, rows in enumerate(drawn) for row in rows])

    def _row(self, huge: bool) -> st.SearchStrategy[tuple[Any, ...]]:
        if self.values is None or not self.kinds:
            return st.tuples(*(values_of(kind, huge) for kind in self.kinds))
        return self.values if len(self.kinds) > 1 else self.values.map(lambda v: (v,))


def _some(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Some are equal; in some bags most."""
    bags = st.tuples(st.lists(one, min_size=1, max_size=4), st.sampled_from((0, 0, 3)))
    return bags.map(lambda drawn: [*drawn[0], *drawn[0][-1:] * drawn[1]])


@dataclass(frozen=True)
class _Search:
    """How the smallest values that break a law are looked for."""

    bags: _Bags
    tried: settings
    seed: int | None
    tolerance: float

    def broken(self, module: Checked) -> LawBroken | None:
        """How the module breaks a law, if it does: all are tried on one example, then the one that failed on smaller ones."""
        laws = [law for law in LAWS if module.has(law.need)]
        tried: list[Law] = []
        first = self._broken(laws, module, tried, Phase.generate)
        if first is None:
            return None
        broken = [law for law in laws if law.name == tried[-1].name]
        return self._broken(broken, module, tried, Phase.generate, Phase.shrink) or first

    def _broken(self, laws: Sequence[Law], module: Checked, tried: list[Law], *phases: Phase) -> LawBroken | None:
        """As ``broken``, in some phases of the search; ``tried`` is given each law that is broken on the way."""
        breaches: list[LawBroken] = []

        def holds(drawn: Bags) -> None:
            for law in laws:
                broken = law.broken(module, drawn, self.tolerance)
                if broken is not None:
                    tried.append(law)
                    breaches.append(broken)
                    raise broken

        property_of_bags = settings(self.tried, phases=phases)(given(self.bags.drawn(laws))(holds))
        try:
            (property_of_bags if self.seed is None else seeded(self.seed)(property_of_bags))()
        except LawBroken:
            # shrinking ends with the smallest
            return breaches[-1]
        except Flaky:
            last = breaches[-1]
            claim = f"the law of {last.law} is broken in one try, and holds in the next"
            return LawBroken(module.name, "deterministic", claim, last.values, last.found, last.expected)
        return None


__all__ = ["GROUPS", "LAWS", "LawBroken", "check_module"]
