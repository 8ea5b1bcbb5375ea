"""Patterns as streams: ``sq.cedr`` over a text, and the same patterns verb by verb; ``%%cedr`` in a notebook."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamq.compiler.plan_graph import Section, sections_html
from streamq.errors import PlanError, check_keywords, kind_of, nearest, warn
from streamq.patterns import syntax
from streamq.patterns.conditions import Variables
from streamq.patterns.definitions import Definitions, Detect, event_type, no_type, used_types, variables_of
from streamq.patterns.operators.negation import NegationVerbs
from streamq.patterns.parser import SourceText, advise, check_program, parse, source_text
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_text import picture_section, render
from streamq.patterns.pattern_tree import AliasVerbs, Contributor, Function, Type, parts_of, variables_below, with_types
from streamq.patterns.syntax import Definition, Part, Program, Refusal
from streamq.plan.expr import Expr, as_expr
from streamq.plan.node import Node, Verbs, accepts_placeholders, not_a_stream, tables_behind
from streamq.stream import Stream

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@dataclass(frozen=True)
class PatternProgram:
    """The contents of a pattern: definitions, the streams of its event types, and the conditions that are functions."""

    program: Program
    types: Mapping[str, Any]
    functions: tuple[Function, ...] = ()

    source: str | None = None
    """The text of the whole program; None if verbs made or changed it."""

    def with_a_type_per_stream(self) -> PatternProgram:
        """Return the same with one event type for each stream, which has the first of the names that the stream has.

        Raises Refusal for an event type without a stream.
        """
        first: dict[Node, str] = {}
        names = {name: first.setdefault(self.types[name].plan, name) for name in self.names}
        types = {name: self.types[name] for name in first.values()}
        if len(types) == len(names):
            return replace(self, types=types)
        definitions = (replace(d, pattern=with_types(d.pattern, names)) for d in self.program.definitions)
        return replace(self, program=Program(tuple(definitions)), types=types)

    @property
    def last(self) -> Definition:
        """The definition whose matches are the result."""
        return self.program.definitions[-1]

    def with_last(self, definition: Definition, **more: Any) -> PatternProgram:
        """Return the same with another last definition, and without a text; ``more`` are other fields to replace."""
        return replace(self, program=Program((*self.program.definitions[:-1], definition)), source=None, **more)

    @property
    def is_bare(self) -> bool:
        """True if it is one pattern with conditions and nothing else, so that it can be a part of another one."""
        last = self.last
        is_whole = not last.output and last.occurrence is None and last.validity is None
        return is_whole and len(self.program.definitions) == 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the event types that are streams, in the order of the text; raises Refusal for one without a stream."""
        used = used_types(self.program)
        for kind in used:
            if kind.name not in self.types:
                raise no_type(kind, [*self.types, *(d.name for d in self.program.definitions[:-1])])
        return tuple(kind.name for kind in used)

    def plan(self) -> Detect:
        """Return the plan of its matches, after warnings; raise Refusal at the place of an error."""
        names = tuple(self.types)
        inputs = tuple(stream.plan for stream in self.types.values())
        primitive = {name for name, plan in zip(names, inputs, strict=True) if not isinstance(plan, Detect)}
        for advice in advise(self.program, primitive):
            warn(f"cedr: {advice}")
        return Detect(
            inputs, names, Definitions.from_program(self.program, self.source), self._conditions(names, inputs)
        )

    def _conditions(self, names: Sequence[str], inputs: Sequence[Node]) -> tuple[Expr, ...]:
        if not self.functions:
            return ()
        types = {name: event_type(plan, has_ids=False) for name, plan in zip(names, inputs, strict=True)}
        variables = variables_of(self.program, types)
        return tuple(_called(f, variables) for f in self.functions)


