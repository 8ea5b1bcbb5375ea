"""Select, Where and Attempt: new payloads, and the events that satisfy a predicate; lifetimes stay as they are.

Attempt computes expressions for each event, and sets aside the events for which a user's function in one fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Self, cast

from pyspark.sql import types as t

from streamq.errors import PlanError
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import EndMoves, Evaluation, OwnKernelFactory, PortColumns, all_columns
from streamq.operators.operator import QuarantineEvents, RowKey
from streamq.operators.step import ExpressionStep, FilteredRows, StepEffect, StepRows, V, columns_step, is_exact
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr, Lit, show
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits, Verbs, node
from streamq.plan.passes import aggregates, check_boolean, columns, infer, reads_end, set_aside_by
from streamq.plan.resolve import ExprArgument, name_columns, resolve
from streamq.plan.schema import Field, Schema, check_names, shown_name
from streamq.runtime.arrow.arrow_expr import check_in_process
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.deltas import LE
from streamq.runtime.evaluators.spans import AttemptEvaluator
from streamq.runtime.hosts.hosted_kernel import TableStep
from streamq.runtime.kernels.settle import AttemptKernel


@node
class Attempt(EvaluatedOperator):
    """Adds ``columns``, computed by expressions, to each event of ``input``; sets aside the events for which one fails.

    Only the failure of a user's function with ``on_error="quarantine"`` sets an event aside; other errors fail the query. All
    backends evaluate the expressions by the same evaluator, so that the same events fail. Without columns it is a relay: it hands
    on what comes on many paths.
    """

    input: Node
    columns: tuple[tuple[str, Expr], ...]

    attempts = True

    footprint = Footprint(
        keeps="none; over events that may be taken back those that have failed, until they are settled",
        opens="parts, the events that have failed and settle",
        cost="a call for each event",
    )

    @property
    def title(self) -> str:
        return "attempt" if self.columns else "relay"

    def _schema(self) -> Schema:
        """Return the input's columns, then one for each expression."""
        source = self.input.schema
        return source.with_fields([*source.fields, *(Field(n, infer(e, source, "attempt")) for n, e in self.columns)])

    def _traits(self) -> Traits:
        return self.input.traits

    @property
    def set_aside(self) -> tuple[QuarantineEvents, ...]:
        names = dict.fromkeys(call.function.name for _, e in self.columns for call in set_aside_by(e))
        return tuple(QuarantineEvents(name, self.input.schema, in_windows=False) for name in names)

    def detail(self) -> str:
        return ", ".join(f"{shown_name(name)} = {show(e)}" for name, e in self.columns)

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of the expressions; events are spread over buckets by their starts."""
        source = self.input.schema
        evaluator = AttemptEvaluator(source, self.columns, arrow_type(source.axis_type))
        return Evaluation(
            evaluator=evaluator,
            inputs=(PortColumns(all_columns(source), (LE,)),),
            schema=self.schema,
            reads_ends=any(reads_end(e) for _, e in self.columns),
            moves=EndMoves.AS_INPUTS,
            sets_aside=True,
            factory=OwnKernelFactory(lambda site: AttemptKernel(evaluator, site.late_output)),
        )

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        return self.with_children(inputs)


def plan_attempt(source: Node, exprs: Sequence[Expr]) -> tuple[Node, list[Expr]]:
    """Return an Attempt over ``source`` for the expressions that set events aside, and expressions that read its columns.

    Equal ones are computed once, and the other expressions stay as they are. Without such expressions both are returned
    unchanged.
    """
    names: dict[str, str] = {}
    for expr in exprs:
        if set_aside_by(expr):
            names.setdefault(expr.digest, f"__tried{len(names)}")
    if not names:
        return source, list(exprs)
    by_digest = {expr.digest: expr for expr in exprs}
    attempt = Attempt(source, tuple((name, by_digest[digest]) for digest, name in names.items()))
    return attempt, [Col(names[e.digest]) if e.digest in names else e for e in exprs]


def check_attempts(exprs: Sequence[Expr], schema: Schema, verb: str) -> None:
    """Raise PlanError or NeedsSpark for expressions that set events aside and cannot be attempted.

    PlanError: ``schema`` is of a window's results, which are no events; NeedsSpark: only Spark can evaluate the expression.
    """
    for expr in exprs:
        if not (calls := set_aside_by(expr)):
            continue
        name = calls[0].function.name
        if any(column.startswith("__") for column in schema.names):
            hint = "Give the aggregates names, and call it in a select behind them."
            wrong = "what it fails for is set aside as an event, and here there are results of a window"
            raise PlanError(name, wrong, f"found {show(expr)}", hint)
        check_in_process(expr, schema, verb)


@node
class Select(ExpressionStep):
    """Replaces the payload by ``columns``: pairs of a name and the expression that computes it."""

    input: Node
    columns: tuple[tuple[str, Expr], ...]

    title = "select"

    footprint = Footprint(
        cti="c; where an expression reads an end that may still move, the least start of an event whose end is open",
        keeps="none; where one reads such an end, events not settled",
        cost="a projection",
    )

    def _schema(self) -> Schema:
        """Return the types of the columns; raise PlanError for one without a type."""
        check_attempts([e for _, e in self.columns], self.input.schema, "select")
        fields = []
        for name, expr in self.columns:
            kind = infer(expr, self.input.schema, "select")
            if isinstance(kind, t.NullType):
                hint = "Cast it: lit(None).cast('string')."
                raise PlanError("select", f"column {name!r} has no type", f"found {show(expr)}", hint)
            fields.append(Field(name, kind))
        return self.input.schema.with_fields(fields)

    @property
    def expansion(self) -> Node:
        """The same projection over an Attempt that computes the expressions which set events aside; itself without any."""
        source, exprs = plan_attempt(self.input, [e for _, e in self.columns])
        return self if source is self.input else Select(source, tuple(zip(self.exprs, exprs, strict=True)))

    @property
    def exprs(self) -> dict[str, Expr]:
        """The columns as a mapping from name to expression."""
        return dict(self.columns)

    @property
    def leaves_out_columns(self) -> bool:
        """True if it only leaves out columns: what is read above it says which."""
        return all(expr.copied_column == name for name, expr in self.columns)

    def moving_columns(self, moving: frozenset[str]) -> frozenset[str]:
        """Return the output columns that change when an end moves, if the input columns ``moving`` do."""
        return frozenset(name for name, e in self.columns if reads_end(e) or not moving.isdisjoint(columns(e)))

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        """Return the input's key under its new names; of several columns that copy one column the first stands for it."""
        names = {e.name: name for name, e in reversed(self.columns) if isinstance(e, Col)}
        return inputs[0].renamed(names, self.schema.names)

    def detail(self) -> str:
        return ", ".join(
            show(e) if isinstance(e, Col) and e.name == name else f"{shown_name(name)} = {show(e)}"
            for name, e in self.columns
        )

    def apply(self, rows: StepRows[V]) -> StepRows[V]:
        return rows.with_payload({name: rows.evaluate(expr) for name, expr in self.columns}, self.schema)

    @property
    def table_step(self) -> TableStep | None:
        return columns_step(self.columns, self.input.schema)

    def copied_column(self, name: str) -> str | None:
        return self.exprs[name].copied_column

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        return Select(inputs[0], (*self.columns, *((key, Col(key)) for key in keys)))


