"""Scenarios: queries with parts left out, and the transformer that fills them in, as a Hypothesis strategy.

The intent trees of the test framework (sections 3 and 4): "an equi-join over out-of-order streams" becomes many concrete
trees, each a query with its data. A scenario is written as a query is; what is left out is ``ANY``.
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

from streamq.errors import NeedsSpark, PlanError, TimeError, UnknownVerb, nearest, sentence
from streamq.expressions import duration, end, start, when, window_end, window_start
from streamq.functions.dates import TIMESTAMP_MICROS, UNIX_MICROS
from streamq.operators import JoinTable, ToSignal
from streamq.operators.grouped import Grouped
from streamq.operators.windowed import Windowed
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Field, Schema
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.drawn_expressions import evaluable, exact, lifetime_parts, matched, numbers, predicates
from streamq.testing.drawn_windows import aggregate, aggregated
from streamq.testing.generate import KINDS, WITH_IDS, Draw, cases_of, source_of
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.payloads import EPOCH, key_types, value_types
from streamq.testing.queries import looked_up, paired, spans, static, table_for
from streamq.testing.table import fields_of
from streamq.time import INTEGER, TIMESTAMP
from streamq.windows import ALIGN, CLIPS, POINT_AT_END


class _Any:
    """A part that is left out."""

    def __repr__(self) -> str:
        return "ANY"

    def __iter__(self) -> NoReturn:
        raise PlanError(sentence("ANY", "stands in scenarios only", "", "Begin with t.stream(...)."))


ANY: Final = _Any()
"""A part of a scenario that is left out: a predicate, a size, a key, a column's expression, a stream, a whole argument."""

ENDS = ("run", "explain", "explanation", "show", "to_df", "to_pandas", "to_arrow", "to_stream", "to_json")
"""What only a query that is complete can do."""

KNOWN = ("schema", "columns", "plan", "tables", "query", "answer")
"""What is known only of a query that is complete."""

VERBS = sorted(
    {
        n
        for kind in (Stream, Grouped, Windowed)
        for n in dir(kind)
        if not n.startswith("_") and callable(getattr(kind, n))
    }
    - set(ENDS)
)


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """A node of an intent tree; verbs applied to it give others, with ``ANY`` for what is left out.

    Scenarios compose: one's output is another's input, as the stream that a verb is called on or as an argument.

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
        if name.startswith("_"):
            raise AttributeError(name)
        if name in (*ENDS, *KNOWN):
            hint = "t.concrete(scenario) gives cases with nothing left out: case.query is such a stream."
            raise UnknownVerb(sentence("scenario", f"no verb {name!r}", "parts of it are left out", hint))
        if name not in VERBS:
            there = f"there are: {', '.join(VERBS)}"
            raise UnknownVerb(sentence("scenario", f"no verb {name!r}", there, nearest(name, VERBS)))
        return lambda *args, **kwargs: Scenario(name, self, args, kwargs)

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``function(self, ...)``: a query's functions are a scenario's too."""
        if not callable(function):
            raise PlanError(sentence("pipe", "not a function of a stream", f"found {function!r}"))
        return function(self, *args, **kwargs)

    def __repr__(self) -> str:
        if self.verb == _STREAM_ITSELF:
            return repr(self.args[0])
        arguments = [repr(a) for a in self.args] + [f"{n}={v!r}" for n, v in self.kwargs.items() if v is not None]
        return ("" if self.target is None else f"{self.target!r}.") + f"{self.verb}({', '.join(arguments)})"


_STREAM_ITSELF, _STREAM, _OPERATOR, _COMPOSITION = "stream itself", "stream", "operator", "composition"


def stream(
    name: str | None = None,
    *,
    shape: str | None = None,
    columns: str | None = None,
    axis: str | None = None,
    **intent: Any,
) -> Scenario:
    """A stream that is left open: any source, under what its :class:`Intent` says of it (``disorder="high"``).

    ``shape``: the kind of source, "points", "intervals", "edges", "physical", "signal", or "points_ids", "intervals_ids" or
    "physical_ids", where events have ids, which are left out again above it; ``columns``: its payload as Spark DDL (default:
    ``k`` and ``v`` of types that are the same for all open streams of a scenario: any that the verbs over them take, nested
    ones too, plain ones more often); ``axis``: "integer" or "timestamp", which
    a scenario with durations of its own must say; the other arguments are those of :class:`Intent`.
    """
    if axis not in (None, INTEGER, TIMESTAMP):
        raise PlanError(sentence("stream", f"no axis {axis!r}", f"there are: {INTEGER}, {TIMESTAMP}"))
    shapes = (*KINDS, *WITH_IDS, "signal")
    if shape is not None and shape not in shapes:
        raise PlanError(sentence("stream", f"no shape {shape!r}", f"there are: {', '.join(shapes)}"))
    Intent(**intent)  # its words are checked here, where they stand
    arguments = {"shape": shape, "columns": columns, "axis": axis, **intent}
    return Scenario(_STREAM, None, () if name is None else (name,), arguments)


