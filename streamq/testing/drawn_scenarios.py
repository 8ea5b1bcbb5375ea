"""Fill in the parts that scenarios leave out, at random, and draw their data, as Hypothesis strategies.

This is the transformer of the test framework (section 4), which makes concrete trees.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import CedrError, NeedsSpark, PlanError, TimeError, sentence
from streamq.keywords import check_keywords
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Field
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.drawn_arguments import STREAMS, argument, starts
from streamq.testing.generate import KINDS, Draw, cases_of, source_of
from streamq.testing.intent import ANYTHING, Intent
from streamq.testing.payload_values import key_types, value_types
from streamq.testing.program import statements
from streamq.testing.scenario import ANY, GROUP, STREAM, Scenario, stream
from streamq.testing.table import fields_of
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
        raise PlanError(sentence("scenario", "it does not end in a stream", f"found {scenario!r}"))
    return FilledScenario(query, building.intents)


_UNIT = re.compile(r".*: a duration with(out)? a unit on .*(?=\. )")
"""Matches the message for a duration that does not fit the time axis, without its hint."""


def _built(draw: Draw, scenario: Scenario | Stream, axis: str) -> tuple[_Filler, Any]:
    """Build a concrete tree over columns of the oddest types that its verbs accept.

    Returns what filled it in, and the return value of its last verb. Types are tried from the oddest to plain ones, as long as
    PlanError, CedrError or NeedsSpark is raised; over plain ones it is raised here, too.
    """
    (key, *keys), (value, *values) = draw(key_types()), draw(value_types())
    odd = [(key, value), *((key, v) for v in values[:1]), *((k, value) for k in keys), (keys[0], values[0])]
    plain = keys[-1], values[-1]
    for types in dict.fromkeys((*odd, (keys[0], values[-1]), plain)):
        building = _Filler(draw, axis, types)
        try:
            return building, building.filled(scenario)
        except (PlanError, CedrError, NeedsSpark):
            if types == plain:
                raise
    raise AssertionError(plain)


class _Filler:
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
