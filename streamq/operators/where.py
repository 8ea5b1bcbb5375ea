"""Where: keeps the events whose payload (and lifetime, read-only) satisfies a predicate; lifetimes stay as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Self

from streamq.operators.evaluation import all_columns
from streamq.operators.operator import RowKey
from streamq.operators.select import Select, check_attempts, plan_attempt
from streamq.operators.step import ExpressionStep, StepRows, V
from streamq.operators.table_steps import FilteredRows, is_exact
from streamq.plan.expr import Expr, Lit
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, node
from streamq.plan.passes import check_boolean
from streamq.plan.resolve import ExprArgument, resolve
from streamq.plan.schema import Schema
from streamq.plan.tree import show
from streamq.plan.verbs import Verbs
from streamq.runtime.hosts.hosted_kernel import TableStep


@node
class Where(ExpressionStep):
    """Keeps the events of ``input`` for which ``predicate`` is true (not false, not NULL)."""

    input: Node
    predicate: Expr

    title = "where"
    may_drop = True
    attempts = True

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="c; where the predicate reads an end that may still move, the least start of an event whose end is "
            "open",
            keeps="none; where it reads such an end, events not settled",
            cost="a filter",
        )

    def _schema(self) -> Schema:
        """Return the input's schema; raise TypeMismatch for a predicate that is not boolean."""
        check_attempts([self.predicate], self.input.schema, "where")
        check_boolean(self.predicate, self.input.schema, "where", "the predicate", hint=_instead(self.predicate))
        return self.input.schema

    @property
    def expansion(self) -> Node:
        """The same filter over an Attempt that computes the predicate, if it sets events aside; else itself."""
        source, (predicate,) = plan_attempt(self.input, [self.predicate])
        if source is self.input:
            return self
        return Select(Where(source, predicate), all_columns(self.input.schema))

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        return inputs[0]

    def detail(self) -> str:
        return show(self.predicate)

    def apply(self, rows: StepRows[V]) -> StepRows[V]:
        return rows.filter(rows.evaluate(self.predicate))

    @property
    def table_step(self) -> TableStep | None:
        source = self.input.schema
        return FilteredRows(self.predicate, source) if is_exact(self.predicate, source) else None


_COMPARED = re.compile(r"\s*(\w+)\s*(>=|<=|==|!=|<>|=|>|<)\s*(.+)", re.DOTALL)
_SIGNS = {"=": "==", "<>": "!="}


def _instead(predicate: Expr) -> str:
    """Return a hint for a predicate that is a string, which is a constant and no condition; "" for any other."""
    if not isinstance(predicate, Lit) or not isinstance(predicate.value, str):
        return ""
    name, sign, value = ((compared := _COMPARED.match(predicate.value)) and compared.groups()) or ("name", ">", "20")
    return f'SQL is no predicate here: write col("{name}") {_SIGNS.get(sign, sign)} {value.strip()}.'


class WhereVerbs(Verbs):
    """``where``."""

    def where(self, predicate: ExprArgument) -> Self:
        """Keep the events for which ``predicate`` is true; lifetimes stay as they are.

        ``predicate`` is a boolean expression over the payload and, read-only, ``sq.start()`` and ``sq.end()``, or a function
        of an event that returns one. Raises UnknownColumn, TypeMismatch or MixedStreams.

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"fare": 3}), (2, 4, {"fare": 8})])
        >>> s.where(lambda e: e.fare > 5).show()
        fare  start  end
           8      2    4
        """
        return self._derive(Where(self.plan, resolve(predicate, self.plan, "where", of_events=True)))

    filter = where
