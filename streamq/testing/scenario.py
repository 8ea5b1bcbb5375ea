"""Scenarios: queries with parts left out.

Scenarios are the intent trees of the test framework (section 3): "an equi-join over out-of-order streams" stands for many
concrete trees, each a query with its data, which ``drawn_scenarios.py`` draws. A scenario is written like a query, with ``ANY``
for the parts that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from streamq.choices import check_word
from streamq.errors import PlanError, UnknownVerb, nearest
from streamq.keywords import check_keywords
from streamq.operators.grouped_stream import GroupedStream
from streamq.operators.windowed_stream import WindowedStream
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_tree import Contributor
from streamq.plan.node import Placeholder
from streamq.stream import Stream
from streamq.testing.generate import KINDS, WITH_IDS
from streamq.testing.intent import Intent
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
