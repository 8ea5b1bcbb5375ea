"""Scenarios: queries with parts left out.

Scenarios are the intent trees of the test framework (section 3): "an equi-join over out-of-order streams" stands for many
concrete trees, each a query with its data. A scenario is written like a query, with ``ANY`` for the parts that are left out;
the transformer (section 4) fills these in at random, as Hypothesis strategies.
"""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp, check_word
from streamq.errors import CedrError, NeedsSpark, PlanError, TimeError, UnknownVerb, check_keywords, nearest
from streamq.expressions import duration, end, start, when, window_end, window_start
from streamq.functions.dates import TIMESTAMP_MICROS, UNIX_MICROS
from streamq.operators.grouped_stream import GroupedStream
from streamq.operators.windowed_stream import WindowedStream
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_tree import Contributor
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node, Placeholder, nodes
from streamq.plan.schema import Field, Schema
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.drawn_expressions import aggregate, evaluable, exact, lifetime_parts, matched, numbers, predicates
from streamq.testing.generate import KINDS, WITH_IDS, cases_of, source_of
from streamq.testing.intent import ANYTHING, Draw, Intent
from streamq.testing.patterns.matches import rooms as of_patterns
from streamq.testing.payload_values import key_types, value_types
from streamq.testing.payloads import static
from streamq.testing.program import statements
from streamq.testing.table import fields_of
from streamq.testing.window_kinds import rooms
from streamq.time import INTEGER, TIMESTAMP


class _Any:
    """The type of ``ANY``."""

    def __repr__(self) -> str:
        return "ANY"

    def __iter__(self) -> NoReturn:
        raise PlanError("ANY", "stands in scenarios only", "", "Begin with t.stream(...).")


ANY: Final = _Any()
"""A part of a scenario that is left out: a predicate, a size, a key, a column's expression, a stream, a whole argument."""

ENDS = (
    "run",
    "explain",
    "explanation",
    "show",
    "plot",
    "trace",
    "chart",
    "to_df",
    "to_pandas",
    "to_arrow",
    "to_stream",
    "to_json",
)
"""Methods of streams that need a complete query."""

ATTRIBUTES = ("schema", "columns", "plan", "tables", "query", "answer")
"""Attributes of streams and patterns that need a complete query."""

VERBS = sorted(
    {
        n
        for kind in (Stream, GroupedStream, WindowedStream, Pattern, Contributor)
        for n in dir(kind)
        if not n.startswith("_") and callable(getattr(kind, n))
    }
    - set(ENDS)
)


@dataclass(frozen=True, eq=False, repr=False)
class Scenario(Placeholder):
    """A node of an intent tree; its verbs return further scenarios, and ``ANY`` stands for an argument that is left out.

    Scenarios compose: a scenario is the input of another as the stream that a verb is called on, or as an argument.

    >>> from streamq import testing as t
    >>> equi_join = t.stream(disorder="high").join(t.stream(), on=t.ANY)
    >>> equi_join.tumbling_window(t.ANY).select(n=t.ANY)
    stream(disorder='high').join(stream(), on=ANY).tumbling_window(ANY).select(n=ANY)
    """

    verb: str
    target: Scenario | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Callable[..., Scenario]:
        """Return the verb ``name``, whose call returns a scenario; raise UnknownVerb if there is none for scenarios.

        A name that begins with an underscore raises AttributeError.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        if name in (*ENDS, *ATTRIBUTES):
            hint = "t.concrete(scenario) gives cases with nothing left out: case.query is such a stream."
            raise UnknownVerb("scenario", f"no verb {name!r}", "parts of it are left out", hint)
        if name not in VERBS:
            there = f"there are: {', '.join(VERBS)}"
            raise UnknownVerb("scenario", f"no verb {name!r}", there, nearest(name, VERBS))
        return lambda *args, **kwargs: Scenario(name, self, args, kwargs)

    def call_later(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Scenario:
        """Return a call of a function of streams: ``sq.sequence(t.stream().alias("x"), t.stream().alias("y"), within=9)``."""
        return Scenario(CALL, None, (function, *args), kwargs)

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``function(self, ...)``, as ``pipe`` of a stream does; raise PlanError if it cannot be called."""
        if not callable(function):
            raise PlanError("pipe", "not a function of a stream", f"found {function!r}")
        return function(self, *args, **kwargs)

    def __repr__(self) -> str:
        """Return the scenario as the chain of calls that a user would write; keyword arguments of None are left out."""
        if self.verb == CALL:
            function, *args = self.args
            return repr(Scenario(f"sq.{function.__name__}", None, tuple(args), self.kwargs))
        arguments = [repr(a) for a in self.args] + [f"{n}={v!r}" for n, v in self.kwargs.items() if v is not None]
        return ("" if self.target is None else f"{self.target!r}.") + f"{self.verb}({', '.join(arguments)})"


