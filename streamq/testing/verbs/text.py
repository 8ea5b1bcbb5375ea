"""Write the calls of a filled scenario's verbs as a statement of a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from streamq.operators import JoinTable, Source
from streamq.operators.grouped_stream import Group
from streamq.plan.expr import Col, Expr, WindowBound, as_expr
from streamq.plan.node import Node
from streamq.plan.passes import expression_nodes as parts
from streamq.stream import Stream
from streamq.testing.case import COMMENT
from streamq.testing.program_text import Unwritable, call, expression, is_name, string, value
from streamq.testing.program_verbs import inputs, verbs
from streamq.testing.scenario import CALL, OPERATOR, STREAM_ITSELF, Scenario

WIDTH = 90
"""The greatest length of a statement that is written on one line."""

GROUP = "g"
"""The name of a group's stream in the function of an ``apply``."""


def text_of(written: Scenario) -> str:
    """Return ``q = ...`` over sources by their names; a comment if a part cannot be written as Python."""
    try:
        chain = _chain(written)
    except Unwritable:
        return f"{COMMENT}called as: {written!r}".replace("\n", " ")
    line = f"q = {''.join(chain)}"
    if len(line) <= WIDTH:
        return line
    first, *rest = chain
    indented = [part.replace("\n", "\n    ") for part in (first + "".join(rest[:1]), *rest[1:])]
    return "q = (\n" + "\n".join(f"    {part}" for part in indented) + "\n)"


def _chain(node: Scenario) -> list[str]:
    """Return the beginning of a chain of verbs, and the calls of the verbs; raise Unwritable if one cannot be written."""
    match node.verb:
        case str(verb) if verb == STREAM_ITSELF:
            return _stream(node.args[0])
        case str(verb) if verb == OPERATOR:
            raise Unwritable("an operator that was drawn")
        case str(verb) if verb == CALL:
            function, *args = node.args
            return [call(f"sq.{function.__name__}", [*map(_argument, args), *_keywords(node)])]
    assert node.target is not None
    if node.verb == "apply":
        return [*_chain(node.target), f".apply(lambda {GROUP}: {''.join(_chain(node.args[1]))})"]
    return [*_chain(node.target), call(f".{node.verb}", [*map(_argument, node.args), *_keywords(node)])]


def _keywords(node: Scenario) -> list[str]:
    """Return the keyword arguments of a call as Python text; raise Unwritable if one cannot be written."""
    if not all(map(is_name, node.kwargs)):
        raise Unwritable("a name that cannot be a keyword")
    return [f"{name}={_argument(one)}" for name, one in node.kwargs.items()]


def _stream(stream: Stream) -> list[str]:
    """Return the name of a stream's source, or GROUP, and the calls of the verbs over it; raise Unwritable for other streams."""
    node: Node = stream.plan
    chain: list[str] = []
    while len(node.children) == 1 and not isinstance(node, Group | JoinTable):
        chain = [*verbs(node, {}, {}), *chain]
        (node,) = inputs(node)
    if isinstance(node, Group):
        return [GROUP, *chain]
    if not isinstance(node, Source) or not is_name(node.table):
        raise Unwritable("a stream without a name")
    return [node.table, *chain]


def _argument(argument: Any) -> str:
    """Return an argument of a verb as Python text; raise Unwritable for one that has no text, such as a class or a table."""
    match argument:
        case Scenario():
            return "".join(_chain(argument))
        case Expr():
            return expression(argument, None, any(isinstance(part, WindowBound) for part in parts(argument)))
        case tuple() | list() | dict() | str() | int() | float() | None:
            return value(argument)
    if inspect.isfunction(argument):
        return _function(argument)
    text = value(argument)
    if not text.startswith(("dt.", "Decimal(")):
        raise Unwritable(type(argument).__name__)
    return text


class _Event:
    """A parameter of a function; its columns are written as ``parameter.column``."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expr:
        return Col(f"{self._name}.{name}" if is_name(name) else f"{self._name}[{string(name)}]")


def _function(function: Callable[..., Any]) -> str:
    """Return a function of events as a lambda of the expression that it returns; raise Unwritable if it fails."""
    names = list(inspect.signature(function).parameters)
    try:
        result = as_expr(function(*map(_Event, names)))
    except Exception as error:
        # a function that fails for these parameters cannot be written
        raise Unwritable("a function") from error
    return f"lambda {', '.join(names)}: {expression(result, lambda name: name)}"


__all__ = ["text_of"]