class Pattern(NegationVerbs, Stream):
    """The matches of a pattern, as a stream; the verbs of patterns extend it, and it can be a part of another one.

    Every verb of streams works on the matches: their columns are those of OUTPUT, else ``x_m`` for the field ``m`` of ``x``,
    and ``root``, the start of the earliest event below. (docs/patterns.md)
    """

    def __init__(self, written: PatternProgram, text: SourceText | None = None):
        """Take the contents, and the ``text`` that they come from, if any, at whose places errors are shown.

        Event types of one stream, which is one plan, become one type. Raises CedrError or PlanError for an event type without a
        stream; other errors come with the plan.
        """
        self._source = text
        with self._refusing():
            self.written = written.with_a_type_per_stream()
        self.tables = tables_behind(list(self.written.types.values()), "pattern")

    @cached_property
    def plan(self) -> Node:  # type: ignore[override]  # nobody sets the plan of a stream
        """The plan of its matches, made on first use; raises PlanError if the pattern does not fit the event types."""
        with self._refusing():
            return self.written.plan()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn a refusal into a CedrError at its place in the text, or into a PlanError for a pattern of verbs."""
        try:
            yield
        except Refusal as refusal:
            if self._source is not None:
                raise self._source.refused(refusal) from None
            raise PlanError("pattern", refusal.wrong, refusal.observed, refusal.hint) from None

    def _derive(self, plan: Node, *others: Verbs) -> Any:
        return Stream(plan, tables_behind((self, *others), "union"))

    def _explained_first(self) -> Sequence[Section]:
        return [picture_section(self.written.program, self.text)]

    def _repr_html_(self) -> str:
        return sections_html(self._explained_first())

    @property
    def text(self) -> str:
        """The pattern in the CEDR language; a condition that is a function is a comment with its variables."""
        text = render(self.written.program)
        variables = [f"-- where {inspect.signature(f)}: a function" for f in self.written.functions]
        return "\n".join([text, *variables])

    def alias(self, name: str) -> Contributor:
        """Return the pattern as a part of another one, under a name."""
        return _contributor(self, name)

    def _negation(self, negated: Stream | Contributor, make: Callable[[Part, Part], PatternOperator]) -> Pattern:
        this, other = _contributor(self), _contributor(negated)
        return _pattern(make(this.part, other.part), [this, other])

    def consume(self) -> Pattern:
        """Use up the events of runs: those of a match are in no later one, as in REPEAT(E CONSUME, ...).

        Raises PlanError for a pattern that is no REPEAT; a part of another pattern consumes by ``alias(...).consume()``.

        >>> import streamq as sq
        >>> a = sq.events([(n, n + 1, {"v": n}) for n in range(1, 7)])
        >>> sq.repeat(a.alias("x"), 3, within=9).consume().show()
              x_v  root  start  end
        [1, 2, 3]     1      3   10
        [4, 5, 6]     4      6   13
        """
        last = self.written.last
        tree = last.pattern.pattern
        if not tree.repeats:
            hint = 'As a part of another one a pattern consumes: pattern.alias("x").consume().'
            raise PlanError("consume", "a pattern in which nothing repeats", f"found {tree.keyword}", hint)
        return Pattern(self.written.with_last(replace(last, pattern=replace(last.pattern, pattern=tree.consuming()))))

    def where(self, condition: Any) -> Pattern:
        """Keep the matches for which a condition holds; one that names a negated variable restricts the negated events.

        ``condition``: text as behind WHERE, ``"x.m = y.m AND CorrelationKey(k, EQUAL)"``, or a function whose parameters are
        variables, ``lambda x, y: x.m == y.m``. It takes aggregates of what repeats, ``lambda f, y: sq.max(f.m) < y.m``.
        Raises CedrError for a text that is no condition, and PlanError for a parameter that is no variable; unknown names in a
        text, and unknown fields, are errors when the pattern is first used.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).where("y.v = 2 * x.v").show()
        x_v  y_v  root  start  end
          2    4     2      6   12
        """
        last = self.written.last
        if callable(condition) and not isinstance(condition, Expr):
            _check_named(condition, last, "where")
            return Pattern(self.written.with_last(last, functions=(*self.written.functions, condition)))
        if not isinstance(condition, str):
            hint = 'Write "x.m = y.m", or lambda x, y: x.m == y.m.'
            raise PlanError("where", "not a condition of a pattern", f"found {kind_of(condition)}", hint)
        more = parse(f"EVENT e WHEN x WHERE\n{condition}").definitions[0].where
        return Pattern(self.written.with_last(replace(last, where=(*last.where, *more))))


@check_keywords
@accepts_placeholders
def cedr(text: str | bytes, **streams: Stream) -> Pattern:
    """Return the matches of the last definition of a text in the CEDR language; each keyword is an event type and its stream.

    Events of a pattern are points at their starts. Without OUTPUT the columns are all fields as ``x_m``, ``m`` of the variable
    ``x``, and ``root``, the start of the earliest event below. A stream that the text does not name is ignored.
    Raises CedrError, with line, column and the source line, if the text is wrong or names something unknown. (docs/patterns.md;
    Barga et al., Consistent Streaming Through Time, section 3.)

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
    for name, stream in dict[str, Any](streams).items():
        if isinstance(stream, Contributor):
            hint = "Give the stream itself: AS names it."
            raise PlanError(f"cedr, {name}", "not a stream", "found a stream under an alias", hint)
        if not isinstance(stream, Stream):
            not_a_stream(f"cedr, {name}", stream)
    source = source_text(text)
    pattern = Pattern(PatternProgram(parse(source), streams, source=source.text), source)
    _ = pattern.plan  # a text is the whole pattern, so its errors are raised at once
    return pattern


def pattern_of_parts(verb: str, parts: Iterable[Any], make: Callable[[tuple[Part, ...]], PatternOperator]) -> Pattern:
    """Return the pattern of an operator over streams and patterns; ``verb`` is the function that the user called.

    Raises PlanError without parts, and for one that is neither a stream nor a part or has no name.
    """
    contributors = [_contributor(p, verb=verb) for p in parts]
    if not contributors:
        raise PlanError(verb, "a pattern of nothing", "", 'Write a.alias("x"), b.alias("y").')
    return _pattern(make(tuple(c.part for c in contributors)), contributors)