STREAM, GROUP, DRAWING, CALL = "stream", "group", "drawing", "call"
"""The ``verb`` of nodes that are not calls of a stream's verbs."""


@check_keywords
def stream(
    name: str | None = None,
    *,
    shape: str | None = None,
    columns: str | None = None,
    axis: str | None = None,
    **intent: Any,
) -> Scenario:
    """Return a scenario that stands for any source whose data fit an :class:`Intent` (``disorder="high"``).

    ``shape``: the kind of source, "points", "intervals", "edges", "changes", "physical", "signal", or "points_ids",
    "intervals_ids" or "physical_ids", whose events have ids, which a select above the source drops. ``columns``: the payload as
    Spark DDL (default: ``k`` and ``v``, with types that all open streams of the scenario share and that the verbs accept,
    mostly plain ones).
    ``axis``: "integer" or "timestamp"; a scenario that contains durations must name it. The other arguments are those of
    :class:`Intent`. Raises PlanError for illegal arguments, TypeError for unknown ones; ``columns`` is read only when a case is
    drawn.
    """
    if axis is not None:
        check_word(axis, (INTEGER, TIMESTAMP), "axis", "stream")
    if shape is not None:
        check_word(shape, (*KINDS, *WITH_IDS, "signal"), "shape", "stream")
    Intent(**intent)  # raises here, at the user's line, for illegal words
    arguments = {"shape": shape, "columns": columns, "axis": axis, **intent}
    return Scenario(STREAM, None, () if name is None else (name,), arguments)


def drawing(function: Callable[..., Stream], *inputs: Scenario | Stream) -> Scenario:
    """Return a scenario that stands for any stream that ``function(draw, *streams)`` draws over the streams of the inputs."""
    return Scenario(DRAWING, None, (function, *inputs))


@check_keywords
def concrete(
    scenario: Scenario | Stream, intent: Intent = ANYTHING, *, may_fail: bool = False
) -> st.SearchStrategy[Case]:
    """Return a strategy for the concrete trees of a scenario: queries with nothing left out, and their data.

    ``may_fail``: some cases have values whose sums overflow, so that the query fails. Raises PlanError for arguments of other
    types.
    """
    for value, kind, wrong, hint in (
        (scenario, (Scenario, Stream), "not a scenario and not a stream", "Begin with t.stream(...)."),
        (intent, (Intent,), "not an intent", "Give t.Intent(...)."),
    ):
        if not isinstance(value, kind):
            raise PlanError("concrete", wrong, f"found {type(value).__name__}", hint)
    return _cases(scenario, intent, may_fail=may_fail)


@dataclass(frozen=True)
class FilledScenario:
    """The query of a scenario with nothing left out, and the intents of its sources."""

    query: Stream
    intents: Mapping[str, Intent]


@st.composite
def _cases(draw: Draw, scenario: Scenario | Stream, intent: Intent, *, may_fail: bool) -> Case:
    """Draw a scenario with nothing left out, then data for its sources, and return both as a case."""
    one = draw(filled(scenario))
    calls = statements({"q": one.query})
    return draw(cases_of(one.query.plan, intent, one.query.tables, one.intents, calls, may_fail=may_fail))


@st.composite
def filled(draw: Draw, scenario: Scenario | Stream) -> FilledScenario:
    """Draw a scenario with nothing left out, and the query that its verbs build.

    Raises PlanError if that is not a stream, and the errors of its verbs. If the scenario names no axis, an error over a duration
    that fits the other axis asks to name one.
    """
    axis = draw(st.sampled_from(_axes(scenario)))
    try:
        building, query = _built(draw, scenario, axis)
    except TimeError as error:
        wrong = _UNIT.match(str(error))
        if wrong is None or len(_axes(scenario)) == 1:
            raise
        # the verb works on one time axis only, and the scenario names none
        other = INTEGER if axis == TIMESTAMP else TIMESTAMP
        hint = f'The axis is left open; say which: t.stream(axis="{other}").'
        raise TimeError(f"{wrong[0]}. {hint}") from error
    if not isinstance(query, Stream):
        raise PlanError("scenario", "it does not end in a stream", f"found {scenario!r}")
    return FilledScenario(query, building.intents)


