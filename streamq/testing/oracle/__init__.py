"""The oracle: every logical operator defined once more, as SQL over canonical histories, run by DuckDB.

Nothing here is shared with what it judges but nodes, schemas and the types of expressions. No definition is clever: the
members of a window are found by comparing lifetimes, not by arithmetic on window numbers, and every window is computed
from all of its members. So it is slow and meant for small inputs. ``ORACLE`` finds an operator's definition by its
node (``@defines``, in the rooms of ``streamq.testing.operators`` and ``streamq.testing.sources``); each takes ``(node, names of
the input histories, Run)`` and returns a query whose columns are ``le``, ``re`` (ticks; an open end is INFINITY) and the payload
as ``c0, c1, ...``. A history has, besides, ``k0, k1, ...`` where values are equal or ordered otherwise than DuckDB has them: rows
are matched, grouped and ordered by those.

What fails by Spark's rules (overflow, division by zero, a cast that loses) fails here too, with QueryFailed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.plan.folding import fold
from streamq.plan.node import Node
from streamq.plan.schema import POINT
from streamq.testing import operators, sources  # noqa: F401 (their rooms define the operators)
from streamq.testing.oracle.definitions import ORACLE, FalseClaim
from streamq.testing.oracle.evaluated import Evaluated
from streamq.testing.oracle.expressions import Untranslated, listed, own_keys, payload, sql
from streamq.testing.oracle.identities import one_digest_for_two
from streamq.testing.oracle.python_functions import PythonFunctions
from streamq.testing.oracle.reach import reach
from streamq.testing.oracle.run import Run, TooMuch, database
from streamq.testing.oracle.values import from_duckdb, literal, sql_type
from streamq.time import INFINITY

if TYPE_CHECKING:
    import pandas as pd


TRANSLATED, EVALUATED = "translated", "evaluated"


def oracle(
    plan: Node,
    tables: Mapping[str, pa.Table | pd.DataFrame],
    until: int | None = None,
    expressions: str = TRANSLATED,
    ctis: Mapping[str, int] | None = None,
) -> pa.Table:
    """The canonical history of a plan's answer: ``start`` and ``end`` in ticks, then the payload, in no order.

    ``tables`` are the rows of the sources by source name; time columns are of their declared type or int64 ticks. In a
    pandas table NaN is NULL, as pandas has it. With ``until`` only windows are reported that start before it (docs/concepts.md,
    "Windows"); without it ``ctis``, the greatest finite CTI that each source was promised by others than its rows, may say
    that its input has come further than those. ``expressions``: ``translated`` to SQL, a definition of their own too; or
    ``evaluated`` as themselves, by functions that SQL calls, so that a query may use any function, and only what operators do
    is judged (section 6.2 of the paper on the test framework). What cannot be evaluated in-process then takes the active
    SparkSession.

    Raises InvalidEvent for rows that are no events where the source says ``fail``; QueryFailed where evaluation fails
    by Spark's rules; PlanError for an expression that is not translated, naming the function; NeedsSpark for one that
    is to be evaluated and needs a session.

    >>> import streamq as sq
    >>> from streamq.testing.oracle import oracle
    >>> words = sq.events([(1, 5, {"word": "crane"}), (2, 3, {"word": "ibis"})])
    >>> longer = words.select("word", n=sq.functions.char_length("word")).where(lambda w: w.n > 4)
    >>> oracle(longer.plan, longer.tables, expressions="evaluated").to_pylist()
    [{'start': 1, 'end': 5, 'word': 'crane', 'n': 5}]
    """
    if expressions not in (TRANSLATED, EVALUATED):
        there = f"there are: {TRANSLATED}, {EVALUATED}"
        raise PlanError(sentence("oracle", f"no way of expressions called {expressions!r}", there))
    alike = one_digest_for_two(plan)
    if alike is not None:
        raise FalseClaim(f"{alike[0]!r} and {alike[1]!r} have one digest")
    connection = database().cursor()
    functions = PythonFunctions(connection)
    evaluated = Evaluated(functions, SparkSession.getActiveSession) if expressions == EVALUATED else None
    run = Run(connection, tables, until, functions, evaluated, ctis or {})
    come: dict[str, int | None] = {}

    def visit(node: Node, inputs: list[str]) -> str:
        if type(node) not in ORACLE:
            there = ", ".join(n.__name__ for n in ORACLE)
            raise PlanError(sentence("oracle", f"no definition of {type(node).__name__}", f"there are: {there}"))
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
    """How a stream is computed is chosen by its shape and its traits, so they must be true."""
    claims = {"points": "re <> le + 1"} if node.schema.shape == POINT else {}
    if not node.traits.infinite:
        # what ends beyond the axis saturates
        claims["lifetimes that end"] = f"re = {INFINITY} AND le < {INFINITY // 2}"
    if not claims:
        return
    (violations,) = run.rows(f"SELECT {listed(*(_first_where(denial) for denial in claims.values()))} FROM {history}")
    for claim, violation in zip(claims, violations, strict=True):
        if violation is not None:
            raise FalseClaim(f"{node.title} says that it gives {claim}, and gives {violation}")


def _first_where(condition: str) -> str:
    return f"first((le, re)) FILTER (WHERE {condition})"


__all__ = [
    "EVALUATED",
    "ORACLE",
    "TRANSLATED",
    "FalseClaim",
    "TooMuch",
    "Untranslated",
    "Run",
    "literal",
    "oracle",
    "sql",
    "sql_type",
]
