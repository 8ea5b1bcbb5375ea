"""The oracle: every logical operator defined once more, as SQL over canonical histories, run by DuckDB.

Nothing here is shared with what it judges but nodes, schemas and the types of expressions. No definition is clever: the
members of a window are found by comparing lifetimes, not by arithmetic on window numbers, and every window is computed
from all of its members. So it is slow and meant for small inputs. ``ORACLE`` finds an operator's definition by its
node; each takes ``(node, names of the input histories, Run)`` and returns a query whose columns are ``le``, ``re``
(ticks; an open end is INFINITY) and the payload as ``c0, c1, ...``.

What fails by Spark's rules (overflow, division by zero, a cast that loses) fails here too, with QueryFailed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamq.compiler.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Edges,
    Except,
    Intervals,
    Join,
    JoinTable,
    Physical,
    Points,
    Select,
    TopK,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.compiler.plan import Node, fold
from streamq.errors import PlanError, sentence
from streamq.testing.oracle.expressions import FUNCTIONS, listed, literal, payload, sql, sql_type
from streamq.testing.oracle.run import Run, arrow_type, database, handed_out
from streamq.testing.oracle.sources import edges, intervals, physical, points
from streamq.testing.oracle.spans import (
    alter_lifetime,
    chop,
    clip,
    distinct_ids,
    except_,
    join,
    join_table,
    select,
    to_signal,
    union,
    where,
    windowed_join,
)
from streamq.testing.oracle.windows import top_k, window_aggregate

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def oracle(plan: Node, tables: Mapping[str, pa.Table | pd.DataFrame], until: int | None = None) -> pa.Table:
    """The canonical history of a plan's answer: ``start`` and ``end`` in ticks, then the payload, in no order.

    ``tables`` are the rows of the sources by source name; time columns are of their declared type or int64 ticks. In a
    pandas table NaN is NULL, as pandas has it. With ``until`` only windows are reported that start before it (SEMANTICS
    section 3). Raises InvalidEvent for rows that are no events where the source says ``fail``, PlanError for an
    expression that is not translated, naming the function, QueryFailed where evaluation fails by Spark's rules.
    """
    import pyarrow as pa

    run = Run(database().cursor(), tables, until)

    def visit(node: Node, inputs: list[str]) -> str:
        if type(node) not in ORACLE:
            there = ", ".join(n.__name__ for n in ORACLE)
            raise PlanError(sentence("oracle", f"no definition of {type(node).__name__}", f"there are: {there}"))
        query = ORACLE[type(node)](node, inputs, run)
        typed = [f"CAST(c{i} AS {sql_type(f.type)}) AS c{i}" for i, f in enumerate(node.schema.fields)]
        return run.table(f"SELECT {listed('le', 're', *typed)} FROM ({query})")

    try:
        made = run.arrow(f"SELECT {listed('le', 're', *payload(plan.schema))} FROM {fold(plan, visit)}")
    finally:
        run.connection.close()
    kinds = [pa.int64(), pa.int64(), *(arrow_type(f.type) for f in plan.schema.fields)]
    columns = [handed_out(column, kind) for column, kind in zip(made.columns, kinds, strict=True)]
    return pa.table(columns, names=["start", "end", *plan.schema.names])


ORACLE: dict[type[Node], Callable[..., str]] = {
    Points: points,
    Intervals: intervals,
    Edges: edges,
    Physical: physical,
    Where: where,
    Select: select,
    Union: union,
    AlterLifetime: alter_lifetime,
    Join: join,
    WindowedJoin: windowed_join,
    Except: except_,
    Clip: clip,
    ToSignal: to_signal,
    Chop: chop,
    DistinctIds: distinct_ids,
    JoinTable: join_table,
    WindowAggregate: window_aggregate,
    TopK: top_k,
}
"""The definition of every logical operator."""

__all__ = ["FUNCTIONS", "ORACLE", "Run", "arrow_type", "literal", "oracle", "sql", "sql_type"]