@node
class Where(ExpressionStep):
    """Keeps the events of ``input`` for which ``predicate`` is true (not false, not NULL)."""

    input: Node
    predicate: Expr

    title = "where"
    effect = StepEffect(drops=True)

    footprint = Footprint(
        cti="c; where the predicate reads an end that may still move, the least start of an event whose end is open",
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


class SelectVerbs(Verbs):
    """``select``, ``agg``, ``with_columns``, ``rename``, ``drop``, ``where`` and ``filter``."""

    def select(self, *columns: ExprArgument, **named_columns: ExprArgument) -> Self:
        """Replace the payload by the columns that the arguments define; lifetimes stay as they are.

        Positional arguments are column names or aliased expressions. A keyword argument is a column of that name, and a
        string there is a constant: ``x="v"`` is the text, ``x=sq.col("v")`` the column. Aggregates over the pairs of a
        :meth:`windowed_join` are computed for each window, as by :meth:`per_window`; over :meth:`last_rows` and their pairs, at
        each instant, as by :meth:`snapshot_window`; other streams need a window before. Raises UnknownColumn, TypeMismatch, and
        PlanError for a column called ``start`` or ``end``.

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"zone": "a", "fare": 3})])
        >>> s.select("zone", twice=sq.col("fare") * 2).show()
        zone  twice  start  end
           a      6      1    5
        """
        implied = self.plan.traits.implied_windows
        if implied is not None and any(map(self._aggregates, (*columns, *named_columns.values()))):
            return cast(Self, getattr(self, implied)().select(*columns, **named_columns))
        for column in columns:
            if isinstance(column, Aggregate):
                hint = f"Make a window first: s.tumbling_window(...).select({show(column)}), of windows' results s.per_window()."
                raise PlanError("select", f"{column.name} is of a window's events", "there is no window", hint)
        columns_by_name = list(name_columns(columns, named_columns, self.plan.schema, "select"))
        check_names([name for name, _ in columns_by_name], "select")
        resolved = ((name, resolve(e, self.plan, "select", of_events=True)) for name, e in columns_by_name)
        return self._derive(Select(self.plan, tuple(resolved)))

    def _aggregates(self, column: ExprArgument) -> bool:
        """Return True if an argument of ``select`` contains an aggregate."""
        expr = resolve(column, self.plan, "select") if callable(column) else column
        return isinstance(expr, Expr) and bool(aggregates(expr))

    def with_columns(self, **named_columns: ExprArgument) -> Self:
        """Add columns, or replace those of the same name; the others stay. A string is a constant, as in :meth:`select`.

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"fare": 3})]).with_columns(open=sq.end().is_null()).show()
        fare   open  start  end
           3  False      1    5
        """
        changed = name_columns((), named_columns, self.plan.schema, "with_columns")
        outputs: dict[str, Expr] = {name: Col(name) for name in self.plan.schema.names}
        outputs |= {name: resolve(e, self.plan, "with_columns", of_events=True) for name, e in changed}
        check_names(outputs, "with_columns")
        return self._derive(Select(self.plan, tuple(outputs.items())))

    def drop(self, *names: str) -> Self:
        """Drop columns; raises UnknownColumn for one that does not exist.

        >>> import streamq as sq
        >>> sq.events([(1, 3, {"v": 1, "w": 2})]).drop("w").show()
        v  start  end
        1      1    3
        """
        for name in names:
            if not isinstance(name, str):
                raise PlanError("drop", "a column name is a string", f"found {name!r}", "Write drop('a', 'b').")
            self.plan.schema.require(name, "drop")
        return self._derive(Select(self.plan, tuple((n, Col(n)) for n in self.plan.schema.names if n not in names)))

    def rename(self, names: Mapping[str, str] | None = None, **more: str) -> Self:
        """Rename columns, ``old="new"``; raises UnknownColumn, or AmbiguousColumn if two columns would have one name.

        >>> import streamq as sq
        >>> sq.events([(1, 3, {"v": 1})]).rename(v="speed").show()
        speed  start  end
            1      1    3
        """
        change = {**(names or {}), **more}
        for name in change:
            self.plan.schema.require(name, "rename")
        check_names([change.get(n, n) for n in self.plan.schema.names], "rename")
        return self._derive(Select(self.plan, tuple((change.get(n, n), Col(n)) for n in self.plan.schema.names)))

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
