"""A rule of the rewriter, and what rules ask of an expression: facts, what it becomes with columns replaced, if it may fail.

An expression that may raise an error on some row (overflow, division by zero, a failing cast) must not be evaluated on more rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit, Opaque, show
from streamq.plan.node import Node
from streamq.plan.passes import expression_nodes, kept_answer, operands_of, substitute, types, types_read
from streamq.plan.schema import Schema
from streamq.plan.spark_types import literal_type


@dataclass(frozen=True)
class Rule:
    """A law for the rewriter: ``function`` returns the node that replaces another one, or None if the law does not apply.

    ``why_not`` returns the reason why the law does not fire at a node where a user might expect it, or None; ``explain()`` shows
    it. ``phase``: rules of phase 0 are applied until none fires, then those of phases 0 and 1 together, and so on; those of
    EXPANSION once, to a node that expands, and return another expansion. ``recomputes``: the rule changes an operator with state
    below the node, so it is skipped if other nodes read that one, which would then be computed twice. ``crosses_state``: it
    changes what an operator with state keeps, by what stands above or beside it. ``reads_rates``: both functions also take the
    rows that are expected, ``LikelyFlows``; it is not applied where nobody has said what to expect.
    """

    function: Callable[..., Node | None]
    why_not: Callable[..., str | None] | None = None
    phase: int = 0
    recomputes: bool = False
    crosses_state: bool = False
    reads_rates: bool = False

    @property
    def name(self) -> str:
        """The name of the rule: that of its function."""
        return self.function.__name__

    @property
    def law(self) -> str:
        """The law ``left => right``, with which the function's docstring begins."""
        return (self.function.__doc__ or "").split("``")[1]


EXPANSION = -1
"""The phase of rules that are applied before all nodes are expanded."""

LARGEST = 128
"""The most nodes of an expression that a rule may build; larger expressions stay in two operators."""

CHEAP = 4
"""The most operators that a rule may let be evaluated twice to move a filter before them."""

REMEMBERED = 50_000
"""The number of expressions whose facts are cached; beyond that the cache is cleared."""


@dataclass(frozen=True)
class ExpressionFacts:
    """Facts about an expression, counted as a tree: a part that occurs twice counts twice.

    ``size``: the number of nodes. ``operators``: the number of nodes that compute something. ``simple``: all of those are casts
    or cheap operators. ``deterministic``: equal columns always give equal values. ``opaque``: it contains a pyspark Column.
    ``uses``: the number of times that it reads each column.
    """

    size: int
    operators: int
    simple: bool
    deterministic: bool
    opaque: bool
    uses: Mapping[str, int]


_remembered: dict[str, ExpressionFacts] = {}


def expression_facts(expr: Expr) -> ExpressionFacts:
    """Return the facts about an expression; facts about its parts are cached across calls."""
    if (facts := _remembered.get(expr.digest)) is not None:
        return facts
    if len(_remembered) > REMEMBERED:
        _remembered.clear()
    todo = [expr]
    while todo:
        node = todo[-1]
        missing = [c for c in node.children if c.digest not in _remembered]
        if missing:
            todo += missing
        else:
            todo.pop()
            if node.digest not in _remembered:
                _remembered[node.digest] = _combine_facts(node, [_remembered[c.digest] for c in node.children])
    return _remembered[expr.digest]


def _combine_facts(node: Expr, parts: list[ExpressionFacts]) -> ExpressionFacts:
    """Return the facts about an expression from the facts about its children."""
    uses: Counter[str] = Counter({node.name: 1}) if isinstance(node, Col) else Counter()
    for part in parts:
        uses.update(part.uses)
    opaque = isinstance(node, Opaque)
    steady = not opaque and not (isinstance(node, Call) and not node.function.deterministic)
    simple = is_plain(node) or isinstance(node, Cast) or (isinstance(node, Call) and node.function.cheap)
    return ExpressionFacts(
        1 + sum(p.size for p in parts),
        (0 if is_plain(node) else 1) + sum(p.operators for p in parts),
        simple and all(p.simple for p in parts),
        steady and all(p.deterministic for p in parts),
        opaque or any(p.opaque for p in parts),
        uses,
    )


