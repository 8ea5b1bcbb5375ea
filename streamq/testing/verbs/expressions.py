"""Read the expressions in arguments of verbs: names, plain values, and functions of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from streamq.plan.expr import Alias, Col, Expr, Lifetime, WindowBound, as_expr
from streamq.plan.schema import Schema
from streamq.plan.tree import fold


class Row:
    """The argument of a function of events; its attributes and items are columns, with ``prefix`` before their names."""

    def __init__(self, prefix: str = ""):
        self._prefix = prefix

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expr:
        return Col(self._prefix + name)


def over(value: Any, schema: Schema) -> Expr:
    """Return an argument of a verb as an expression over the columns of a stream; a name ``a.b`` may be a field of column a.

    A function is called with a :class:`Row`; a string is a constant, not a column.
    """
    is_function = callable(value) and not isinstance(value, Expr)
    expression = as_expr(value(Row()) if is_function else value)

    def plain(part: Expr) -> Expr | None:
        """Return a window's bound as a part of the lifetime, and a column without its origin or as a field; None for others."""
        match part:
            case WindowBound(part=bound):
                # after the window, a row's lifetime is the window's
                return Lifetime(bound)
            case Col(name=name) if name in schema.names:
                return Col(name)
            case Col(name=name):
                column, _, field = name.partition(".")
                return Col(column)[field]
        return None

    return replace_parts(expression, plain)


def replace_parts(root: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Return an expression whose parts are replaced by ``change``, operands first; None from ``change`` keeps a part.

    It works on the fields of expressions only, and does not use their own methods for replacing operands.
    """

    def visit(node: Expr, parts: list[Expr]) -> Expr:
        """Return a node over its operands after the change, itself changed."""
        instead = {id(old): new for old, new in zip(node.children, parts, strict=True) if old is not new}

        def part(value: Any) -> Any:
            return tuple(map(part, value)) if isinstance(value, tuple) else instead.get(id(value), value)

        if instead:
            node = replace(node, **{f.name: part(getattr(node, f.name)) for f in fields(node) if f.init})
        result = change(node)
        return node if result is None else result

    return fold(root, visit)


def column(value: Any) -> Any:
    """Return the column of a name; other arguments as they are."""
    return Col(value) if isinstance(value, str) else value


def outputs(positional: Iterable[Any], keywords: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each column of a ``select``: columns, aliases, then keywords, in which a string is a constant.

    A positional string is a column's name; other positional values, which have no name, are skipped.
    """
    for value in positional:
        match column(value):
            case Col(name=name) as one:
                yield name, one
            case Alias(name=name, arg=one):
                yield name, one
    yield from keywords.items()


__all__ = ["Row", "replace_parts", "column", "outputs", "over"]
