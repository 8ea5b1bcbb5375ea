"""Plans of ``group_by(...).apply(sub-plan)``: the sub-plan once, with the group's keys added to each of its operators.

It is StreamInsight's Group & Apply as a rewrite: windows get the keys, joins get an equality on them, projections keep them.
So a grouped query is a plan like any other, and the rewriter, the backends and the oracle know nothing of groups.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence

from pyspark.sql import types as t

from streamq.errors import PlanError, TypeMismatch, sentence
from streamq.functions.choice import COALESCE
from streamq.operators.operator import Operator
from streamq.operators.select import Select
from streamq.plan.case import Case
from streamq.plan.expr import Call, Cast, Col, Expr, Lit
from streamq.plan.folding import fold
from streamq.plan.node import Node, expanded, nodes
from streamq.plan.own_names import group_depth, group_flag, group_value
from streamq.plan.schema import Schema


class Group(Node):
    """The leaf that stands for one group's events while the user writes a sub-plan; no plan that runs contains it."""

    title = "group"

    def __init__(self, input: Node, keys: tuple[str, ...]):
        self.input, self.keys = input, keys
        self.schema, self.traits, self.children = self._schema(), input.traits, (input,)
        self.mixes_windows = input.mixes_windows
        self.digest = f"group by {','.join(keys)}: {input.digest}"

    def _schema(self) -> Schema:
        return self.input.schema

    def with_children(self, children: Sequence[Node]) -> Group:
        """Return the group of another stream."""
        (source,) = children
        return Group(source, self.keys)


def apply_to_groups(result: Node, group: Group) -> Node:
    """Return the plan that applies ``result``, a sub-plan over one ``group``, to every group.

    Its columns are those of ``result``, after the keys that ``result`` does not have. Raises PlanError if ``result`` does not
    read the group.
    """
    source, result, group = group.input, expanded(result), expanded(group)
    parts = nodes(result)
    matched = any(isinstance(n, Operator) and n.matches_keys for n in parts)
    # an apply within the sub-plan adds keys of its own
    used_names = {name for n in (group.input, *parts) for name in n.schema.names}
    key_columns = _key_columns(group, matched, used_names)
    hidden = tuple(name for name, _ in key_columns)
    plan, is_keyed = fold(result, lambda n, inputs: _with_keys(n, inputs, group, source, key_columns))
    if not is_keyed:
        raise PlanError(
            sentence(
                "apply", "the sub-plan does not use the group", f"found {result.title}", "Build it on its argument."
            )
        )
    names = result.schema.names
    values = {k: Col(h) for k, h in zip(group.keys, hidden, strict=False)}
    flags = dict(zip(group.keys, hidden[len(group.keys) :], strict=True)) if matched else {}
    back = {k: Case((Col(flags[k]), Lit(None), v)) if matched else v for k, v in values.items()}
    return Select(plan, (*((k, e) for k, e in back.items() if k not in names), *((n, Col(n)) for n in names)))


NamedExprs = tuple[tuple[str, Expr], ...]


def _key_columns(group: Group, matched: bool, used_names: Collection[str]) -> NamedExprs:
    """Return the keys under names that ``used_names`` does not contain: their values and, if ``matched``, then their flags.

    ``matched``: operators compare keys, and there a NULL equals nothing; but NULLs form a group. So each NULL is replaced by a
    value, and a flag beside it tells the two apart.
    """
    depth = 0
    while any(n.startswith(group_depth(depth)) for n in used_names):
        depth += 1
    kinds = [group.input.schema.type_of(k) for k in group.keys]
    if not matched:
        return tuple((group_value(depth, k), Col(k)) for k in group.keys)
    values = [
        (group_value(depth, k), Call(COALESCE, (Col(k), _filler_value(kind, k))))
        for k, kind in zip(group.keys, kinds, strict=True)
    ]
    return (*values, *((group_flag(depth, k), Col(k).is_null()) for k in group.keys))


def _filler_value(kind: t.DataType, name: str) -> Expr:
    """Return some value of a key's type; raise TypeMismatch for a list or a struct, which have no literal."""
    match kind:
        case t.ArrayType() | t.StructType():
            wrong, hint = f"no joins in groups by column {name!r}", "Group by its parts, or by a text of it."
            raise TypeMismatch(sentence("apply", wrong, f"found {kind.simpleString()}", hint))
        case t.StringType():
            return Lit("")
        case t.BooleanType():
            return Lit(False)
        case t.BinaryType():
            return Lit(b"")
        case t.DateType():
            return Lit(dt.date(1970, 1, 1))
        case t.TimestampType():
            return Lit(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
        case t.TimestampNTZType():
            return Lit(dt.datetime(1970, 1, 1), kind)
        case t.DayTimeIntervalType():
            return Lit(dt.timedelta(0), kind)
    return Cast(Lit(0), kind)


def _with_keys(
    node: Node, inputs: list[tuple[Node, bool]], group: Group, source: Node, key_columns: NamedExprs
) -> tuple[Node, bool]:
    """Return the node with the keys after its columns and True, or the node itself and False if it does not read the group.

    ``inputs`` are the results for its inputs; ``source`` has the rows of all groups.
    """
    hidden = tuple(name for name, _ in key_columns)
    if node == group:
        return Select(source, (*((n, Col(n)) for n in group.schema.names), *key_columns)), True
    if not any(keyed for _, keyed in inputs):
        return node, False
    assert isinstance(node, Operator)
    plan = node.with_keys([n for n, _ in inputs], [keyed for _, keyed in inputs], hidden)
    names = (*node.schema.names, *hidden)
    return (plan if plan.schema.names == names else Select(plan, tuple((n, Col(n)) for n in names))), True
