"""Turn a user's argument into an expression over one stream: column names, lambdas, columns taken from streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from streamq.errors import MixedStreams, PlanError, sentence, warn
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Alias, Col, Expr, Lifetime, WindowBound, as_expr, show
from streamq.plan.function import CallableModule
from streamq.plan.node import Node, nodes
from streamq.plan.passes import expression_nodes as parts
from streamq.plan.passes import rewrite_expression
from streamq.plan.schema import Schema


class EventProxy:
    """Stands for an event in a lambda: ``lambda e: e.fare > 5``; an attribute or item is a payload column."""

    def __init__(self, plan: Node, verb: str):
        self._plan, self._verb = plan, verb

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expr:
        """Return the payload column of a name, with the plan as its origin; raise UnknownColumn, or PlanError for no string."""
        if not isinstance(name, str):
            raise PlanError(self._verb, "a column name is a string", f"found {name!r}")
        if name not in self._plan.schema.names:
            self._plan.schema.unknown(name, self._verb)
        return Col(name, self._plan.digest)

    def __iter__(self) -> Iterator[Any]:
        hint = "Aggregates are sq.sum, sq.min, sq.max; Python's own take lists."
        raise PlanError(self._verb, "an event is not iterable", "", hint)

    def __repr__(self) -> str:
        return f"an event of {', '.join(self._plan.schema.names)}"

    def _refused(self, *operands: object) -> NoReturn:
        """Raise PlanError for an operator or a call on the event itself, which lacks the name of a column."""
        names = self._plan.schema.names
        hint = f"Write e.{names[0]}." if names else "Its lifetime is sq.start(), sq.end()."
        raise PlanError(self._verb, "a whole event where one of its columns is wanted", f"found {self!r}", hint)

    # a column was forgotten: lambda e: e > 5
    __bool__ = __len__ = __contains__ = __neg__ = __abs__ = __invert__ = __float__ = __int__ = __call__ = _refused
    __add__ = __sub__ = __mul__ = __truediv__ = __mod__ = __pow__ = __and__ = __or__ = _refused
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rmod__ = __rpow__ = __rand__ = __ror__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refused
    __hash__ = None  # type: ignore[assignment]


ExprArgument = Any
"""An expression as a verb takes it: an Expr, a plain value, or a function of a :class:`EventProxy`."""


def resolve(argument: ExprArgument, plan: Node, verb: str, of_events: bool = False) -> Expr:
    """Return an argument as an expression over ``plan``: lambdas are called, columns are checked and lose their origin.

    A text is a constant, not the name of a column. ``of_events``: the expression is about the plan's events, not windows of
    them; then only a window's result has the bounds of a window. A name ``s.v`` that is no column is the field v of the column
    s. Raises UnknownColumn for a name the stream does not have, MixedStreams for a column of another stream, TypeMismatch for a
    value that is no constant; and PlanError for a window's bound where there is no window, for a lambda that returns a truth
    value, None or its whole event, and for a module that was not called.
    """
    _check_called(argument, verb)
    result = argument(EventProxy(plan, verb)) if callable(argument) and not isinstance(argument, Expr) else argument
    if isinstance(result, bool | None) and callable(argument):
        raise no_expression(result, verb)
    if isinstance(result, EventProxy):
        result._refused()
    expr = as_expr(result)
    _check_bounds(expr, plan, verb, of_events)
    ancestors: list[set[str]] = []

    def check(node: Expr) -> Expr | None:
        """Return a column without its origin, a window's bound as a lifetime, None for what stays; raise for wrong columns."""
        if isinstance(node, WindowBound):
            return Lifetime(node.part)
        if not isinstance(node, Col):
            return None
        if node.origin is not None and node.origin != plan.digest:
            if not ancestors:
                ancestors.append({n.digest for n in nodes(plan)})
            if node.origin not in ancestors[0]:
                raise MixedStreams(
                    verb,
                    "an expression that mixes streams",
                    f"column {node.name!r} is of another one",
                    "Join or union the streams first.",
                )
        if node.name not in plan.schema.names:
            head, _, rest = node.name.partition(".")
            if rest and head in plan.schema.names:
                return Col(head)[rest]
            plan.schema.unknown(node.name, verb)
        return None if node.origin is None else Col(node.name)

    return rewrite_expression(expr, check)


def _check_bounds(expr: Expr, plan: Node, verb: str, of_events: bool) -> None:
    """Raise PlanError for ``window_start()`` and ``window_end()`` of events, or of the members that an aggregate takes.

    ``of_events`` as in :func:`resolve`.
    """
    all_parts = parts(expr)
    if not any(isinstance(p, WindowBound) for p in all_parts):
        return
    where = [expr] if of_events and not plan.traits.on_windows else [p for p in all_parts if isinstance(p, Aggregate)]
    for part in where:
        bound = next((p for p in parts(part) if isinstance(p, WindowBound)), None)
        if bound is not None:
            hint = f"An event's own is sq.{bound.part}()."
            raise PlanError(verb, "a bound of a window where there are only events", f"found {show(part)}", hint)


def _check_called(argument: ExprArgument, verb: str) -> None:
    """Raise PlanError for a user's module that was not called with columns."""
    if isinstance(argument, CallableModule):
        wrong, observed = f"{argument.name} is a module without columns", f"found {argument!r}"
        raise PlanError(verb, wrong, observed, f"Call it with columns, as {argument.example_call}.")


def no_expression(result: bool | None, verb: str) -> PlanError:
    """Return the error for a lambda that returned a plain truth value or None."""
    return PlanError(
        verb,
        "the function gave no expression",
        f"found {result!r}",
        "Use & | ~ and == on its columns, not and, or, not, is.",
    )


def column_or_expr(argument: ExprArgument) -> ExprArgument:
    """Return a string as the column of that name, anything else unchanged; for verbs that take columns."""
    return Col(argument) if isinstance(argument, str) else argument


def name_columns(
    positional: Iterable[ExprArgument], keywords: Mapping[str, ExprArgument], schema: Schema, verb: str
) -> Iterator[tuple[str, ExprArgument]]:
    """Yield the names and expressions of a ``select``: strings, columns and aliases by their name, then keywords.

    Raises PlanError for a positional argument without a name. Warns if the text of a keyword is the name of a column.
    """
    for argument in positional:
        _check_called(argument, verb)
        item = column_or_expr(argument)
        match item:
            case Col(name=name):
                yield name, item
            case Alias(arg=arg, name=name):
                yield name, arg
            case Expr():
                raise PlanError(verb, "an expression without a name", f"found {show(item)}", "Write name=expression.")
            case _:
                raise PlanError(
                    verb, "neither a column nor a named expression", f"found {argument!r}", "Write name=expression."
                )
    for name, argument in keywords.items():
        if isinstance(argument, str) and argument in schema.names:
            hint = f"Write {name}=sq.col({argument!r}) for the column, {name}=sq.lit({argument!r}) for the text."
            warn(sentence(verb, f"{name}={argument!r} is a text", "there is a column of that name", hint))
        yield name, argument
