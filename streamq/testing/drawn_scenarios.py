"""Concrete trees, as Hypothesis strategies: scenarios whose parts that are left out are filled in at random, and their data.

The transformer of the test framework (section 4).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import CedrError, NeedsSpark, PlanError, TimeError, sentence
from streamq.operators import JoinTable, ToSignal
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Field
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.drawn_arguments import STREAMS, argument, starts
from streamq.testing.drawn_windows import aggregated
from streamq.testing.generate import KINDS, Draw, cases_of, source_of
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.operators.join_table import looked_up
from streamq.testing.payload_types import key_types, value_types
from streamq.testing.queries import paired, spans
from streamq.testing.scenario import ANY, STREAM, STREAM_ITSELF, Scenario, stream
from streamq.testing.static_tables import static
from streamq.testing.table import fields_of
from streamq.time import INTEGER, TIMESTAMP


def concrete(scenario: Scenario | Stream, intent: Intent = ANYTHING) -> st.SearchStrategy[Case]:
    """The concrete trees of a scenario, as a strategy that shrinks: queries with nothing left out, and their data."""
    for value, kind, wrong, hint in (
        (scenario, (Scenario, Stream), "not a scenario and not a stream", "Begin with t.stream(...)."),
        (intent, (Intent,), "not an intent", "Give t.Intent(...)."),
    ):
        if not isinstance(value, kind):
            raise PlanError(sentence("concrete", wrong, f"found {type(value).__name__}", hint))
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
    odd = [(key, value), *((key, v) for v in values[:1]), *((k, value) for k in keys), (keys[0], values[0])]
    plain = keys[-1], values[-1]
    for types in dict.fromkeys((*odd, (keys[0], values[-1]), plain)):
        building = _Filler(draw, axis, types)
        try:
            return building, building.built(scenario)
        except (PlanError, CedrError, NeedsSpark):
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
        """The concrete part in place of a scenario; each node of the tree is built once."""
        if isinstance(part, Stream):
            return part
        if id(part) not in self.done:
            # beside the scenario itself: an object that is gone leaves its id to the next
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
            case "call":
                return self._called(*node.args, **node.kwargs)
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
        """Add the arguments that depend on each other, and suffixes for names that meet in a join, which nobody writes out."""
        arguments = bound.arguments
        if verb in ("join", "windowed_join") and "suffixes" not in arguments:
            arguments["suffixes"] = ("", "_r")
        if verb == "alter_lifetime" and arguments.get("start") is ANY and arguments.get("within", ANY) is ANY:
            arguments["start"], arguments["within"] = self.draw(starts(target.plan))
        if verb == "landmark_window" and arguments.get("period") is ANY:
            alone = self.draw(st.sampled_from([False, False, True]))
            if alone:
                arguments["period"] = None
                # of landmarks without a period there must be one
                arguments["start"] = arguments.get("start") or ANY
            elif arguments.get("start") is ANY and self.draw(st.booleans()):
                arguments["start"] = None

    def _called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function of streams, over those of its scenarios."""
        bound = inspect.signature(function).bind(*args, **kwargs)
        parts = [self.built(a) for a in (*args, *kwargs.values()) if isinstance(a, Scenario)]
        target = next((p if isinstance(p, Stream) else next(iter(p.types.values())) for p in parts), None)
        filled = [
            self._filled(function.__name__, n, v, target)
            for n, v in zip(bound.signature.parameters, args, strict=False)
        ]
        filled += [self._filled(function.__name__, "", v, target) for v in args[len(filled) :]]
        return function(*filled, **{n: self._filled(function.__name__, n, v, target) for n, v in kwargs.items()})

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

    def _filled(self, verb: str, name: str, value: Any, target: Any, named: bool = False) -> Any:
        if value is ANY and (verb, name) in STREAMS:
            return self.built(stream())
        if value is ANY:
            return argument(self.draw, verb, name, target, named)
        if isinstance(value, Scenario):
            return self.built(value)
        if verb == "apply" and callable(value):
            return lambda inner: self.built(value(Scenario(STREAM_ITSELF, None, (inner,))))
        return value


def _axes(root: Scenario | Stream) -> list[str]:
    """The time axes that a scenario leaves open."""
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


__all__ = ["concrete"]