def operator(*inputs: Scenario | Stream) -> Scenario:
    """Any operator, with any arguments, over one stream or two of equal columns (default: one open stream)."""
    if len(inputs) > 2:
        raise PlanError(sentence("operator", "more than two inputs", f"found {len(inputs)}"))
    return Scenario(_OPERATOR, None, inputs or (stream(),))


def composition(least: int = 3, most: int = 6) -> Scenario:
    """Any query of so many operators over one open stream or two."""
    return Scenario(_COMPOSITION, None, (least, most))


def concrete(scenario: Scenario | Stream, intent: Intent = ANYTHING) -> st.SearchStrategy[Case]:
    """The concrete trees of a scenario, as a strategy that shrinks: queries with nothing left out, and their data."""
    for argument, kind, wrong, hint in (
        (scenario, (Scenario, Stream), "not a scenario and not a stream", "Begin with t.stream(...)."),
        (intent, (Intent,), "not an intent", "Give t.Intent(...)."),
    ):
        if not isinstance(argument, kind):
            raise PlanError(sentence("concrete", wrong, f"found {type(argument).__name__}", hint))
    return _cases(scenario, intent)


@st.composite
def _cases(draw: Draw, scenario: Scenario | Stream, intent: Intent) -> Case:
    axis = draw(st.sampled_from(_axes(scenario)))
    try:
        building, query = _built(draw, scenario, axis)
    except TimeError as error:
        wrong = _UNIT.match(str(error))
        if wrong is None or len(_axes(scenario)) == 1:
            raise
        # the verb knows one axis, of which nobody has spoken
        other = INTEGER if axis == TIMESTAMP else TIMESTAMP
        hint = f'The axis is left open; say which: t.stream(axis="{other}").'
        raise TimeError(f"{wrong[0]}. {hint}") from error
    if not isinstance(query, Stream):
        raise PlanError(sentence("scenario", "it does not end in a stream", f"found {scenario!r}"))
    return draw(cases_of(query.plan, intent, query.tables, building.intents))


_UNIT = re.compile(r".*: a duration with(out)? a unit on .*(?=\. )")
"""A size that does not fit the time axis, without the hint."""


def _built(draw: Draw, scenario: Scenario | Stream, axis: str) -> tuple[_Filler, Any]:
    """A concrete tree over columns of the oddest types drawn that its verbs take; what is wrong over plain ones is wrong."""
    (key, *keys), (value, *values) = draw(key_types()), draw(value_types())
    tried = [(key, value), *((key, v) for v in values[:1]), *((k, value) for k in keys), (keys[0], values[0])]
    plain = keys[-1], values[-1]
    for types in dict.fromkeys((*tried, (keys[0], values[-1]), plain)):
        building = _Filler(draw, axis, types)
        try:
            return building, building.built(scenario)
        except (PlanError, NeedsSpark):
            if types == plain:
                raise
    raise AssertionError(plain)


