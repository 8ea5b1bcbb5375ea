"""Attempt: computes expressions for each event, and sets aside the events for which a user's function in one fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamq.errors import PlanError, sentence
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import EndMoves, Evaluation, PortColumns, all_columns
from streamq.operators.kernel_factory import OwnKernelFactory
from streamq.operators.operator import QuarantineEvents
from streamq.plan.expr import Col, Expr
from streamq.plan.footprint import Footprint
from streamq.plan.inference import infer
from streamq.plan.node import Node, Traits, node
from streamq.plan.own_names import shown_name
from streamq.plan.passes import reads_end, set_aside_by
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show
from streamq.runtime.arrow_expr import check_in_process
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluators.attempt import AttemptEvaluator
from streamq.runtime.event import LE
from streamq.runtime.kernels.attempt import AttemptKernel


@node
class Attempt(EvaluatedOperator):
    """Adds ``columns``, computed by expressions, to each event of ``input``; sets aside the events for which one fails.

    Only the failure of a user's function with ``on_error="quarantine"`` sets an event aside; other errors fail the query. All
    backends evaluate the expressions by the same evaluator, so that the same events fail.
    """

    input: Node
    columns: tuple[tuple[str, Expr], ...]

    title = "attempt"
    only_rewritten = True
    keeps_events = False
    attempts = True

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            keeps="none; over events that may be taken back those that have failed, until they are settled",
            opens="parts, the events that have failed and settle",
            cost="a call for each event",
        )

    def _schema(self) -> Schema:
        """Return the input's columns, then one for each expression."""
        source = self.input.schema
        return source.with_fields([*source.fields, *(Field(n, infer(e, source, "attempt")) for n, e in self.columns)])

    def _traits(self) -> Traits:
        return self.input.traits

    @property
    def keeps_state(self) -> bool:
        return True

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
        return replace(self, input=inputs[0])


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
            raise PlanError(sentence(name, wrong, f"found {show(expr)}", hint))
        check_in_process(expr, schema, verb)


__all__ = ["Attempt", "plan_attempt", "check_attempts"]
