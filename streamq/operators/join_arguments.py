"""Arguments of joins, parsed and checked: key columns, the condition on pairs, and the names of columns in the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamq.choices import JoinKind
from streamq.errors import AmbiguousColumn, PlanError, TypeMismatch, sentence, unknown_column
from streamq.plan.expr import Col, Expr, as_expr, hint_for, show
from streamq.plan.node import Node, Verbs, not_a_stream
from streamq.plan.passes import reads_lifetime, rewrite_expression
from streamq.plan.resolve import EventProxy, no_expression
from streamq.plan.schema import Schema, check_key
from streamq.plan.spark_types import wider

On = str | Sequence[str | tuple[str, str]] | Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


def pair_fields(
    left: Node,
    other: object,
    on: On,
    where: Callable[[Any, Any], Any] | Expr | None,
    suffixes: tuple[str, str] | None,
    how: str,
    verb: str,
) -> tuple[Pairs, Expr | None, Pairs, Pairs]:
    """Return a verb's arguments as fields of a node over pairs: the keys, the condition, the left and the right names.

    The condition is None without ``where``. ``how`` is the kind of join, on which the need for suffixes depends. Raises PlanError
    if ``other`` is no stream, and the errors of the functions below.
    """
    if not isinstance(other, Verbs):
        not_a_stream(verb, other)
    keys = equality_pairs(on, verb)
    left_names, right_names = result_names(left, other.plan, keys, suffixes, how, verb)
    condition = (
        None
        if where is None
        else over_pair(where, left, other.plan, left_names=left_names, right_names=right_names, keys=keys, verb=verb)
    )
    return keys, condition, left_names, right_names


def equality_pairs(on: On, verb: str) -> Pairs:
    """Return the key columns of an argument ``on`` as pairs (left, right); raise PlanError for one of another form."""
    if isinstance(on, str):
        return ((on, on),)
    if isinstance(on, Mapping):
        return tuple((str(a), str(b)) for a, b in on.items())
    key_pairs: list[Any] = []
    for part in on if isinstance(on, list | tuple) else [on]:
        if isinstance(part, str):
            key_pairs.append((part, part))
        elif isinstance(part, tuple) and len(part) == 2 and all(isinstance(p, str) for p in part):
            key_pairs.append(part)
        else:
            raise PlanError(
                verb,
                "a key is a column name or a pair of them",
                f"found {part!r}",
                hint_for(part, 'Write on="k" or on=[("a", "b")].'),
            )
    return tuple(key_pairs)


def check_pairs(on: Pairs, left: Schema, right: Schema, verb: str) -> None:
    """Raise PlanError for different time axes, UnknownColumn or TypeMismatch for keys that do not exist or cannot be equal."""
    if left.axis != right.axis:
        raise PlanError(verb, "streams on different time axes", f"found {left.axis} and {right.axis}")
    for a, b in on:
        ours, theirs = left.require(a, verb, "left"), right.require(b, verb, "right")
        if wider(ours, theirs) is None:
            observed = f"found {ours.simpleString()} and {theirs.simpleString()}"
            raise TypeMismatch(verb, f"keys {a!r} and {b!r} of different types", observed, "Cast one of them.")
        check_key(ours, a, verb, "match")


def check_suffixes(suffixes: tuple[str, str] | None, verb: str) -> None:
    """Raise PlanError for suffixes that are not a pair of strings; None passes."""
    if suffixes is None:
        return
    if not isinstance(suffixes, list | tuple) or len(suffixes) != 2 or not all(isinstance(s, str) for s in suffixes):
        raise PlanError(verb, "suffixes are two strings", f"found {suffixes!r}", 'Write suffixes=("_l", "_r").')


def result_names(
    left: Node, right: Node, keys: Pairs, suffixes: tuple[str, str] | None, how: str, verb: str
) -> tuple[Pairs, Pairs]:
    """Return, for each side, pairs of a column and its name in the result; keys of one name are one column, the left one.

    Names that both sides have, whatever their case, get the suffixes. A semi or anti join, which returns no right columns, needs
    none: the right names then get ``__right``. Raises AmbiguousColumn if two columns would have one name.
    """
    check_suffixes(suffixes, verb)
    check_pairs(keys, left.schema, right.schema, verb)
    shared = {a for a, b in keys if a == b}
    theirs = [n for n in right.schema.names if n not in shared]
    lower = {n.lower() for n in theirs}
    clash = [n for n in left.schema.names if n.lower() in lower]
    if clash and suffixes is None and how in (JoinKind.INNER, JoinKind.LEFT):
        hint = 'Bring them apart with suffixes=("_l", "_r"), or rename them first.'
        raise AmbiguousColumn(verb, "columns of both streams have equal names", f"found {', '.join(clash)}", hint)
    # a semi or anti join returns the left columns under their own names; only the condition uses the suffixes
    one, two = suffixes if suffixes is not None else ("", "__right")
    clashing = {n.lower() for n in clash}
    ours = tuple((n, n + one if n.lower() in clashing else n) for n in left.schema.names)
    others = tuple((n, n + two if n.lower() in clashing else n) for n in theirs)
    seen: set[str] = set()
    for name in [to for _, to in (*ours, *others)]:
        if name.lower() in seen:
            raise AmbiguousColumn(
                verb, f"column {name!r} twice in the result", "", "Choose other suffixes, or rename one first."
            )
        seen.add(name.lower())
    return ours, others


def over_pair(
    where: Callable[[Any, Any], Any] | Expr,
    left: Node,
    right: Node,
    left_names: Pairs,
    right_names: Pairs,
    keys: Pairs,
    verb: str,
) -> Expr:
    """Return a condition on two events as an expression over the columns of the pair.

    Raises PlanError if it is none or reads a lifetime, and UnknownColumn for a column that neither side has.
    """
    ours, theirs = dict(left_names), dict(right_names)
    theirs |= {b: ours[a] for a, b in keys if b not in theirs}
    if callable(where) and not isinstance(where, Expr):
        try:
            inspect.signature(where).bind(None, None)
        except TypeError as error:
            wrong = sentence(verb, "the condition takes two events", f"{error}", "Write lambda left, right: ...")
            raise PlanError(wrong) from None
        # the two proxies of a self-join have equal plans and must be kept apart
        returned = where(_Side(left, verb, ours), _Side(right, verb, theirs))
        if isinstance(returned, bool | None):
            raise no_expression(returned, verb)
        condition = as_expr(returned)
    else:
        condition = as_expr(where)
    names_of_pair = {*ours.values(), *theirs.values()}
    consumed = left.schema.with_consumed(right.schema).consumed

    def place(part: Expr) -> Expr | None:
        """Return a column under its name in the pair, None for what is no column; raise UnknownColumn if neither side has it."""
        if not isinstance(part, Col):
            return None
        if part.origin == _PAIR:
            return Col(part.name)
        if part.origin == left.digest:
            return Col(ours[part.name])
        if part.origin == right.digest:
            return Col(theirs[part.name])
        if part.name not in names_of_pair:
            unknown_column(verb, part.name, sorted(names_of_pair), consumed=consumed)
        return Col(part.name)

    over_columns = rewrite_expression(condition, place)
    if reads_lifetime(over_columns, "start", "end", "duration"):
        hint = "Put it into the payload first: with_columns(at=sq.start())."
        raise PlanError(verb, "the condition reads a lifetime", f"found {show(over_columns)}", hint)
    return over_columns


_PAIR = "pair"


class _Side(EventProxy):
    """A proxy for one event of a pair in a lambda; its columns carry their names in the pair."""

    def __init__(self, plan: Node, verb: str, names: Mapping[str, str]):
        super().__init__(plan, verb)
        self._names = names

    def __getitem__(self, name: str) -> Expr:
        super().__getitem__(name)
        return Col(self._names[name], _PAIR)
