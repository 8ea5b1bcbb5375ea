"""``check_module``: check the laws of aggregates and user-defined modules (zero, add, remove, merge) on random values.

A module that breaks them gives wrong windows in silence, as hosts merge basic windows, remove retracted events and repeat calls
after a restart.
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
from streamq.keywords import check_keywords
from streamq.plan.aggregate import Aggregate
from streamq.plan.spark_types import parse_type
from streamq.testing.decorated_modules import (
    WINDOW,
    DecoratedModule,
    checked_applied,
    checked_decorated,
    checked_function,
    checked_stateful,
    decorated,
    event_function,
    stateful,
)
from streamq.testing.module_forms import (
    HOP,
    SIZE,
    CheckedModule,
    Rows,
    aggregate_forms,
    checked_module,
    in_one_select,
    listed_aggregates,
)
from streamq.testing.module_laws import LAWS, Bags, Law, LawBroken
from streamq.testing.module_values import values_of
from streamq.time import INTEGER, TIMESTAMP

VERB = "check_module"
GROUPS = 16
"""The greatest number of groups of events with which aggregates are checked at a time."""


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
    """Check the laws of an aggregate or a user-defined module; raise LawBroken with the smallest values that break one.

    ``module`` is one of

    - a module made by ``sq.uda`` or ``sq.udo``, checked with its declared properties and options; its results must be of its
      declared type. A time-sensitive module declared without ``columns=`` must be applied, ``load("v")``, which names its
      arguments, or ``alive()`` if it reads lifetimes alone. Its events lie in one window of the ``axis``, "integer" or
      "timestamp";
    - a function made by ``sq.udf``, or an applied one, ``size("v")``; its result is a value for each event;
    - a scan made by ``sq.udso``, or an applied one, ``delta("v")``. Its events come one after the other; its result is the rows
      of all of them and the state after the last. A time-sensitive one gets rising starts;
    - an object, or a class without parameters, with ``initial()``, ``add(state, values)``, ``result(state)`` and optionally
      ``remove(state, values)`` and ``merge(a, b)``. Values are a pandas Series for each argument. A method returns a new state
      and does not change its arguments, because windows share states;
    - an object in the shape of Spark's Aggregator: ``zero()``, ``reduce(buffer, value)``, ``merge(a, b)``, ``finish(buffer)``;
      the value is a tuple if there are several arguments. ``reduce`` and ``merge`` may change and return their first buffer;
    - a function of all values of a window, with a Series for each argument;
    - an aggregate, such as ``sq.sum("v")``, or a list of aggregates, as in one ``select``: checked in every way it is computed;
      one of a module with its parameters, ``Ewm("v", tau=6.0)``, by the laws of the module, too.

    ``types`` are the types of the arguments in SQL, ``"double, string"``; for aggregates the types of the columns in the order in
    which they are named, or one type for all; ``""`` for a module that reads no column.

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
    - *reference*: the result is that of ``reference``, a function of Series; for an aggregate, that of the oracle, too.

    Each law is tried on about ``examples`` small bags of events, with NULLs, NaN, infinities, -0.0, duplicates, great numbers
    and characters of every width. ``values`` replaces the values of one event (a tuple for several arguments), for a module
    that raises for others on purpose: a list, ``[1.0, 2.0]``, or a Hypothesis strategy, ``st.floats(0.5, 100)``. A strategy
    with floats whose sums depend on their order breaks *add* and *merge*. Floats are equal within ``tolerance`` times the
    greater of them and 1. ``seed`` selects other examples; without it every run tries the same.

    Returns the names of the laws that were checked. Raises PlanError for an object that is not a module, for illegal values, for
    a class whose constructor takes arguments, and for code that cannot be pickled; TypeMismatch for a type that does not exist or
    does not fit.

    >>> import streamq as sq
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
    >>> check_module(sq.max("v"), "string", examples=10)
    ('answers', 'deterministic', 'pure', 'zero', 'add', 'order', 'remove', 'merge', 'reference')
    """
    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
        raise PlanError(sentence(VERB, "examples is not a whole number of at least 1", f"found {examples!r}"))
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

    def over(kinds: Sequence[DataType], limits: settings = tried, **bags: Any) -> _Search:
        return _Search(_Bags(kinds, values, **bags), limits, seed, tolerance)

    searches: list[tuple[CheckedModule, _Search]]
    if function is not None:
        searches = [(checked_function(function, kinds, reference, order_insensitive=order_insensitive), over(kinds))]
    elif walked is not None:
        asks = reference is not None or order_insensitive
        kinds = [] if walked[1] == 0 else kinds
        walk = checked_stateful(*walked, kinds, instants, aggregates=asks)
        searches = [(walk, over(kinds, follows=walked[0].time_sensitive))]
    elif window_module is not None:
        kinds = [] if isinstance(module, Aggregate) and not module.args else kinds
        whole = checked_decorated(DecoratedModule(*window_module, kinds, instants, reference, order_insensitive))
        searches = [(whole, over(kinds, timed=window_module[0].time_sensitive))]
    elif (aggregates := listed_aggregates(module)) is not None:
        select = in_one_select(aggregates, kinds)
        kinds = [f.type for f in select.payload.fields[1:]]
        searches = [
            (
                checked_applied(*call, select, instants, reference, order_insensitive=order_insensitive),
                over(kinds, timed=True),
            )
            for call in select.modules
        ]
        fewer = settings(tried, max_examples=max(1, examples // GROUPS))
        searches += [(form, over(kinds, fewer, groups=GROUPS)) for form in aggregate_forms(select)]
    else:
        _check_constructor(module)
        if not kinds:
            raise PlanError(
                sentence(VERB, "no types", "it is called with a Series for each argument", 'Give "double".')
            )
        searches = [(checked_module(module, kinds, order_insensitive, reference), over(kinds))]
    for form, search in searches:
        broken = search.broken(form)
        if broken is not None:
            # drop Hypothesis' notes on its own calls
            broken.__notes__ = []
            raise broken.with_traceback(None) from broken.__cause__
    forms = [form for form, _ in searches]
    return tuple(dict.fromkeys(law.name for law in LAWS if any(form.has(law.need) for form in forms)))


def _kinds(types: Any) -> list[DataType]:
    """Return the argument types that a text names, none for an empty one; raise TypeMismatch for no text or no type."""
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
    """Return the strategy for the values of events, None if the user gives none; raise PlanError for illegal values."""
    if values is None or isinstance(values, st.SearchStrategy):
        return values
    if not isinstance(values, list | tuple) or not values:
        hint = "Write a list, [1.0, 2.0], or a Hypothesis strategy, st.floats(0.5, 100)."
        raise PlanError(sentence(VERB, "no values", f"found values={values!r}", hint))
    return st.sampled_from(values)


def _check_constructor(module: Any) -> None:
    """Raise PlanError for a class whose constructor needs arguments; other objects, and classes without a signature, pass."""
    if not inspect.isclass(module):
        return
    try:
        inspect.signature(module).bind()
    except TypeError as error:
        hint = f"Give an object: {module.__name__}(...)."
        raise PlanError(sentence(VERB, f"{module.__name__} takes arguments", str(error), hint)) from None
    except ValueError:
        # a class that is not written in Python may have no signature
        return


@dataclass(frozen=True)
class _Bags:
    """Strategies for the bags of events that laws read.

    ``kinds``: the types of an event's values, ``values``: a strategy that replaces them. ``groups``: the greatest number of
    groups for aggregates, whose events have lifetimes. ``timed``: events have lifetimes within the window in which decorated
    modules are checked. ``follows``: an event begins with the distance of its start from that of the event before.
    """

    kinds: Sequence[DataType]
    values: st.SearchStrategy[Any] | None
    groups: int = 0
    timed: bool = False
    follows: bool = False

    def drawn(self, laws: Sequence[Law]) -> st.SearchStrategy[Bags]:
        """Return a strategy for the bags that laws read, none empty; ``huge`` has floats beside which sums lose small values."""
        names = sorted({name for law in laws for name in law.bags.values()})
        return st.fixed_dictionaries({name: self._bag(name == "huge") for name in names})

    def _bag(self, huge: bool) -> st.SearchStrategy[Rows]:
        """Return a strategy for one bag of events, each of which has its values after what the fields ask for.

        This is a lifetime, the distance of the start, or group and lifetime. ``huge`` as in :meth:`drawn`.
        """
        one = self._row(huge)
        if self.timed:
            start, end = WINDOW
            lifetimes = st.integers(start, end - 1).flatmap(lambda a: st.tuples(st.just(a), st.integers(a + 1, end)))
            return _with_copies(st.tuples(lifetimes, one).map(lambda drawn: (*drawn[0], *drawn[1])))
        if self.follows:
            return _with_copies(st.tuples(st.integers(0, 3), one).map(lambda drawn: (drawn[0], *drawn[1])))
        if not self.groups:
            return _with_copies(one)
        alive = st.tuples(st.integers(0, SIZE - 1), st.integers(1, HOP), one)
        rows_of_bag = alive.map(lambda drawn: (drawn[0], drawn[0] + drawn[1], *drawn[2]))
        groups = st.lists(_with_copies(rows_of_bag), min_size=1, max_size=self.groups)
        return groups.map(lambda drawn: [(g, *row) for g, rows in enumerate(drawn) for row in rows])

    def _row(self, huge: bool) -> st.SearchStrategy[tuple[Any, ...]]:
        """Return a strategy for the tuple of an event's values; a user's strategy draws the whole tuple if there are several."""
        if self.values is None or not self.kinds:
            return st.tuples(*(values_of(kind, huge) for kind in self.kinds))
        return self.values if len(self.kinds) > 1 else self.values.map(lambda v: (v,))


def _with_copies(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Draw one to four elements and, in a third of the lists, three more copies of the last."""
    bags = st.tuples(st.lists(one, min_size=1, max_size=4), st.sampled_from((0, 0, 3)))
    return bags.map(lambda drawn: [*drawn[0], *drawn[0][-1:] * drawn[1]])


@dataclass(frozen=True)
class _Search:
    """The search for the smallest values that break a law, with Hypothesis' settings ``tried``."""

    bags: _Bags
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

        property_of_bags = settings(self.tried, phases=phases)(given(self.bags.drawn(laws))(holds))
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
