"""Patterns as streams: ``sq.cedr`` over a text, and the same patterns verb by verb."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from streamq.compiler.explain_html import Part as Explained
from streamq.compiler.explain_html import page
from streamq.errors import PlanError, kind_of, nearest, sentence, warn
from streamq.patterns import syntax
from streamq.patterns.checks import check_program, compared_with_null, orders_of_one_type, variables_below
from streamq.patterns.conditions import Variables
from streamq.patterns.contributor import AliasVerbs, Contributor, Function
from streamq.patterns.definitions import cancelling_nothing, no_type, used_types, variables_of
from streamq.patterns.detect import Definitions, Detect, event_type
from streamq.patterns.parser import parse
from streamq.patterns.picture import explained
from streamq.patterns.rendering import render
from streamq.patterns.source_text import Refusal, SourceText, source_text
from streamq.patterns.syntax import Definition, Part, Program
from streamq.plan.expr import Expr, as_expr
from streamq.plan.node import Node
from streamq.plan.verbs import Verbs, accepts_placeholders, not_a_stream, tables_behind
from streamq.stream import Stream
from streamq.time import TIMESTAMP, Duration, length, plain_integer, show_duration

MANY_ORDERS = 24
"""In how many orders events of one type may be a match without a warning: four of them in any order are as many."""


@dataclass(frozen=True)
class Written:
    """What a pattern says: definitions, the streams of its event types, and the conditions that are functions."""

    program: Program
    types: Mapping[str, Any]
    functions: tuple[Function, ...] = ()

    source: str | None = None
    """The text that says all of the program, if there is one."""

    @property
    def last(self) -> Definition:
        """The definition whose matches are the result."""
        return self.program.definitions[-1]

    def with_last(self, definition: Definition, **more: Any) -> Written:
        """The same with another definition as the last."""
        return replace(self, program=Program((*self.program.definitions[:-1], definition)), source=None, **more)

    @property
    def is_bare(self) -> bool:
        """Whether it is one pattern with conditions and nothing else, so that it can be a part of another one."""
        last = self.last
        is_whole = not last.output and last.occurrence is None and last.validity is None
        return is_whole and len(self.program.definitions) == 1

    def plan(self) -> Detect:
        """Return the plan of its matches; raises Refusal at the place of what is wrong."""
        check_program(self.program)
        used = used_types(self.program)
        for kind in used:
            if kind.name not in self.types:
                raise no_type(kind, [*self.types, *(d.name for d in self.program.definitions[:-1])])
        names = tuple(kind.name for kind in used)
        inputs = tuple(self.types[name].plan for name in names)
        primitive = {name for name, plan in zip(names, inputs, strict=True) if not isinstance(plan, Detect)}
        for name in cancelling_nothing(self.program, primitive):
            warn(
                f"cedr: CANCEL_WHEN over the events of a type, here {name}, cancels none: they begin where they happen; "
                "write CANCEL_WHEN(pattern, negated)"
            )
        for comparison in compared_with_null(self.program):
            warn(f"cedr: {comparison} is never true, as NULL is equal to nothing; write IS NULL, or IS NOT NULL")
        for name, together, orders in orders_of_one_type(self.program):
            if orders >= MANY_ORDERS:
                warn(
                    f"cedr: each {together} events of {name} are {orders} matches, one in each order of the parts that they fit; "
                    f"write SEQUENCE({name} AS a, {name} AS b, ...), which has them once, in the order of time"
                )
        return Detect(inputs, names, Definitions.of(self.program, self.source), self._conditions(names, inputs))

    def _conditions(self, names: Sequence[str], inputs: Sequence[Node]) -> tuple[Expr, ...]:
        """The conditions that its functions compute."""
        if not self.functions:
            return ()
        types = {name: event_type(plan, has_ids=False) for name, plan in zip(names, inputs, strict=True)}
        variables = variables_of(self.program, types)
        return tuple(_called(f, variables, "where") for f in self.functions)


class Pattern(Stream):
    """The matches of a pattern, as a stream; it can become longer, by the verbs of patterns, and be a part of another one.

    Every verb of streams goes on from the matches: their columns are those of OUTPUT, else ``x_m`` for the field ``m`` of ``x``,
    and ``root``, the start of the earliest event below. (docs/patterns.md)
    """

    def __init__(self, written: Written, text: SourceText | None = None):
        """What is wrong with it is said at its place in the ``text``, if it comes from one."""
        try:
            plan = written.plan()
        except Refusal as refusal:
            if text is not None:
                raise text.refused(refusal) from None
            raise PlanError(sentence("pattern", refusal.wrong, refusal.observed, refusal.hint)) from None
        used = [written.types[name] for name in plan.names]
        super().__init__(plan, tables_behind(used, "pattern"))
        self.written = written

    def _derive(self, plan: Node, *others: Verbs) -> Any:
        return Stream(plan, tables_behind((self, *others), "union"))

    def _explained_first(self) -> Sequence[Explained]:
        return [explained(self.written.program, self.text)]

    def _repr_html_(self) -> str:
        """The picture of the pattern, as a notebook shows it."""
        return page(self._explained_first())

    @property
    def text(self) -> str:
        """The pattern in the CEDR language; of a condition that is a function only its variables, as a comment."""
        text = render(self.written.program)
        variables = [f"-- where {inspect.signature(f)}: a function" for f in self.written.functions]
        return "\n".join([text, *variables])

    def alias(self, name: str) -> Contributor:
        """The pattern as a part of another one, under a name."""
        return _contributor(self, name)

    def unless(self, negated: Stream | Contributor, within: Duration, *, nth: int | None = None) -> Pattern:
        """The matches that no event of ``negated`` follows ``within`` a scope, from the match on, or from its nth contributor.

        UNLESS(pattern, negated, within) in the CEDR language; the lifetime is ``[start, start + within)``.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.any_of(a.alias("x")).unless(b.alias("y"), within=3).show()
        x_v  root  start  end
          1     1      1    4
        """
        scope, number = _scope(within, "unless"), None if nth is None else _count(nth, "unless")
        return self._negation(negated, lambda this, other: syntax.Unless(this, other, scope, number))

    def without(self, negated: Stream | Contributor) -> Pattern:
        """The matches with no event of ``negated`` strictly between their first and last contributor: NOT(negated, pattern).

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> c = sq.events([(5, 6, {"v": 5})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).without(c.alias("z")).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          2    3     2      4   12
        """
        return self._negation(negated, lambda this, other: syntax.Not(other, this))

    def cancel_when(self, negated: Stream | Contributor) -> Pattern:
        """The matches with no event of ``negated`` strictly between their root and their start: CANCEL_WHEN(pattern, negated).

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> c = sq.events([(5, 6, {"v": 5})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).cancel_when(c.alias("z")).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          2    3     2      4   12
        """
        return self._negation(negated, syntax.CancelWhen)

    def where(self, condition: Any) -> Pattern:
        """The matches for which a condition holds; one that names a negated variable says which events are looked for.

        ``condition``: text as behind WHERE, ``"x.m = y.m AND CorrelationKey(k, EQUAL)"``, or a function whose parameters are
        variables, ``lambda x, y: x.m == y.m``.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).where("y.v = 2 * x.v").show()
        x_v  y_v  root  start  end
          2    4     2      6   12
        """
        last = self.written.last
        if callable(condition) and not isinstance(condition, Expr):
            return Pattern(self.written.with_last(last, functions=(*self.written.functions, condition)))
        if not isinstance(condition, str):
            hint = 'Write "x.m = y.m", or lambda x, y: x.m == y.m.'
            raise PlanError(sentence("where", "not a condition of a pattern", f"found {kind_of(condition)}", hint))
        more = parse(f"EVENT e WHEN x WHERE\n{condition}").definitions[0].where
        return Pattern(self.written.with_last(replace(last, where=(*last.where, *more))))

    def _negation(self, negated: Stream | Contributor, make: Callable[[Part, Part], syntax.Pattern]) -> Pattern:
        this, other = _contributor(self), _contributor(negated)
        return _pattern(make(this.part, other.part), [this, other])


@accepts_placeholders
def cedr(text: str | bytes, **streams: Stream) -> Pattern:
    """Return the matches of the last definition of a text in the CEDR language; each keyword is an event type and its stream.

    Events of a pattern are points at their starts. Without OUTPUT the columns are all fields, each behind its variable, and
    ``root``, the start of the earliest event below. Raises CedrError, with line, column and the source line, where the text is
    wrong or names what there is not. (docs/patterns.md; Barga et al., Consistent Streaming Through Time, section 3.)

    >>> import streamq as sq
    >>> installs = sq.events([(1, 2, {"machine": "a"}), (2, 3, {"machine": "b"})])
    >>> restarts = sq.events([(4, 5, {"machine": "a"})])
    >>> sq.cedr(
    ...     "EVENT Idle WHEN UNLESS(INSTALL AS x, RESTART AS z, 5) WHERE x.machine = z.machine",
    ...     INSTALL=installs,
    ...     RESTART=restarts,
    ... ).show()
    x_machine  root  start  end
            b     2      2    7
    """
    for name, given in dict[str, Any](streams).items():
        if isinstance(given, Contributor):
            hint = "Give the stream itself: AS names it."
            raise PlanError(sentence(f"cedr, {name}", "not a stream", "found a stream under an alias", hint))
        if not isinstance(given, Stream):
            not_a_stream(f"cedr, {name}", given)
    source = source_text(text)
    return Pattern(Written(parse(text), streams, source=source.text), source)


@accepts_placeholders
def sequence(*parts: Stream | Contributor, within: Duration) -> Pattern:
    """Events one strictly after the other, within a scope: SEQUENCE.

    The lifetime is from the last one's start to the end of the scope, which begins with the first.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1})]), sq.events([(4, 5, {"v": 2})])
    >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).show()
    x_v  y_v  root  start  end
      1    2     1      4   11
    """
    scope = _scope(within, "sequence")
    return _of_parts("sequence", parts, lambda p: syntax.Sequence(p, scope))


@accepts_placeholders
def all_of(*parts: Stream | Contributor, within: Duration) -> Pattern:
    """One event of each part, in any order, within a scope: ALL.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> c = sq.events([(5, 6, {"v": 5})])
    >>> sq.all_of(a.alias("x"), c.alias("z"), within=10).show()
    x_v  z_v  root  start  end
      1    5     1      5   11
      2    5     2      5   12
    """
    scope = _scope(within, "all_of")
    return _of_parts("all_of", parts, lambda p: syntax.All(p, scope))


@accepts_placeholders
def any_of(*parts: Stream | Contributor) -> Pattern:
    """An event of any part: ANY.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> sq.any_of(a.alias("x"), b.alias("y")).show()
     x_v   y_v  root  start  end
       1  NULL     1      1    2
       2  NULL     2      2    3
    NULL     3     4      4    5
    NULL     4     6      6    7
    """
    return _of_parts("any_of", parts, syntax.AnyOf)


@accepts_placeholders
def at_least(count: int, *parts: Stream | Contributor, within: Duration) -> Pattern:
    """Events of ``count`` of the parts, in any order, within a scope: ATLEAST; what a match has not is NULL.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> c = sq.events([(5, 6, {"v": 5})])
    >>> sq.at_least(2, a.alias("x"), b.alias("y"), c.alias("z"), within=3).show()
     x_v   y_v   z_v  root  start  end
       1     3  NULL     1      4    5
       2     3  NULL     2      4    5
       2  NULL     5     2      5    6
    NULL     3     5     4      5    7
    NULL     4     5     5      6    8
    """
    number, scope = _count(count, "at_least"), _scope(within, "at_least")
    return _of_parts("at_least", parts, lambda p: syntax.AtLeast(number, p, scope))


@accepts_placeholders
def at_most(count: int, *parts: Stream | Contributor, within: Duration) -> Pattern:
    """An event of any part, with at most ``count`` of all parts in the scope that ends with it, itself among them: ATMOST.

    >>> import streamq as sq
    >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
    >>> sq.at_most(1, a.alias("x"), b.alias("y"), within=2).show()
     x_v   y_v  root  start  end
       1  NULL     1      1    3
    NULL     3     4      4    6
    NULL     4     6      6    8
    """
    number, scope = _count(count, "at_most"), _scope(within, "at_most")
    return _of_parts("at_most", parts, lambda p: syntax.AtMost(number, p, scope))


def _count(count: Any, verb: str) -> int:
    number = plain_integer(count)
    if isinstance(number, bool) or not isinstance(number, int):
        observed = f"found {kind_of(count)}" if isinstance(count, Contributor | Stream) else f"found {count!r}"
        hint = "" if verb == "unless" else f"Write sq.{verb}(2, ...)."
        raise PlanError(sentence(verb, "a count is a whole number", observed, hint))
    return number


def _scope(within: Duration, verb: str) -> syntax.Duration:
    """A scope as texts have it; raises TimeError for what is none."""
    ticks = length(within, verb)
    if isinstance(within, timedelta):
        return show_duration(ticks, TIMESTAMP)
    return within if isinstance(within, str) else ticks


def _of_parts(verb: str, parts: Iterable[Any], make: Callable[[tuple[Part, ...]], syntax.Pattern]) -> Pattern:
    contributors = [_contributor(p, verb=verb) for p in parts]
    if not contributors:
        raise PlanError(sentence(verb, "a pattern of nothing", "", 'Write a.alias("x"), b.alias("y").'))
    return _pattern(make(tuple(c.part for c in contributors)), contributors)


def _pattern(pattern: syntax.Pattern, contributors: Iterable[Contributor]) -> Pattern:
    types: dict[str, Any] = {}
    where: tuple[syntax.Condition, ...] = ()
    functions: tuple[Function, ...] = ()
    for contributor in contributors:
        for name, stream in contributor.types.items():
            if name in types:
                hint = "Give each part a name of its own: stream.alias('x')."
                raise PlanError(sentence("pattern", f"{name!r} stands for two parts", "", hint))
            types[name] = stream
        where, functions = where + contributor.where, functions + contributor.functions
    definition = Definition("Pattern", Part(pattern), where)
    return Pattern(Written(Program((definition,)), types, functions))


def _contributor(stream: Any, name: str | None = None, verb: str = "pattern") -> Contributor:
    """A stream or pattern as a part: an event type of its name, or the pattern that it is."""
    if isinstance(stream, Contributor):
        return stream
    if not isinstance(stream, Stream):
        not_a_stream(verb, stream)
    if isinstance(stream, Pattern) and stream.written.is_bare:
        written, part = stream.written, replace(stream.written.last.pattern, variable=name)
        return Contributor(part, written.types, tuple(_of_its_own(part, written.last.where)), written.functions)
    if name is None:
        raise PlanError(sentence(verb, "a part without a name", "", 'Name it: stream.alias("x").'))
    return AliasVerbs.alias(stream, name)


def _of_its_own(part: Part, where: Iterable[syntax.Condition]) -> Iterator[syntax.Condition]:
    """Conditions over all variables of a pattern as conditions over these alone, once it is a part of another one."""
    names = variables_below(part)
    for condition in where:
        match condition:
            case syntax.AttributeEquals(attribute, value):
                yield from (syntax.Apply("=", (syntax.Field(n, attribute), value)) for n in names)
            case syntax.CorrelationKey(attributes, equal):
                pairs = [(a, b) for i, b in enumerate(names) for a in names[max(0, i - 1) if equal else 0 : i]]
                sign = "=" if equal else "<>"
                for attribute in attributes:
                    fields = ((syntax.Field(a, attribute), syntax.Field(b, attribute)) for a, b in pairs)
                    yield from (syntax.Apply(sign, two) for two in fields)
            case _:
                yield condition


class _Variable:
    """A variable in a condition that is a function: its attributes are fields."""

    def __init__(self, name: str, variables: Variables):
        self._name, self._variables = name, variables

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._variables.column(self._name, name)

    __getitem__ = __getattr__


def _called(function: Function, variables: Variables, verb: str) -> Expr:
    """What a function of variables computes."""
    names = list(inspect.signature(function).parameters)
    for name in names:
        if name not in variables.below:
            there = f"there are: {', '.join(variables.below)}"
            raise PlanError(sentence(verb, f"no variable {name!r}", there, nearest(name, variables.below)))
    return as_expr(function(*(_Variable(n, variables) for n in names)))


__all__ = ["Contributor", "Pattern", "all_of", "any_of", "at_least", "at_most", "cedr", "sequence"]
