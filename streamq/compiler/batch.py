"""Batch code generation: lowers a plan to one DataFrame, by DataFrame operations only, which Catalyst optimizes."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from streamq.choices import choose_word
from streamq.compiler.rewriter import clip_text
from streamq.errors import PlanError
from streamq.functions.logic import ISNULL, conjuncts
from streamq.operators import Select, Where
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.member_operator import MemberOperator
from streamq.operators.operator import NOBODY, BatchForm, BatchRun, Observer, Operator
from streamq.operators.source import InsertSource, Source
from streamq.operators.time_filter import narrowed
from streamq.plan.expr import Call, Lifetime, fold
from streamq.plan.footprint import NO_RATES
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Schema, quote
from streamq.runtime.deltas import LE, RE
from streamq.time import INFINITY, TIMESTAMP


def lower_in_batch(plan: Node, run: BatchRun, observer: Observer = NOBODY) -> DataFrame:
    """Return the plan's events as ``__le``, ``__re`` (ticks) and payload; the observer receives the DataFrames of each node.

    Fills ``run`` with the plan's sources by table. Raises PlanError for a node without a batch form.
    """

    run.sources = {n.table: n for n in nodes(plan) if isinstance(n, Source)}
    run.lasting = frozenset() if run.hint else read_without_ends(plan)

    def visit(node: Node, inputs: list[DataFrame]) -> DataFrame:
        if not isinstance(node, Operator):
            raise PlanError("batch", f"no batch form of {type(node).__name__}")
        for port, frame in enumerate(inputs):
            observer.rows_in(node, port, frame)
        if isinstance(node, Where) and (narrower := _over_narrowed_source(node, run)) is not None:
            inputs = [narrower]
        rows = node.in_batch(inputs, run)
        observer.rows_out(node, rows)
        return rows

    return fold(plan, visit)


def read_without_ends(plan: Node) -> frozenset[str]:
    """Return the digests of the operators over snapshots of which a plan reads the last snapshots alone, which do not end.

    Above them is a filter for missing ends, with selects and filters between; or the snapshots of all their rows do so.
    """
    wholes: dict[str, list[bool | None]] = {}
    lasting = set()
    for node in reversed(nodes(plan)):
        # of what all readers read without ends, True if one of them reads all of it, which filters must not change
        readings = wholes.get(node.digest, [None])
        whole = None if None in readings else any(readings)
        below: bool | None = None
        match node:
            case Where(predicate=predicate) if any(part.digest == IS_ENDLESS.digest for part in conjuncts(predicate)):
                below = False
            case Select() | Where():
                below = None if whole and isinstance(node, Where) else whole
            case MemberOperator() if whole is not None and _has_last_snapshot(node):
                lasting.add(node.digest)
                below = None if node.input.traits.endless else True
        for child in node.children:
            wholes.setdefault(child.digest, []).append(below)
    return frozenset(lasting)


IS_ENDLESS = Call(ISNULL, (Lifetime("end"),))
"""The condition that an event has no end."""


def _has_last_snapshot(operator: MemberOperator) -> bool:
    """True if an operator's events do not end, or are such snapshots, and it computes the last ones by themselves.

    The keys of snapshots are also those of the snapshots below: else an event of another group may end after the last that does
    not.
    """
    node: Node = operator
    keys: set[str | None] = set(operator.keys)
    while isinstance(node, MemberOperator) and node.has_last_snapshot and keys <= set(node.keys):
        if node.input.traits.endless:
            return True
        keys, node = set(node.keys), node.input
        while isinstance(node, Select):
            keys, node = {key and node.copied_column(key) for key in keys}, node.input
    return False


def _over_narrowed_source(where: Where, run: BatchRun) -> DataFrame | None:
    """Return the rows below a filter, of a table narrowed by what the filter asks of lifetimes; None if there is no such table.

    Below it are selects and other filters, which leave lifetimes as they are, over a source.
    """
    steps: list[Select | Where] = [where]
    while isinstance(below := steps[-1].input, Select | Where):
        steps.append(below)
    if not isinstance(below, InsertSource):
        return None
    predicates = [step.predicate for step in steps if isinstance(step, Where)]
    table = narrowed(below, run.tables[below.table], predicates)
    if table is run.tables[below.table]:
        return None
    rows = below.in_batch([], replace(run, tables={**run.tables, below.table: table}))
    for step in reversed(steps[1:]):
        rows = step.in_batch([rows], run)
    return rows


MOST_ON_EACH_OTHER = 24
"""The operators on each other, those with state twice, that Spark plans one by one in 1 to 3 s; more take the square."""

MOST_OPERATORS = 120
"""The same for operators in all; what is read twice is planned twice."""


def is_long(plan: Node) -> bool:
    """Return True if a rewritten plan has too many operators for Spark to plan each; then it runs by the stages of a stream."""

    def visit(node: Node, inputs: list[tuple[int, int]]) -> tuple[int, int]:
        own = 2 if isinstance(node, EvaluatedOperator) else 1
        depths, counts = zip(*inputs, strict=True) if inputs else ((0,), (0,))
        return own + max(depths), own + sum(counts)

    depth, count = fold(plan, visit)
    return depth > MOST_ON_EACH_OTHER or count > MOST_OPERATORS


def chosen_form(form: object, verb: str) -> BatchForm | None:
    """Return the form that a user's argument ``form`` names; None for None. Raise PlanError for any other name."""
    return None if form is None else choose_word(BatchForm, form, "form", verb)


def check_form(plan: Node, form: BatchForm | None, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, if no operator of a rewritten plan can take the form that a user asks for.

    The message has the forms of each operator that has several, and why it cannot take that one.
    """
    operators = [node for node in nodes(plan) if isinstance(node, Operator)]
    having_forms = [(node, forms) for node in operators if (forms := node.batch_forms(NO_RATES)) is not None]
    if form is None or any(form in forms.possible for _, forms in having_forms):
        return
    reasons = [
        f"{clip_text(node.line)}: {forms.refused[form]} (its forms: {', '.join(forms.possible)})"
        for node, forms in having_forms
    ]
    observed = "; ".join(dict.fromkeys(reasons)) or "there are no windows"
    raise PlanError(verb, f"nothing in the query can be computed in the form {form}", observed)


def to_user(df: DataFrame, schema: Schema) -> DataFrame:
    """Return the payload, then ``start`` and ``end`` in the type of the axis; the end of an endless event is NULL."""
    start, end = LE, f"CASE WHEN {RE} != {INFINITY}L THEN {RE} END"
    if schema.axis == TIMESTAMP:
        start, end = f"timestamp_micros({start})", f"timestamp_micros({end})"
    return df.selectExpr(*map(quote, schema.names), f"{start} AS start", f"{end} AS end")