_UNIT = re.compile(r".*: a duration with(out)? a unit on .*(?=\. )")
"""Matches the message for a duration that does not fit the time axis, without its hint."""


def _built(draw: Draw, scenario: Scenario | Stream, axis: str) -> tuple[Filler, Any]:
    """Build a concrete tree over columns of the oddest types that its verbs accept.

    Returns what filled it in, and the return value of its last verb. Types are tried from the oddest to plain ones, as long as
    PlanError, CedrError or NeedsSpark is raised; over plain ones it is raised here, too.
    """
    (key, *keys), (value, *values) = draw(key_types()), draw(value_types())
    odd = [(key, value), *((key, v) for v in values[:1]), *((k, value) for k in keys), (keys[0], values[0])]
    plain = keys[-1], values[-1]
    for types in dict.fromkeys((*odd, (keys[0], values[-1]), plain)):
        building = Filler(draw, axis, types)
        try:
            return building, building.filled(scenario)
        except (PlanError, CedrError, NeedsSpark):
            if types == plain:
                raise
    raise AssertionError(plain)


class Filler:
    """Fills in one scenario, node by node from the sources, and calls the verbs of each filled node at once.

    ``done`` maps the id of a node to the node, kept because Python gives the id of a freed object to another one, and the return
    value of its verb. ``intents`` are the intents of the open sources so far, by the sources' names.
    """

    def __init__(self, draw: Draw, axis: str, types: tuple[t.DataType, t.DataType]):
        """Begin with nothing filled in; ``types`` are those of the key and value columns of sources."""
        self.draw, self.axis, self.types = draw, axis, types
        self.done: dict[int, tuple[Any, Any]] = {}
        self.intents: dict[str, Intent] = {}

    def filled(self, part: Scenario | Stream) -> Any:
        """Return what the verb of a node returns, or the stream that a part is; each node is filled in once."""
        if isinstance(part, Stream):
            return part
        if id(part) not in self.done:
            self.done[id(part)] = (part, self._filled_node(part))
        return self.done[id(part)][1]

    def _filled_node(self, node: Scenario) -> Any:
        """Fill in a node after the node that its verb is called on, call the verb, and return what it returns."""
        match node.verb:
            case "stream":
                return self._source(node)
            case "drawing":
                function, *inputs = node.args
                return function(self.draw, *map(self.filled, inputs))
            case "call":
                return self._called(*node.args, **node.kwargs)
        assert node.target is not None
        target = self.filled(node.target)
        method = getattr(target, node.verb)
        bound = inspect.signature(method).bind(*node.args, **node.kwargs)
        if node.verb == "apply" and callable(*bound.args):
            return target.apply(lambda group: self._of_group(group, *bound.args))
        self._complete(node.verb, bound, target)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                args += [self._argument(node.verb, name, v, target) for v in value]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs |= {n: self._argument(node.verb, n, v, target, True) for n, v in value.items()}
            elif len(args) < len(node.args):
                args.append(self._argument(node.verb, name, value, target))
            else:
                kwargs[name] = self._argument(node.verb, name, value, target)
        return method(*args, **kwargs)

    def _of_group(self, group: Stream, sub_plan: Callable[[Any], Any]) -> Any:
        """Fill in a sub-plan of ``apply``, which is called with a scenario that stands for the stream of the group."""
        argument = Scenario(GROUP)
        self.done[id(argument)] = (argument, group)
        return self.filled(sub_plan(argument))

    def _complete(self, verb: str, bound: inspect.BoundArguments, target: Any) -> None:
        """Add to ``bound`` arguments that depend on each other, and the suffixes of a join, which scenarios need not write."""
        arguments = bound.arguments
        if verb in ("join", "windowed_join") and "suffixes" not in arguments:
            arguments["suffixes"] = ("", "_r")
        if verb == "alter_lifetime" and arguments.get("start") is ANY and arguments.get("within", ANY) is ANY:
            arguments["start"], arguments["within"] = self.draw(starts(target.plan))
        for room in rooms().values():
            room.complete(self.draw, verb, arguments, ANY)

    def _called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Fill in the arguments of a function of streams, call it, and return what it returns.

        They are drawn for the first scenario among them: its stream or, of a pattern, the stream of its first event type.
        """
        bound = inspect.signature(function).bind(*args, **kwargs)
        parts = [self.filled(a) for a in (*args, *kwargs.values()) if isinstance(a, Scenario)]
        target = next((p if isinstance(p, Stream) else next(iter(p.types.values())) for p in parts), None)
        filled = [
            self._argument(function.__name__, n, v, target)
            for n, v in zip(bound.signature.parameters, args, strict=False)
        ]
        filled += [self._argument(function.__name__, "", v, target) for v in args[len(filled) :]]
        named = {n: self._argument(function.__name__, n, v, target) for n, v in kwargs.items()}
        return function(*filled, **named)

    def _source(self, node: Scenario) -> Stream:
        """Draw the source of a ``t.stream(...)``, and keep its intent; a signal is made of points by their first column."""
        kwargs = dict(node.kwargs)
        shape, ddl, _ = (kwargs.pop(n) for n in ("shape", "columns", "axis"))
        name = node.args[0] if node.args else "abcdefgh"[len(self.intents)]
        kind = shape or self.draw(st.sampled_from([*KINDS, "intervals"]))
        key, value = self.types
        fields = fields_of(ddl) if ddl else (Field("k", key), Field("v", value))
        plan: Node = self.draw(source_of(name, "points" if kind == "signal" else kind, fields, self.axis))
        self.intents[name] = Intent(**kwargs)
        source, *above = nodes(plan)
        stream = Stream(source, {name: None})
        if above:
            # the id of an event is no column of the scenario
            stream = stream.select(*(f.name for f in fields))
        return stream.to_signal(fields[0].name) if kind == "signal" else stream

    def _argument(self, verb: str, name: str, value: Any, target: Any, named: bool = False) -> Any:
        """Return an argument of a verb, drawn if it is left out; a scenario becomes what its verb returns.

        ``named``: the argument is a column that the verb computes, under the name of the keyword.
        """
        if value is ANY and (verb, name) in STREAMS:
            return self.filled(stream())
        if value is ANY:
            return argument(self.draw, verb, name, target, named)
        return self.filled(value) if isinstance(value, Scenario) else value


def _axes(root: Scenario | Stream) -> list[str]:
    """Return the time axes that a scenario may have: the first that it names or that a stream in it has, else both."""
    left: list[Any] = [root]
    while left:
        node = left.pop()
        if isinstance(node, Stream):
            return [node.schema.axis]
        if isinstance(node, Scenario):
            if node.verb == STREAM and node.kwargs["axis"]:
                return [node.kwargs["axis"]]
            left += [node.target, *node.args, *node.kwargs.values()]
    return [INTEGER, TIMESTAMP]


# arguments


def argument(draw: Draw, verb: str, name: str, target: Any, named: bool) -> Any:
    """Draw the argument ``name`` of a verb of ``target``, a stream or its windows.

    ``named``: the argument is a column that the verb computes: over windows an aggregate or a bound of the window, else an
    expression.
    Raises PlanError for an argument that has no generator.
    """
    plan: Node = (target if isinstance(target, Stream) else target.stream).plan
    schema, exact_columns = plan.schema, exact(plan)
    columns = sorted(exact_columns) or list(schema.names)
    if named:
        if isinstance(target, WindowedStream):
            bound = draw(st.sampled_from([None] * 10 + [window_start(), window_end()]))
            if bound is not None:
                return bound
            return draw(aggregate(schema, exact_columns))
        column = numbers(schema, draw(st.sampled_from(schema.names)))
        return draw(st.one_of(column, column, lifetime_parts()))
    arguments_of_rooms = [room.arguments for room in rooms().values()] + [
        room.arguments for room in of_patterns().values()
    ]
    for arguments in arguments_of_rooms:
        if (verb, name) in arguments:
            return draw(arguments[verb, name](schema.axis))
    if (verb, name) in INTEGERS or name in INTEGERS:
        low, high = INTEGERS.get((verb, name)) or INTEGERS[name]
        many = draw(st.integers(low, high))
        timed = schema.axis == TIMESTAMP and (verb, name) not in COUNTS and name not in COUNTS
        return dt.timedelta(microseconds=many) if timed else many
    if (verb, name) in WORDS or name in WORDS:
        return draw(st.sampled_from(WORDS.get((verb, name)) or WORDS[name]))
    match verb, name:
        case _, "predicate":
            return draw(predicates(schema, exact_columns))
        case "join_table", "table" if "k" in schema.names:
            return static(schema.type_of("k").simpleString())
        case _, "on" | "order_by" | "key":
            keys = matched(schema, columns)
            most = draw(st.sampled_from([1, 1, 1, 2]))
            return draw(st.lists(st.sampled_from(keys), max_size=most, unique=True)) if keys else []
        case _, "id" | "keys" | "k" | "by":
            return draw(st.sampled_from(matched(schema, columns) or columns))
        case _, "columns" | "names":
            return draw(st.sampled_from(columns))
        case _, "where":
            return draw(pair_conditions(schema, columns))
        case "set_duration" | "alter_lifetime", "duration":
            lengths = [1, 3, 5] if schema.axis == INTEGER else [dt.timedelta(microseconds=n) for n in (1, 3, 5)]
            # None: the verb keeps the duration
            as_it_is = [None] * 2 * (verb == "alter_lifetime")
            return draw(st.sampled_from([*lengths, duration() * 2, *as_it_is]))
    raise PlanError("scenario", f"argument {name!r} of {verb} cannot be drawn", "", "Give it a value.")


STREAMS = {
    ("join", "other"), ("left_anti_join", "other"), ("windowed_join", "other"), ("except_", "other"),
    ("clip", "by"), ("union", "others"),
}  # fmt: skip
"""Arguments that are streams."""

INTEGERS: Mapping[Any, tuple[int, int]] = {
    "size": (1, 9), "hop": (1, 9), "offset": (-9, 9), "period": (1, 9), "within": (0, 6),
    "n": (1, 4), "rows": (1, 4), "step": (1, 4), ("top_k", "k"): (1, 3),
    ("shift", "by"): (-6, 6), ("extend", "by"): (-6, 6),
}  # fmt: skip
"""Arguments that are numbers of ticks or rows: the least value drawn and the greatest."""

COUNTS = ("n", "rows", "step", ("top_k", "k"))
"""The arguments of INTEGERS that count rows."""

WORDS: Mapping[Any, tuple[Any, ...]] = {
    ("join", "how"): ("inner", "left", "semi", "anti"), ("join_table", "how"): ("inner", "left"),
    ("top_k", "row_number"): (False,),
    "clip_input": tuple(ClipInput), "stamp": (Stamp.ALIGN, Stamp.POINT_AT_END),
    "ties": ("keep", "break"), "desc": (True, False), "suffixes": (("", "_r"),),
}  # fmt: skip
"""Arguments that are drawn from a list of values."""


@st.composite
def starts(draw: Draw, plan: Node) -> tuple[Expr | None, Any]:
    """Draw the arguments ``start`` and ``within`` of alter_lifetime; the start reads the event's start, end or payload.

    Each is None where the verb's default is meant.
    """

    def span(ticks: int) -> Any:
        return ticks if plan.schema.axis == INTEGER else dt.timedelta(microseconds=ticks)

    name = draw(st.sampled_from(sorted(exact(plan)) or list(plan.schema.names)))
    match draw(st.sampled_from(["as it is", "start", "later", "earlier", "grid", "grid", "end", "payload", "payload"])):
        case "start":
            return start(), None
        case "grid":
            # round the start down to a multiple
            many = draw(st.integers(2, 5))
            if plan.schema.axis == INTEGER:
                return start() - start() % many, None
            at = Call(UNIX_MICROS, (start(),))
            return Call(TIMESTAMP_MICROS, (at - at % many,)), None
        case "later":
            return start() + span(3), None
        case "earlier":
            return start() - span(2), None
        case "end":
            return end(), None
        case "payload":
            # every event that has a value moves by exactly ``within``, the most that the promise allows
            within = draw(st.integers(0, 6))
            return start() - when(Col(name).is_not_null(), span(within)).otherwise(span(0)), span(within)
    return None, None


@st.composite
def pair_conditions(draw: Draw, schema: Schema, columns: list[str]) -> Any:
    """Draw a function of both events' columns that returns a condition on one of ``columns``, or None."""
    name = draw(st.sampled_from(columns))
    conditions: list[Callable[[Any, Any], Expr]] = [
        lambda l, r: l[name].is_not_null(),
        lambda l, r: l[name] == r[name],
        lambda l, r: l[name] < r[name],
        lambda l, r: l[name].eq_null_safe(r[name]),
    ]
    # try each condition with the same columns on both sides
    one = {name: Col(name)}
    return draw(st.sampled_from([None, *(make for make in conditions if evaluable(make(one, one), schema))]))