def _contributor(stream: Any, name: str | None = None, verb: str = "pattern") -> Contributor:
    """Return a stream as a part that is an event type, and a pattern as a part that is that pattern.

    A part stays as it is. A pattern with OUTPUT, slices or earlier definitions becomes an event type, as a stream does. Raises
    PlanError for anything else, and for an event type without a ``name``.
    """
    if isinstance(stream, Contributor):
        return stream
    if not isinstance(stream, Stream):
        not_a_stream(verb, stream)
    if isinstance(stream, Pattern) and stream.written.is_bare:
        written, part = stream.written, replace(stream.written.last.pattern, variable=name)
        return Contributor(part, written.types, tuple(_own_conditions(part, written.last.where)), written.functions)
    if name is None:
        raise PlanError(verb, "a part without a name", "", 'Name it: stream.alias("x").')
    return AliasVerbs.alias(stream, name)


def _pattern(tree: PatternOperator, contributors: Iterable[Contributor]) -> Pattern:
    """Return the pattern of a tree, with the event types and the conditions of its parts.

    Raises PlanError if a name stands for two parts, or in two parts for event types of different streams.
    """
    for name, times in Counter(variables_below(Part(tree))).items():
        if times > 1:
            hint = "Give each part a name of its own: stream.alias('x')."
            raise PlanError("pattern", f"{name!r} stands for two parts", "", hint)
    types: dict[str, Any] = {}
    where: tuple[syntax.Condition, ...] = ()
    functions: tuple[Function, ...] = ()
    for part in contributors:
        for name, stream in part.types.items():
            if types.setdefault(name, stream).plan != stream.plan:
                hint = "Give each of them a name of its own: stream.alias('x')."
                raise PlanError("pattern", f"{name!r} stands for two streams", "", hint)
        where, functions = where + part.where, functions + part.functions
    program = Program((Definition("Pattern", Part(tree), where),))
    pattern = Pattern(PatternProgram(program, types, functions))
    with pattern._refusing():
        check_program(program)
    return pattern


def _own_conditions(part: Part, where: Iterable[syntax.Condition]) -> Iterator[syntax.Condition]:
    """Yield the conditions of a pattern that becomes a part; those over all variables are written out for its own variables.

    Negated variables are among these.
    """
    names = variables_below(part)
    for condition in where:
        match condition:
            case syntax.AttributeEquals(attribute, value):
                yield from (syntax.Apply("=", (syntax.EventField(n, attribute), value)) for n in names)
            case syntax.CorrelationKey(attributes, equal):
                pairs = [(a, b) for i, b in enumerate(names) for a in names[max(0, i - 1) if equal else 0 : i]]
                sign = "=" if equal else "<>"
                for attribute in attributes:
                    fields = ((syntax.EventField(a, attribute), syntax.EventField(b, attribute)) for a, b in pairs)
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


def _check_named(function: Function, definition: Definition, verb: str) -> None:
    """Raise PlanError for a parameter of a function that is no variable of a definition."""
    named = (part.variable for part in parts_of(definition.pattern) if part.variable is not None)
    every = dict.fromkeys([*variables_below(definition.pattern), *named])
    for name in inspect.signature(function).parameters:
        if name not in every:
            raise PlanError(verb, f"no variable {name!r}", f"there are: {', '.join(every)}", nearest(name, every))


def _called(function: Function, variables: Variables) -> Expr:
    return as_expr(function(*(_Variable(name, variables) for name in inspect.signature(function).parameters)))


def load_magic(shell: InteractiveShell) -> None:
    """Register ``%%cedr`` with a shell.

    The event types of a cell are the notebook's streams of these names. ``%%cedr risky`` binds the pattern to the name ``risky``;
    without a name the pattern is the cell's result. Another text than a name there raises PlanError.
    """

    def magic(line: str, cell: str) -> Pattern | None:
        pattern = cedr(
            cell, **{kind.name: _notebook_stream(kind, cell, shell.user_ns) for kind in used_types(parse(cell))}
        )
        name = line.strip()
        if not name:
            return pattern
        if not name.isidentifier():
            raise PlanError("%%cedr", "not a name for the pattern", f"found {name!r}", "Write %%cedr risky.")
        shell.user_ns[name] = pattern
        return None

    register: Any = shell.register_magic_function
    register(magic, "cell", "cedr")


def _notebook_stream(kind: Type, text: str, names: dict[str, Any]) -> Stream:
    """Return the notebook's stream of a type's name; raise CedrError, at the type, if there is none."""
    stream = names.get(kind.name)
    if isinstance(stream, Stream):
        return stream
    there = [name for name, value in names.items() if isinstance(value, Stream) and not name.startswith("_")]
    observed = f"there are: {', '.join(there)}" if there else "there is none"
    wrong = f"no stream {kind.name!r} in this notebook"
    raise source_text(text).error(kind.place, wrong, observed, nearest(kind.name, there))