def is_plain(expr: Expr) -> bool:
    """Return True for a column, a constant and a part of the lifetime, which compute nothing."""
    return isinstance(expr, Col | Lit | Lifetime)


def is_cheap(expr: Expr) -> bool:
    """Return True if evaluating an expression twice costs next to nothing: at most CHEAP casts or cheap operators."""
    facts = expression_facts(expr)
    return facts.operators <= CHEAP and facts.simple


def nondeterminism(expr: Expr) -> str | None:
    """Return the reason against an expression that may not give equal values for equal columns; None for others."""
    return None if expression_facts(expr).deterministic else f"{show(expr)} is not known to be deterministic"


def stays_small(expr: Expr, by: Mapping[str, Expr]) -> bool:
    """Return True if an expression, with columns replaced, has at most LARGEST nodes, or no more than one of those involved."""
    facts = expression_facts(expr)
    sizes = {name: expression_facts(by[name]).size for name in facts.uses}
    substituted = facts.size + sum(n * (sizes[name] - 1) for name, n in facts.uses.items())
    return substituted <= max(LARGEST, facts.size, *sizes.values())


def count_uses(exprs: Iterable[Expr]) -> Counter[str]:
    """Return the number of times that some expressions together read each column."""
    copied: list[str] = []
    counts: Counter[str] = Counter()
    for expr in exprs:
        if isinstance(expr, Col):
            copied.append(expr.name)
        else:
            counts.update(expression_facts(expr).uses)
    counts.update(copied)
    return counts


def inline(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """Return an expression with its columns replaced by the expressions ``by``; its type stays the same.

    A constant gets the type that it had as a column, explicitly, because Spark types a bare literal beside a decimal by its
    digits.
    """
    if isinstance(expr, Col):
        return _typed(by[expr.name]) if expr.name in by else expr
    return substitute(expr, {name: _typed(by[name]) for name in expression_facts(expr).uses if name in by})


def _typed(expr: Expr) -> Expr:
    """Return a constant without a type with the type of its value; any other expression unchanged."""
    return Lit(expr.value, literal_type(expr.value)) if isinstance(expr, Lit) and expr.type is None else expr


_WIDENING: list[type[DataType]] = [t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType]


def can_fail(expr: Expr, schema: Schema) -> bool:
    """Return True if, by Spark's ANSI rules, an expression may raise an error on some row of a schema, or it is not known."""

    def answer() -> bool:
        kinds = types(expr, schema, "rewrite")
        return not all(_is_total(n, kinds) for n in expression_nodes(expr))

    return kept_answer(("can fail", expr.digest, *types_read(expr, schema)), answer)


def _is_total(node: Expr, kinds: dict[str, DataType | None]) -> bool:
    """Return True if a node itself never raises an error; ``kinds``: the types of nodes, by digest."""
    kind = kinds[node.digest]
    match node:
        case Col() | Lifetime() | Alias():
            return True
        case Lit(type=to):
            return to is None or kind == to
        case Case():
            return kind is not None
        case Cast(arg=arg, type=to):
            return _widens(kinds[arg.digest], to)
        case Call():
            operands = operands_of(node, [kinds[c.digest] for c in node.children], any_literal=True)
            return node.function.is_total(operands, kind)
    return False


def _widens(kind: DataType | None, to: DataType) -> bool:
    """Return True if a cast from ``kind`` to another type surely never fails; False for None, a type that is not known."""
    if kind is None:
        return False
    if type(kind) in _WIDENING and type(to) in _WIDENING:
        return _WIDENING.index(type(kind)) <= _WIDENING.index(type(to))
    return (
        kind == to or isinstance(kind, t.NullType) or (isinstance(to, t.StringType) and isinstance(kind, t.AtomicType))
    )
