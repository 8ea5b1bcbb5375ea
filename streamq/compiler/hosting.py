"""How an operator is hosted as a stream: its evaluator, what each of its inputs takes, and what its steps make of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import types as t

from streamq.operators.alter_lifetime import SAME, AlterLifetime
from streamq.operators.chop import Chop
from streamq.operators.clip import Clip
from streamq.operators.distinct_ids import DistinctIds
from streamq.operators.except_ import Except
from streamq.operators.join import INNER, LEFT, Join
from streamq.operators.partial_aggregate import partial_fields
from streamq.operators.to_signal import ToSignal
from streamq.operators.top_k import RANK, TopK
from streamq.operators.window_aggregate import WindowAggregate
from streamq.operators.windowed_join import WindowedJoin
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import application, expand, filtered, merges
from streamq.plan.case import Case
from streamq.plan.expr import Cast, Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.partial import COUNT
from streamq.plan.passes import reads_end
from streamq.plan.reduction import ReducedColumn, Reduction
from streamq.plan.schema import Field, Schema, key_types
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.carried import Carried, Carrier
from streamq.runtime.carried_by_expr import CarriedByExpr
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.evaluators.condition import Condition
from streamq.runtime.evaluators.joins import ClipEvaluator, ExceptEvaluator, JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.evaluators.spans import ChopEvaluator, DistinctIdsEvaluator, SignalEvaluator
from streamq.runtime.evaluators.windows import TopKEvaluator, WindowEvaluator
from streamq.runtime.event import LE
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.inner_join import InnerJoinKernel
from streamq.windows import POINT_AT_END, Count, Hopping, Landmark, Rows, Snapshot, Window


@dataclass(frozen=True)
class Taken:
    """What a port takes of an input: columns as expressions over it, and those whose values decide on the bucket."""

    columns: tuple[tuple[str, Expr], ...]
    hashed: tuple[str, ...] = ()


AS_INPUTS = None
"""What ``Hosting.moves`` is where ends in the result move if ends in an input do."""


@dataclass(frozen=True)
class Hosting:
    """An operator under the kernel ``recompute``; ``outputs`` are computed over its rows, if they are not the result yet.

    bound and pointwise as there; settled: whether it needs rows whose ends no longer move; moves: whether rows of its result
    that start before its CTI may still be given other ends, AS_INPUTS: if some of its inputs do; unmoved: the evaluator where
    the ends of the first input never move; kernel: another kernel instead, of the schemas of its ports and the columns of
    its result.
    """

    evaluator: Evaluator
    inputs: tuple[Taken, ...]
    schema: Schema
    outputs: tuple[tuple[str, Expr], ...] = ()
    bound: Bound = Bound.NONE
    pointwise: tuple[int, ...] = ()
    settled: bool = False
    moves: bool | None = True
    unmoved: Evaluator | None = None
    kernel: Callable[[tuple[pa.Schema, ...], tuple[str, ...]], Kernel] | None = None


def carried_by(step: AlterLifetime) -> Carrier:
    """What moving lifetimes makes of progress (the table of SEMANTICS section 6)."""
    start, length = step.start, step.length
    if start.expr is not None:
        return Carried(-start.within) if start.within is not None else CarriedByExpr(start.expr, step.input.schema)
    return Carried(start.by + (min(0, length.by) if length.kind == SAME else 0))


# operators


def _all(schema: Schema) -> tuple[tuple[str, Expr], ...]:
    return tuple((n, Col(n)) for n in schema.names)


def _keyed(
    left: Schema, right: Schema, on: tuple[tuple[str, str], ...]
) -> tuple[tuple[tuple[str, Expr], ...], tuple[tuple[str, Expr], ...], tuple[tuple[str, str], ...]]:
    """The key columns of two inputs in a common type, under names of their own."""
    ours, theirs = [], []
    for i, ((a, b), common) in enumerate(zip(on, key_types(left, right, on), strict=True)):
        ours.append((f"__k{i}", Col(a) if left.type_of(a) == common else Cast(Col(a), common)))
        theirs.append((f"__k{i}", Col(b) if right.type_of(b) == common else Cast(Col(b), common)))
    return tuple(ours), tuple(theirs), tuple((f"__k{i}", f"__k{i}") for i in range(len(on)))


def _condition(where: Expr | None, pair: Schema) -> Condition | None:
    return None if where is None else Condition(where, pair)


def _join(node: Join) -> Hosting:
    ours, theirs, on = _keyed(node.left.schema, node.right.schema, node.on)
    hashed = tuple(n for n, _ in ours)
    left = tuple((to, Col(n)) for n, to in node.left_names)
    right = tuple((to, Col(n)) for n, to in node.right_names)
    whole = node.how in (INNER, LEFT)
    kept = tuple(to if whole else n for n, to in node.left_names)
    names = tuple(n for n, _ in left), tuple(n for n, _ in right)
    evaluator = JoinEvaluator(node.how, on, _condition(node.where, node.both), *names, kept)
    ports = Taken((*left, *ours), hashed), Taken((*right, *theirs), hashed)
    if node.how == INNER:
        return Hosting(
            evaluator,
            ports,
            node.schema,
            moves=AS_INPUTS,
            kernel=lambda schemas, result: InnerJoinKernel(evaluator, schemas, result),
        )
    return Hosting(evaluator, ports, node.schema)


def _windowed_join(node: WindowedJoin) -> Hosting:
    ours, theirs, on = _keyed(node.left.schema, node.right.schema, node.on)
    hashed = tuple(n for n, _ in ours)
    left = tuple((to, Col(n)) for n, to in node.left_names)
    right = tuple((to, Col(n)) for n, to in node.right_names)
    names = tuple(n for n, _ in left), tuple(n for n, _ in right)
    return Hosting(
        WindowedJoinEvaluator(node.window, on, _condition(node.where, node.schema), *names),
        (Taken((*left, *ours), hashed), Taken((*right, *theirs), hashed)),
        node.schema,
        bound=Bound.ENDLESS,
        moves=False,
    )


def _except(node: Except) -> Hosting:
    names = node.schema.names
    taken = Taken(_all(node.schema), names)
    return Hosting(ExceptEvaluator(names), (taken, taken), node.schema)


def _clip(node: Clip) -> Hosting:
    ours, theirs, on = _keyed(node.input.schema, node.by.schema, node.on)
    hashed = tuple(n for n, _ in ours)
    return Hosting(
        ClipEvaluator(node.schema.names, on),
        (Taken((*_all(node.schema), *ours), hashed), Taken(theirs, hashed)),
        node.schema,
        pointwise=(1,),
        unmoved=ClipEvaluator(node.schema.names, on, ends_move=False),
    )


def _to_signal(node: ToSignal) -> Hosting:
    taken = Taken(_all(node.schema), node.keys)
    return Hosting(SignalEvaluator(node.keys), (taken,), node.schema, pointwise=(0,))


def _chop(node: Chop) -> Hosting:
    cells = Hopping(node.period, node.period, node.offset)
    taken = Taken(_all(node.schema), (LE,))
    return Hosting(ChopEvaluator(cells), (taken,), node.schema, bound=Bound.ENDLESS, moves=AS_INPUTS)


def _distinct_ids(node: DistinctIds) -> Hosting:
    taken = Taken(_all(node.schema), node.ids)
    evaluator = DistinctIdsEvaluator(node.ids, node.schema.names, node.within)
    return Hosting(evaluator, (taken,), node.schema, settled=True, moves=False)


def totally_ordered(window: Window, source: Schema) -> Window:
    """A window of rows whose ties go by the rest of the payload."""
    if not isinstance(window, Rows):
        return window
    return replace(window, order_by=(*window.order_by, *(n for n in source.names if n not in window.order_by)))


def _over(node: WindowAggregate | TopK, sensitive: bool) -> tuple[Bound, tuple[int, ...], bool, bool]:
    """What the kind of window says of bound, pointwise, settled and moves."""
    window = node.window
    instants = isinstance(window, Rows) or (isinstance(window, Count) and window.by == "start")
    bound = Bound.NONE
    if isinstance(window, Hopping | Landmark):
        bound = Bound.ENDLESS if isinstance(window, Hopping) else Bound.ALWAYS
    unclipped = node.clip not in ("full", "right")
    settled = sensitive and (instants or unclipped)
    # the CTI of the others is at most the start of a window that is not final: what is before it has the end it will have
    moves = isinstance(window, Snapshot) and node.stamp != POINT_AT_END and not sensitive
    return bound, (0,) if instants and not sensitive else (), settled, moves


def _window_aggregate(node: WindowAggregate) -> Hosting:
    source = node.input.schema
    split = expand(tuple((n, a) for n, a in node.aggregates if merges(a, source)), source)
    outputs = dict(split.outputs)
    reducing = [(n, filtered(a)) for n, a in node.aggregates if n not in outputs]
    columns: dict[str, Expr] = {k: Col(k) for k in node.keys} | dict(split.arguments)
    shared = {expr.digest: name for name, expr in split.arguments}

    def column(expr: Expr) -> str:
        name = shared.setdefault(expr.digest, f"__arg{len(shared)}")
        columns[name] = expr
        return name

    reductions = tuple(_reduction(name, a, source, column) for name, a in reducing)
    order = tuple(column(Col(n)) for n in source.names) if node.ordered else ()
    window = totally_ordered(node.window, source)
    for name in getattr(window, "order_by", ()):
        columns[name] = Col(name)
    fields = [Field(k, source.type_of(k)) for k in node.keys] + [Field(COUNT, t.LongType())]
    fields += partial_fields(split.partials)
    fields += [Field(name, node.schema.type_of(name)) for name, _ in reducing]
    outputs |= {name: Col(name) for name, _ in reducing}
    bound, pointwise, settled, moves = _over(node, node.timed)
    if isinstance(window, Rows) and any(reads_end(e) for e in columns.values()):
        # of equal rows the first to end comes first
        pointwise = ()
    return Hosting(
        WindowEvaluator(window, node.keys, node.clip, node.stamp, node.timed, split.partials, reductions, order),
        (Taken(tuple(columns.items()), node.keys),),
        node.schema.with_fields(fields),
        (*((k, Col(k)) for k in node.keys), *((n, outputs[n]) for n, _ in node.aggregates)),
        bound,
        pointwise,
        settled,
        moves,
    )


def _reduction(name: str, aggregate: Aggregate, source: Schema, column: Callable[[Expr], str]) -> Reduction:
    """What makes the result column ``name`` of all members; ``column`` calls an expression over them by a name."""
    of = application(aggregate, source)
    args, where = aggregate.function.operands(of), None
    if aggregate.where is not None:
        # a value is asked for only where the filter is true
        where, args = column(aggregate.where), tuple(Case((aggregate.where, e, Lit(None))) for e in args)
    kind = arrow_type(aggregate.function.result(of))
    reduced = ReducedColumn(name, tuple(column(e) for e in args), kind, where, aggregate.options)
    reduction = aggregate.function.reduction(reduced)
    assert reduction is not None, f"{aggregate} has neither partial results nor a reduction"
    return reduction


def _top_k(node: TopK) -> Hosting:
    source = node.input.schema
    bound, pointwise, settled, moves = _over(node, False)
    window, policies = totally_ordered(node.window, source), (node.clip, node.stamp, False)
    evaluator = TopKEvaluator(window, node.keys, *policies, node.k, "__by", node.desc, node.ties, source.names, RANK)
    taken = Taken((*_all(source), ("__by", node.by)), node.keys)
    return Hosting(evaluator, (taken,), node.schema, (), bound, pointwise, settled, moves)


HOSTED: dict[type[Node], Callable[..., Hosting]] = {
    Join: _join,
    WindowedJoin: _windowed_join,
    Except: _except,
    Clip: _clip,
    ToSignal: _to_signal,
    Chop: _chop,
    DistinctIds: _distinct_ids,
    WindowAggregate: _window_aggregate,
    TopK: _top_k,
}
"""The operators that are hosted by evaluators: ``node -> Hosting``."""


def reads_ends(taken: Taken) -> bool:
    """Whether a column that a port takes depends on the end of an event."""
    return any(reads_end(e) for _, e in taken.columns)


__all__ = ["HOSTED", "Hosting", "Taken", "carried_by", "reads_ends"]
