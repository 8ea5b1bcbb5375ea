"""From what a user typed to an expression over one stream: names, lambdas, columns taken from streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streamq.compiler.plan import Node, nodes
from streamq.errors import MixedStreams, PlanError, sentence, unknown_column
from streamq.expr import Alias, Call, Col, Expr, Lit, as_expr, rewrite, show


class Row:
    """Stands for an event in a lambda: ``lambda e: e.fare > 5``; an attribute or item is a payload column."""

    def __init__(self, plan: Node, verb: str):
        self._plan, self._verb = plan, verb

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expr:
        if name not in self._plan.schema.names:
            unknown_column(self._verb, name, self._plan.schema.names)
        return Col(name, self._plan.digest)


Given = Any
"""An expression as a verb takes it: an Expr, a plain value, or a function of a :class:`Row`."""


def resolve(given: Given, plan: Node, verb: str) -> Expr:
    """The expression over ``plan``: lambdas traced, columns checked and freed of their origin.

    Raises UnknownColumn for a name the stream does not have, MixedStreams for a column of another stream.
    """
    made = given(Row(plan, verb)) if callable(given) and not isinstance(given, Expr) else given
    if isinstance(made, bool | None) and callable(given):
        raise PlanError(
            sentence(
                verb,
                "the function gave no expression",
                f"found {made!r}",
                "Use & | ~ and == on its columns, not and, or, not, is.",
            )
        )
    expr = as_expr(made)
    ancestors: list[set[str]] = []

    def check(found: Expr) -> Expr | None:
        if not isinstance(found, Col):
            return None
        if found.origin is not None and found.origin != plan.digest:
            if not ancestors:
                ancestors.append({n.digest for n in nodes(plan)})
            if found.origin not in ancestors[0]:
                raise MixedStreams(
                    sentence(
                        verb,
                        "an expression that mixes streams",
                        f"column {found.name!r} is of another one",
                        "Join or union the streams first.",
                    )
                )
        if found.name not in plan.schema.names:
            head, _, rest = found.name.partition(".")
            if rest and head in plan.schema.names:
                return Call("getitem", (Col(head), Lit(rest)))
            unknown_column(verb, found.name, plan.schema.names)
        return None if found.origin is None else Col(found.name)

    return rewrite(expr, check)


def column_or_expr(given: Given) -> Given:
    """A string is a column's name where a verb takes columns."""
    return Col(given) if isinstance(given, str) else given


def named(positional: Iterable[Given], keywords: Mapping[str, Given], verb: str) -> Iterator[tuple[str, Given]]:
    """Names and expressions of a ``select``: strings and columns by their own name, aliases, then keywords."""
    for given in positional:
        found = column_or_expr(given)
        match found:
            case Col(name=name):
                yield name, found
            case Alias(arg=arg, name=name):
                yield name, arg
            case Expr():
                raise PlanError(
                    sentence(verb, "an expression without a name", f"found {show(found)}", "Write name=expression.")
                )
            case _:
                raise PlanError(
                    sentence(
                        verb, "neither a column nor a named expression", f"found {given!r}", "Write name=expression."
                    )
                )
    yield from keywords.items()