class _Filler:
    """One concrete tree in the making: what has been drawn for it so far."""

    def __init__(self, draw: Draw, axis: str, types: tuple[t.DataType, t.DataType]):
        self.draw, self.axis, self.types = draw, axis, types
        self.done: dict[int, tuple[Scenario, Any]] = {}
        self.intents: dict[str, Intent] = {}

    def built(self, part: Any) -> Any:
        """What stands for a scenario; each node of the tree is made once."""
        if isinstance(part, Stream):
            return part
        if id(part) not in self.done:
            # kept with the scenario itself: an object that is gone leaves its id to the next
            self.done[id(part)] = (part, self._built_node(part))
        return self.done[id(part)][1]

    def _built_node(self, node: Scenario) -> Any:
        match node.verb:
            case "stream itself":
                return node.args[0]
            case "stream":
                return self._source(node)
            case "operator":
                return self._operator([self.built(i) for i in node.args])
            case "composition":
                return self._composition(*node.args)
        assert node.target is not None
        target = self.built(node.target)
        method = getattr(target, node.verb)
        bound = inspect.signature(method).bind(*node.args, **node.kwargs)
        self._complete(node.verb, bound, target)
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(self._filled(node.verb, name, v, target) for v in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {n: self._filled(node.verb, n, v, target, True) for n, v in value.items()}
            else:
                bound.arguments[name] = self._filled(node.verb, name, value, target)
        return method(*bound.args, **bound.kwargs)

    def _complete(self, verb: str, bound: inspect.BoundArguments, target: Any) -> None:
        """What goes with what is left out, and what nobody would write out: names that meet in a join are told apart."""
        arguments = bound.arguments
        if verb in ("join", "windowed_join") and "suffixes" not in arguments:
            arguments["suffixes"] = ("", "_r")
        if verb == "alter_lifetime" and arguments.get("start") is ANY and arguments.get("within", ANY) is ANY:
            arguments["start"], arguments["within"] = self.draw(_starts(target.plan))
        if verb == "landmark_window" and arguments.get("period") is ANY:
            alone = self.draw(st.sampled_from([False, False, True]))
            if alone:
                arguments["period"] = None
                # of landmarks without a period there must be one
                arguments["start"] = arguments.get("start") or ANY
            elif arguments.get("start") is ANY and self.draw(st.booleans()):
                arguments["start"] = None

    def _source(self, node: Scenario) -> Stream:
        kwargs = dict(node.kwargs)
        shape, ddl, _ = (kwargs.pop(n) for n in ("shape", "columns", "axis"))
        name = node.args[0] if node.args else "abcdefgh"[len(self.intents)]
        kind = shape or self.draw(st.sampled_from([*KINDS, "intervals"]))
        key, value = self.types
        fields = fields_of(ddl) if ddl else (Field("k", key), Field("v", value))
        plan: Node = self.draw(source_of(name, "points" if kind == "signal" else kind, fields, self.axis))
        self.intents[name] = Intent(**kwargs)
        if kind == "signal":
            plan = ToSignal(plan, (fields[0].name,))
        return Stream(plan, {name: None})

    def _operator(self, inputs: list[Stream]) -> Stream:
        one = inputs[0]
        if len(inputs) == 2 and one.plan.schema.names == inputs[1].plan.schema.names:
            return one._derive(self.draw(paired(one.plan, inputs[1].plan)), inputs[1])
        return self._over(one, self.draw(st.sampled_from(["span", "span", "window", "table"])), "x")

    def _over(self, query: Stream, kind: str, label: str) -> Stream:
        match kind:
            case "span":
                return query._derive(self.draw(spans(query.plan, most=1)))
            case "window":
                return query._derive(self.draw(aggregated(query.plan, label)))
            case "table":
                plan = self.draw(looked_up(query.plan))
                tables = {n.table: static(n.table) for n in nodes(plan) if isinstance(n, JoinTable)}
                return type(query)(plan, {**query.tables, **tables})
        raise AssertionError(kind)

    def _composition(self, least: int, most: int) -> Stream:
        inputs = [self.built(stream()) for _ in range(self.draw(st.integers(1, 2)))]
        query, left = inputs[0], inputs[1:]
        many = self.draw(st.integers(least, most))
        for i in range(many):
            kinds = ["span", "span", "window", "table"] if i else ["span", "window"]
            other = left[-1] if left else query
            if other.plan.schema.names == query.plan.schema.names:
                kinds += ["pair"] * 3
            kind = self.draw(st.sampled_from(kinds))
            if kind == "pair":
                query = query._derive(self.draw(paired(query.plan, other.plan)), other)
                left = left[:-1]
            else:
                query = self._over(query, kind, f"x{i}")
        return query

    # arguments

    def _filled(self, verb: str, name: str, value: Any, target: Any, named: bool = False) -> Any:
        if value is ANY:
            return self._any(verb, name, target, named)
        if isinstance(value, Scenario):
            return self.built(value)
        if verb == "apply" and callable(value):
            return lambda inner: self.built(value(Scenario(_STREAM_ITSELF, None, (inner,))))
        return value

    def _any(self, verb: str, name: str, target: Any, named: bool) -> Any:
        plan: Node = (target if isinstance(target, Stream) else target.stream).plan
        schema, exact_columns = plan.schema, exact(plan)
        columns = sorted(exact_columns) or list(schema.names)
        draw = self.draw
        if (verb, name) in _STREAMS:
            return self.built(stream())
        if named:
            if isinstance(target, Windowed):
                bound = draw(st.sampled_from([None] * 10 + [window_start(), window_end()]))
                if bound is not None:
                    return bound
                return draw(aggregate(schema, exact_columns))
            column = numbers(schema, draw(st.sampled_from(schema.names)), True)
            return draw(st.one_of(column, column, lifetime_parts()))
        if (verb, name) in _INTEGERS or name in _INTEGERS:
            low, high = _INTEGERS.get((verb, name)) or _INTEGERS[name]
            many = draw(st.integers(low, high))
            timed = schema.axis == TIMESTAMP and (verb, name) not in _COUNTS and name not in _COUNTS
            return dt.timedelta(microseconds=many) if timed else many
        if (verb, name) in _WORDS or name in _WORDS:
            return draw(st.sampled_from(_WORDS.get((verb, name)) or _WORDS[name]))
        match verb, name:
            case _, "predicate":
                return draw(predicates(schema, exact_columns))
            case "join_table", "table":
                return static(table_for(schema.type_of("k")))
            case _, "on" | "order_by" | "key":
                keys = matched(schema, columns)
                most = draw(st.sampled_from([1, 1, 1, 2]))
                return draw(st.lists(st.sampled_from(keys), max_size=most, unique=True)) if keys else []
            case _, "id" | "keys" | "k" | "by":
                return draw(st.sampled_from(matched(schema, columns) or columns))
            case _, "columns" | "names":
                return draw(st.sampled_from(columns))
            case _, "where":
                return draw(_conditions(schema, columns))
            case "set_duration" | "alter_lifetime", "duration":
                lengths = [1, 3, 5] if schema.axis == INTEGER else [dt.timedelta(microseconds=n) for n in (1, 3, 5)]
                # left out it stays as it is
                as_it_is = [None] * 2 * (verb == "alter_lifetime")
                return draw(st.sampled_from([*lengths, duration() * 2, *as_it_is]))
            case "landmark_window", "start":
                at = draw(st.integers(-5, 9))
                return at if schema.axis == INTEGER else EPOCH + dt.timedelta(microseconds=at)
        raise PlanError(sentence("scenario", f"nothing to fill {name!r} of {verb} with", "", "Give it a value."))


_STREAMS = {
    ("join", "other"), ("left_anti_join", "other"), ("windowed_join", "other"), ("except_", "other"),
    ("clip", "by"), ("union", "others"),
}  # fmt: skip
"""Arguments that are streams."""

_INTEGERS: Mapping[Any, tuple[int, int]] = {
    "size": (1, 9), "hop": (1, 9), "offset": (-9, 9), "gap": (2, 6), "period": (1, 9), "within": (0, 6),
    "n": (1, 4), "step": (1, 4), ("top_k", "k"): (1, 3), ("sliding_window", "duration"): (1, 6),
    ("shift", "by"): (-6, 6), ("extend", "by"): (-6, 6), ("landmark_window", "period"): (2, 15),
}  # fmt: skip
"""Arguments that are numbers, of ticks or rows: the least and the greatest."""

_COUNTS = ("n", "step", ("top_k", "k"))
"""Those that are numbers of rows."""

_WORDS: Mapping[Any, tuple[Any, ...]] = {
    ("join", "how"): ("inner", "left", "semi", "anti"), ("join_table", "how"): ("inner", "left"),
    ("count_window", "by"): ("start", "end"), "clip_input": CLIPS, "stamp": (ALIGN, POINT_AT_END),
    "ties": ("keep", "break"), "desc": (True, False), "suffixes": (("", "_r"),),
}  # fmt: skip
"""Arguments that are words."""


def _axes(root: Scenario | Stream) -> list[str]:
    """The time axes that a scenario leaves open."""
    left: list[Any] = [root]
    while left:
        node = left.pop()
        if isinstance(node, Stream):
            return [node.schema.axis]
        if isinstance(node, Scenario):
            if node.verb == _STREAM and node.kwargs["axis"]:
                return [node.kwargs["axis"]]
            left += [node.target, *node.args, *node.kwargs.values()]
    return [INTEGER, TIMESTAMP]


@st.composite
def _starts(draw: Draw, plan: Node) -> tuple[Expr | None, Any]:
    """A start for alter_lifetime and what ``within`` promises: it reads the start, the end, or the payload."""

    def span(ticks: int) -> Any:
        return ticks if plan.schema.axis == INTEGER else dt.timedelta(microseconds=ticks)

    name = draw(st.sampled_from(sorted(exact(plan)) or list(plan.schema.names)))
    match draw(st.sampled_from(["as it is", "start", "later", "earlier", "grid", "grid", "end", "payload", "payload"])):
        case "start":
            return start(), None
        case "grid":
            # a step function: what lies between its steps starts at one of them
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
            # the promise is kept to the tick by every event that has a value
            within = draw(st.integers(0, 6))
            return start() - when(Col(name).is_not_null(), span(within)).otherwise(span(0)), span(within)
    return None, None


@st.composite
def _conditions(draw: Draw, schema: Schema, columns: list[str]) -> Any:
    """A condition on a pair of events, or none."""
    name = draw(st.sampled_from(columns))
    conditions: list[Callable[[Any, Any], Expr]] = [
        lambda l, r: l[name].is_not_null(),
        lambda l, r: l[name] == r[name],
        lambda l, r: l[name] < r[name],
        lambda l, r: l[name].eq_null_safe(r[name]),
    ]
    # both sides have the columns of one
    one = {name: Col(name)}
    return draw(st.sampled_from([None, *(make for make in conditions if evaluable(make(one, one), schema))]))


__all__ = ["ANY", "Scenario", "composition", "concrete", "operator", "stream"]
