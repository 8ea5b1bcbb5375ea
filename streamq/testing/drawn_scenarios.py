"""Fill in the parts that scenarios leave out, at random, and draw their data, as Hypothesis strategies.

This is the transformer of the test framework (section 4), which makes concrete trees.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import CedrError, NeedsSpark, PlanError, TimeError, sentence
from streamq.keywords import check_keywords
from streamq.operators import JoinTable, ToSignal
from streamq.plan.node import Node, nodes, number_sources
from streamq.plan.schema import Field
from streamq.stream import Stream
from streamq.testing.case import Case, Meant
from streamq.testing.drawn_arguments import STREAMS, argument, starts
from streamq.testing.drawn_windows import aggregated
from streamq.testing.generate import KINDS, Draw, cases_of, source_of
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.operators.join_table import looked_up
from streamq.testing.payload_types import key_types, value_types
from streamq.testing.queries import paired, spans
from streamq.testing.scenario import ANY, CALL, OPERATOR, STREAM, STREAM_ITSELF, Scenario, stream
from streamq.testing.static_tables import static
from streamq.testing.table import fields_of
from streamq.testing.verbs import meaning
from streamq.testing.verbs.text import text_of
from streamq.testing.windows.room import rooms
from streamq.time import INTEGER, TIMESTAMP


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
            raise PlanError(sentence("concrete", wrong, f"found {type(value).__name__}", hint))
    return _cases(scenario, intent, may_fail=may_fail)


@dataclass(frozen=True)
class Filled:
    """A scenario with nothing left out: ``written``, its calls; the query that they build; the intents of its sources."""

    written: Scenario
    query: Stream
    intents: Mapping[str, Intent]

    @property
    def meant(self) -> Meant | None:
        """The plan that the calls mean; None if it is the plan that they build."""
        plan, _ = number_sources(meaning(self.written))
        return None if plan == number_sources(self.query.plan)[0] else Meant(plan, text_of(self.written))


@st.composite
def _cases(draw: Draw, scenario: Scenario | Stream, intent: Intent, *, may_fail: bool) -> Case:
    """Draw a scenario with nothing left out, then data for its sources, and return both as a case."""
    one = draw(filled(scenario))
    return draw(cases_of(one.query.plan, intent, one.query.tables, one.intents, one.meant, may_fail=may_fail))


@st.composite
def filled(draw: Draw, scenario: Scenario | Stream) -> Filled:
    """Draw a scenario with nothing left out, and the query that its verbs build.

    Raises PlanError if that is not a stream, and the errors of its verbs. If the scenario names no axis, an error over a duration
    that fits the other axis asks to name one.
    """
    axis = draw(st.sampled_from(_axes(scenario)))
    try:
        building, written, query = _built(draw, scenario, axis)
    except TimeError as error:
        wrong = _UNIT.match(str(error))
        if wrong is None or len(_axes(scenario)) == 1:
            raise
        # the verb works on one time axis only, and the scenario names none
        other = INTEGER if axis == TIMESTAMP else TIMESTAMP
        hint = f'The axis is left open; say which: t.stream(axis="{other}").'
        raise TimeError(f"{wrong[0]}. {hint}") from error
    if not isinstance(query, Stream):
        raise PlanError(sentence("scenario", "it does not end in a stream", f"found {scenario!r}"))
    return Filled(written, query, building.intents)


_UNIT = re.compile(r".*: a duration with(out)? a unit on .*(?=\. )")
"""Matches the message for a duration that does not fit the time axis, without its hint."""


def _built(draw: Draw, scenario: Scenario | Stream, axis: str) -> tuple[_Filler, Scenario, Any]:
    """Build a concrete tree over columns of the oddest types that its verbs accept.

    Returns what filled it in, the scenario with nothing left out, and the return value of its last verb. Types are tried from
    the oddest to plain ones, as long as PlanError, CedrError or NeedsSpark is raised; over plain ones it is raised here, too.
    """
    (key, *keys), (value, *values) = draw(key_types()), draw(value_types())
    odd = [(key, value), *((key, v) for v in values[:1]), *((k, value) for k in keys), (keys[0], values[0])]
    plain = keys[-1], values[-1]
    for types in dict.fromkeys((*odd, (keys[0], values[-1]), plain)):
        building = _Filler(draw, axis, types)
        try:
            written = building.filled(scenario)
            return building, written, building.built(written)
        except (PlanError, CedrError, NeedsSpark):
            if types == plain:
                raise
    raise AssertionError(plain)


class _Filler:
    """Fills in one scenario, node by node from the sources, and calls the verbs of each filled node at once.

    ``done`` maps the id of a node to the node and its filled node. ``results`` maps the id of a filled node to that node and the
    return value of its verb. Both keep the object itself, because Python gives the id of a freed object to another one.
    ``intents`` are the intents of the open sources so far, by the sources' names.
    """

    def __init__(self, draw: Draw, axis: str, types: tuple[t.DataType, t.DataType]):
        """Begin with nothing filled in; ``types`` are those of the key and value columns of sources."""
        self.draw, self.axis, self.types = draw, axis, types
        self.done: dict[int, tuple[Any, Scenario]] = {}
        self.results: dict[int, tuple[Scenario, Any]] = {}
        self.intents: dict[str, Intent] = {}

    def filled(self, part: Scenario | Stream) -> Scenario:
        """Return the scenario with nothing left out; each node of the tree is filled once."""
        if id(part) not in self.done:
            self.done[id(part)] = (part, self._itself(part) if isinstance(part, Stream) else self._filled_node(part))
        return self.done[id(part)][1]

    def built(self, written: Any) -> Any:
        """Return what the verbs of a filled scenario returned; any other argument is returned as it is."""
        return self.results[id(written)][1] if isinstance(written, Scenario) else written

    def _kept(self, written: Scenario, result: Any) -> Scenario:
        """Remember what the verb of a filled node returned, and return the node."""
        self.results[id(written)] = (written, result)
        return written

    def _itself(self, stream: Stream) -> Scenario:
        """Return a filled node that stands for a stream, and whose result is that stream."""
        return self._kept(Scenario(STREAM_ITSELF, None, (stream,)), stream)

    def _filled_node(self, node: Scenario) -> Scenario:
        """Fill in a node after the node that its verb is called on, and call the verb.

        Returns the node with nothing left out; what the call returned is kept for ``built``.
        """
        match node.verb:
            case "stream itself":
                return self._itself(node.args[0])
            case "stream":
                return self._itself(self._source(node))
            case "operator":
                inputs = tuple(self.filled(i) for i in node.args)
                streams = [self.built(i) for i in inputs]
                drawn = self._operator(streams)
                written = Scenario(OPERATOR, None, (drawn, tuple(s.plan for s in streams), inputs))
                return self._kept(written, drawn)
            case "composition":
                return self._itself(self._composition(*node.args))
            case "call":
                return self._called(*node.args, **node.kwargs)
        assert node.target is not None
        before = self.filled(node.target)
        target = self.built(before)
        method = getattr(target, node.verb)
        bound = inspect.signature(method).bind(*node.args, **node.kwargs)
        if node.verb == "apply" and callable(*bound.args):
            return self._applied(before, target, *bound.args)
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
        return self._kept(Scenario(node.verb, before, tuple(args), kwargs), self._result(method, args, kwargs))

    def _result(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function with its arguments, filled scenarios replaced by their results, and return what it returns."""
        return function(*map(self.built, args), **{name: self.built(value) for name, value in kwargs.items()})

    def _applied(self, before: Scenario, target: Any, sub_plan: Callable[[Any], Any]) -> Scenario:
        """Fill in a call of ``apply``; the sub-plan is filled in while ``apply`` calls it with the stream of a group.

        The filled node has two arguments instead of the function: the group, and the filled sub-plan over it. ``before`` is the
        filled node that ``apply`` is called on, ``target`` its result.
        """
        parts: list[Scenario] = []

        def of_group(group: Stream) -> Any:
            argument = self._itself(group)
            parts[:] = [argument, self.filled(sub_plan(argument))]
            return self.built(parts[1])

        result = target.apply(of_group)
        return self._kept(Scenario("apply", before, tuple(parts)), result)

    def _complete(self, verb: str, bound: inspect.BoundArguments, target: Any) -> None:
        """Add to ``bound`` arguments that depend on each other, and the suffixes of a join, which scenarios need not write."""
        arguments = bound.arguments
        if verb in ("join", "windowed_join") and "suffixes" not in arguments:
            arguments["suffixes"] = ("", "_r")
        if verb == "alter_lifetime" and arguments.get("start") is ANY and arguments.get("within", ANY) is ANY:
            arguments["start"], arguments["within"] = self.draw(starts(target.plan))
        for room in rooms().values():
            if verb in room.verbs:
                room.complete(self.draw, arguments, ANY)

    def _called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Scenario:
        """Fill in the arguments of a function of streams and call it.

        They are drawn for the first scenario among them: its stream or, of a pattern, the stream of its first event type.
        Returns the call with nothing left out; what it returned is kept for ``built``.
        """
        bound = inspect.signature(function).bind(*args, **kwargs)
        parts = [self.built(self.filled(a)) for a in (*args, *kwargs.values()) if isinstance(a, Scenario)]
        target = next((p if isinstance(p, Stream) else next(iter(p.types.values())) for p in parts), None)
        filled = [
            self._argument(function.__name__, n, v, target)
            for n, v in zip(bound.signature.parameters, args, strict=False)
        ]
        filled += [self._argument(function.__name__, "", v, target) for v in args[len(filled) :]]
        named = {n: self._argument(function.__name__, n, v, target) for n, v in kwargs.items()}
        return self._kept(Scenario(CALL, None, (function, *filled), named), self._result(function, filled, named))

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
        if kind == "signal":
            plan = ToSignal(plan, (fields[0].name,))
        return Stream(plan, {name: None})

    def _operator(self, inputs: list[Stream]) -> Stream:
        """Draw an operator over the inputs: over both if there are two of equal columns, else over the first."""
        one = inputs[0]
        if len(inputs) == 2 and one.plan.schema.names == inputs[1].plan.schema.names:
            return one._derive(self.draw(paired(one.plan, inputs[1].plan)), inputs[1])
        return self._over(one, self.draw(st.sampled_from(["span", "span", "window", "table"])), "x")

    def _over(self, query: Stream, kind: str, label: str) -> Stream:
        """Draw an operator over one stream: stateless or over lifetimes ("span"), a window's aggregates, or a table's look-up.

        ``label`` begins the names of an aggregate's columns, so that those of two windows differ.
        """
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
        """Draw a query of ``least`` to ``most`` operators over one or two sources."""
        inputs = [self.built(self.filled(stream())) for _ in range(self.draw(st.integers(1, 2)))]
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

    def _argument(self, verb: str, name: str, value: Any, target: Any, named: bool = False) -> Any:
        """Return an argument of a verb, drawn if it is left out; streams become filled scenarios.

        ``named``: the argument is a column that the verb computes, under the name of the keyword.
        """
        if value is ANY and (verb, name) in STREAMS:
            return self.filled(stream())
        if value is ANY:
            return argument(self.draw, verb, name, target, named)
        return self.filled(value) if isinstance(value, Scenario | Stream) else value


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


__all__ = ["Filled", "concrete", "filled"]
