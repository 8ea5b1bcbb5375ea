"""The oracle: every logical operator defined once more, as SQL over canonical histories, run by DuckDB.

The oracle shares only nodes, schemas and expressions with the product: it defines operators, and lets streamq evaluate
expressions, as section 6.2 of the paper on the test framework does.
Definitions are simple: the members of a window are found by comparing lifetimes, not by arithmetic on window numbers, and every
window is computed from all of its members. So the oracle is slow and meant for small inputs. ``ORACLE`` maps the class of a
node to its definition (``@defines``, in the rooms of ``streamq.testing.operators`` and ``streamq.testing.sources``). A
definition takes ``(node, names of the input histories, Run)`` and returns a query with the columns ``le``, ``re`` (ticks; an
open end is INFINITY) and the payload as ``c0, c1, ...``. For types that DuckDB compares or orders differently from Spark, a
history has key columns ``k0, k1, ...`` too, by which rows are matched, grouped and ordered.

Queries that fail by Spark's rules (overflow, division by zero, a lossy cast) fail here too, with QueryFailed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pandas as pd
import pyarrow as pa
from pyspark.sql import types as t

from streamq.errors import PlanError
from streamq.plan.expr import fold
from streamq.plan.node import Node
from streamq.plan.schema import POINT
from streamq.testing import operators, sources  # noqa: F401 (their rooms define the operators)
from streamq.testing.oracle.aggregates import SumOverflow
from streamq.testing.oracle.python_functions import PythonFunctions
from streamq.testing.oracle.run import JUDGES, ORACLE, FalseClaim, Judge, Run, TooMuch, database
from streamq.testing.oracle.values import from_duckdb, listed, literal, own_keys, payload, sql_type
from streamq.testing.progress_policies import reach
from streamq.time import INFINITY


def oracle(
    plan: Node,
    tables: Mapping[str, pa.Table | pd.DataFrame],
    until: int | None = None,
    ctis: Mapping[str, int] | None = None,
    set_aside: Counter[str] | None = None,
    overflow: SumOverflow = SumOverflow.TOTAL,
) -> pa.Table:
    """Return the canonical history of a plan's answer: ``start`` and ``end`` in ticks, then the payload, in no order.

    ``tables`` are the rows of the sources by source name; time columns have their declared type or int64 ticks. In a pandas
    table NaN is NULL. ``until``: only windows that start before it are reported (docs/concepts.md, "Windows"). Without it,
    windows of endless lifetimes are bounded by the greatest instant of the input, to which ``ctis``, the greatest finite CTI
    that each source got from outside, belongs. Expressions are evaluated by streamq, as functions that SQL calls, and those that
    cannot be evaluated in-process by the active SparkSession. ``set_aside`` is updated by the number of calls that fail and are
    set aside, by module. ``overflow``: the sums for which the query fails.

    Raises InvalidEvent for rows that are not events unless the source's policy is ``invalid="drop"``; QueryFailed if evaluation
    fails by Spark's rules; PlanError for an operator without a definition; NeedsSpark for an expression that needs a session;
    FalseClaim if the plan states something false about its rows or parts; TooMuch, which is a PlanError, for too many rows or
    windows; SourceError for a column that a source's table lacks, KeyError for a missing table.

    >>> import streamq as sq
    >>> from streamq.testing.oracle import oracle
    >>> words = sq.events([(1, 5, {"word": "crane"}), (2, 3, {"word": "ibis"})])
    >>> longer = words.select("word", n=sq.functions.char_length("word")).where(lambda w: w.n > 4)
    >>> oracle(longer.plan, longer.tables).to_pylist()
    [{'start': 1, 'end': 5, 'word': 'crane', 'n': 5}]
    """
    connection = database().cursor()
    functions = PythonFunctions(connection)
    if set_aside is not None:
        functions.set_aside = set_aside
    run = Run(connection, tables, until, functions, ctis or {}, overflow=overflow)
    come: dict[str, int | None] = {}

    def visit(node: Node, inputs: list[str]) -> str:
        """Create the table of a node's history from those of its inputs, and return its name; also keep it in ``histories``.

        Raises PlanError for a node without a definition, FalseClaim if its rows contradict what it claims.
        """
        if type(node) not in ORACLE:
            there = ", ".join(n.__name__ for n in ORACLE)
            raise PlanError("oracle", f"no definition of {type(node).__name__}", f"there are: {there}")
        run.reach = max((t for i in inputs if (t := come[i]) is not None), default=None)
        query = ORACLE[type(node)](node, inputs, run)
        typed = [f"CAST(c{i} AS {sql_type(f.type)}) AS c{i}" for i, f in enumerate(node.schema.fields)]
        history = run.table(f"SELECT {listed('le', 're', *typed)} FROM ({query})")
        own = own_keys(node.schema)
        if own:
            history = run.table(f"SELECT {listed('*', *own)} FROM {history}")
        _hold_claims(node, history, run)
        come[history] = reach(node, plan, run)
        run.histories[node.digest] = history
        return history

    run.define = lambda other: fold(other, visit)

    try:
        answer = run.arrow(f"SELECT {listed('le', 're', *payload(plan.schema))} FROM {fold(plan, visit)}")
    finally:
        functions.forget()
        connection.close()
    kinds = [t.LongType(), t.LongType(), *(f.type for f in plan.schema.fields)]
    columns = [from_duckdb(column, kind) for column, kind in zip(answer.columns, kinds, strict=True)]
    return pa.table(columns, names=["start", "end", *plan.schema.names])


def _hold_claims(node: Node, history: str, run: Run) -> None:
    """Raise FalseClaim for a row whose lifetime is not what the shape and the traits of its node say.

    By these the compiler chooses how to compute; traits that are not of lifetimes are not checked. Endless rows count only if
    they start before INFINITY // 2, because the ends of others may have saturated, and windows only within that of 0.
    """
    traits, early = node.traits, f"le < {INFINITY // 2}"
    claims = {"points": "re <> le + 1"} if node.schema.shape == POINT else {}
    if not traits.infinite:
        # an end beyond the axis saturates, so only early starts count
        claims["lifetimes that end"] = f"re = {INFINITY} AND {early}"
    if traits.endless:
        claims["lifetimes without an end"] = f"re <> {INFINITY}"
    if traits.longest is not None:
        claims[f"lifetimes of at most {traits.longest} ticks"] = f"{early} AND re::HUGEINT - le > {traits.longest}"
    if (cells := traits.cells) is not None:
        is_inside = f"le BETWEEN {-(INFINITY // 2)} AND {INFINITY // 2}"
        is_cell = f"(le::HUGEINT - {cells.offset}) % {cells.hop} = 0 AND re::HUGEINT - le = {cells.size}"
        claims[f"windows of {cells.size} ticks side by side"] = f"{is_inside} AND NOT ({is_cell})"
    if not claims:
        return
    (violations,) = run.rows(f"SELECT {listed(*(_first_where(denial) for denial in claims.values()))} FROM {history}")
    for claim, violation in zip(claims, violations, strict=True):
        if violation is not None:
            raise FalseClaim(f"{node.title} claims to return {claim}, but returns {violation}")


def _first_where(condition: str) -> str:
    return f"first((le, re)) FILTER (WHERE {condition})"


__all__ = ["JUDGES", "ORACLE", "FalseClaim", "Judge", "Run", "SumOverflow", "TooMuch", "literal", "oracle", "sql_type"]
