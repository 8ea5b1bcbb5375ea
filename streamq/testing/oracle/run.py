"""One evaluation of the oracle: its database, its tables, the rows of the sources, and SQL that the rooms of sources share.

And its registries: the definitions of operators, by the class of their node, and the judges beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa

from streamq.choices import Invalid
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import InvalidEvent, ModuleFailed, PlanError, QueryFailed, SourceError, StreamqError
from streamq.operators import JoinTable, Source
from streamq.operators.input_table import as_arrow
from streamq.plan.expr import Call, Expr
from streamq.plan.node import Node
from streamq.plan.passes import expression_nodes
from streamq.plan.schema import Schema
from streamq.runtime.state.baskets import TimeBinSizes
from streamq.testing.oracle.aggregates import SumOverflow
from streamq.testing.oracle.python_functions import PythonFunctions, evaluated, sets_aside
from streamq.testing.oracle.values import keys, listed, own_keys, payload, to_duckdb, zoned_ticks
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.user_code.udf import UserFunction

if TYPE_CHECKING:
    from streamq.compiler.local import LocalRun


Definition = Callable[[Any, Sequence[str], "Run"], str]
"""``(node, names of the input histories, Run)``: return a query with the columns ``le``, ``re`` and ``c0, c1, ...``."""

D = TypeVar("D", bound=Definition)

ORACLE: dict[type[Node], Definition] = {}
"""The definition of every operator that users write."""


class FalseClaim(AssertionError):
    """Raised for a false claim of a plan: that rows are points, that none lives for ever, or what a judge knows better."""


def defines(kind: type[Node]) -> Callable[[D], D]:
    """Make a function the oracle's definition of a node: ``@defines(Where)``."""

    def register(definition: D) -> D:
        ORACLE[kind] = definition
        return definition

    return register


class Judge(ABC):
    """A judge of streamq itself, which sees what every verification tries; a user's verifications need none.

    ``case``, ``how`` and ``expected`` are a Case, its Execution and the Expectation of this.
    """

    @abstractmethod
    def begin(self) -> None:
        """Forget earlier verifications."""

    @abstractmethod
    def false_claim(self, plan: Node) -> str | None:
        """Return something false that a plan says or is built of; None if there is nothing."""

    @abstractmethod
    def sql(self, expr: Expr, schema: Schema, functions: PythonFunctions) -> str | None:
        """Return the SQL of an expression over a history by a definition of its own; None if there is none."""

    @abstractmethod
    def watch(self, programs: list[StagedPlan], how: Any) -> tuple[list[StagedPlan], TimeBinSizes]:
        """Return the programs, of an execution, with kernels that are watched, and the sizes of bins with which to run them."""

    @abstractmethod
    def after_step(
        self,
        case: Any,
        how: Any,
        run: LocalRun,
        ctis: Sequence[tuple[str | None, int]],
        until: int | None,
        number: int | None,
    ) -> None:
        """Judge a run in-process after micro-batch ``number``, or (None) its end, with the CTIs that came from outside then."""

    @abstractmethod
    def after_run(
        self, case: Any, how: Any, program: StagedPlan, out: Sequence[Sequence[pa.Table]], expected: Any
    ) -> None:
        """Judge the deltas of each query in each micro-batch of a run in-process, and at its end."""

    @abstractmethod
    def set_aside(self, case: Any, counted: Mapping[str, int], late: Sequence[pa.Table] | None, expected: Any) -> None:
        """Judge the counts of a run, and the rows of its late output (None: it has none)."""


JUDGES: list[Judge] = []
"""The judges of streamq itself: that of its own tests, which registers itself when they are loaded."""


MEMORY = "2GB"
"""The memory limit of an evaluation; nothing is spilled to disk."""


KEPT_OPTIMIZERS = ("filter_pushdown", "deliminator", "join_order")
"""DuckDB's optimizers that the oracle uses: with them joins and correlated subqueries take time by their rows, not by all pairs.
Over a few rows the other 40 take longer than most statements."""


class TooMuch(PlanError):
    """Raised for an answer that does not fit into memory, or would take too long."""


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process. It is shared, as opening one costs more than most queries; cursors have own tables."""
    connection = duckdb.connect(config={"threads": 1, "memory_limit": MEMORY, "temp_directory": ""})
    names = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
    unused = ",".join(name for name in names if name not in KEPT_OPTIMIZERS)
    connection.execute(f"SET disabled_optimizers = '{unused}'")
    return connection


@dataclass
class Run:
    """One evaluation: the connection, the rows of the sources, the bound on windows of endless lifetimes, and the tables.

    - ``ctis``: CTIs of sources from outside
    - ``reach``: the reach of the input of the current operator (``progress_policies.reach``), None if nothing has arrived
    - ``functions``: the Python functions that SQL calls
    - ``names``: the names of all tables
    - ``registered_sources``, ``histories``: by digest, the names of the tables of the sources' rows, and of the nodes so far
    - ``define``: returns the name of the table of another plan's history
    - ``overflow``: the sums that fail
    """

    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, pa.Table | pd.DataFrame]
    until: int | None
    functions: PythonFunctions
    ctis: Mapping[str, int] = field(default_factory=dict)
    reach: int | None = None
    names: list[str] = field(default_factory=list)
    registered_sources: dict[str, str] = field(default_factory=dict)
    histories: dict[str, str] = field(default_factory=dict)
    define: Callable[[Node], str] = str
    overflow: SumOverflow = SumOverflow.TOTAL

    def _name(self) -> str:
        self.names.append(f"t{len(self.names)}")
        return self.names[-1]

    def sql(self, expr: Expr, schema: Schema) -> str:
        """Return the SQL of an expression over a history: a judge's definition, else a call of what evaluates it."""
        for judge in JUDGES:
            if (defined := judge.sql(expr, schema, self.functions)) is not None:
                return defined
        return evaluated(expr, schema, self.functions)

    def without_failed(self, exprs: Iterable[Expr], schema: Schema, source: str) -> str:
        """Return the table of the events of ``source`` that have a row: those that no function with quarantine fails for.

        ``exprs`` are all expressions that the operator computes. The other events are counted, each for the first such function.
        """
        failing = []
        for expr in exprs:
            calls = [node.function for node in expression_nodes(expr) if isinstance(node, Call)]
            modules = [f.name for f in calls if isinstance(f, UserFunction) and sets_aside(f)]
            if modules:
                failing.append((self.sql(expr, schema), modules))
        if not failing:
            return source
        events = self.table(f"SELECT *, row_number() OVER () AS event FROM {source}")
        good = []
        for (event,) in self.rows(f"SELECT event FROM {events}"):
            module = next((modules[0] for call, modules in failing if self._fails(call, events, event, modules)), None)
            if module is None:
                good.append(event)
            else:
                self.functions.set_aside[module] += 1
        return self.table(
            f"SELECT * EXCLUDE (event) FROM {events} WHERE event IN ({', '.join(map(str, good)) or 'NULL'})"
        )

    def _fails(self, call: str, events: str, event: int, modules: Collection[str]) -> bool:
        """True if the SQL of an expression fails over an event because one of these functions does."""
        try:
            self.table(f"SELECT {call} AS value FROM {events} WHERE event = {event}")
        except QueryFailed:
            failure = self.functions.raised
            if isinstance(failure, ModuleFailed) and str(failure).partition(":")[0] in modules:
                return True
            raise
        return False

    def table(self, query: str) -> str:
        """Create a table of a query's result and return its name.

        Raises QueryFailed if the query fails by Spark's rules, or a user's module in it, and TooMuch if memory does not suffice.
        An error of a Python function that is not streamq's, the oracle's own fault, is raised as it is; so are DuckDB's others.
        """
        name = self._name()
        try:
            self.connection.execute(f"CREATE TEMP TABLE {name} AS {query}")
        except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
            failure = self.functions.raised
            if failure is not None and not isinstance(failure, StreamqError):
                raise failure from error
            reason = str(failure or error).splitlines()[0]
            wrong = "a module fails" if isinstance(failure, ModuleFailed) else "the query fails by Spark's rules"
            raise QueryFailed("oracle", wrong, reason) from error
        except duckdb.OutOfMemoryException as error:
            wrong = f"an operator's rows do not fit into {MEMORY}"
            raise TooMuch("oracle", "too many rows", wrong, "Give fewer events, or shorter ones.") from error
        return name

    def arrow(self, query: str) -> pa.Table:
        """Return a query's result as an Arrow table; an error of DuckDB is raised as it is."""
        return self.connection.sql(query).to_arrow_table()

    def value(self, query: str) -> Any:
        """Return the single value of a query; None if there is no row."""
        rows = self.rows(query)
        return rows[0][0] if rows else None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return a query's rows as tuples."""
        return self.connection.execute(query).fetchall()

    def registered(self, rows: pa.Table) -> str:
        """Register an Arrow table, and return its name."""
        name = self._name()
        self.connection.register(name, rows)
        return name

    def source(self, node: Source) -> str:
        """Return the table of a source's rows: ``n``, the number of arrival, and ``x0, x1, ...`` as in ``node.columns``.

        Times are ticks. The table is registered on the first call only.
        """
        if node.digest not in self.registered_sources:
            self.registered_sources[node.digest] = self.registered(self._source_rows(node))
        return self.registered_sources[node.digest]

    def _source_rows(self, node: Source) -> pa.Table:
        """Return a source's rows in the form of :meth:`source`; raise SourceError for a missing column, KeyError for no table."""
        rows = self.tables[node.table]
        table: Any = as_arrow(rows, "oracle")
        columns: dict[str, Any] = {"n": pa.array(range(table.num_rows), pa.int64())}
        for i, f in enumerate(node.columns):
            if f.name not in table.column_names:
                there = ", ".join(table.column_names)
                raise SourceError("oracle", f"no column {f.name!r} in {node.table!r}", f"there are: {there}")
            column = table[f.name]
            is_time = f.name in node.time_columns
            columns[f"x{i}"] = zoned_ticks(column, node.zone) if is_time else to_duckdb(column, f.type)
        return pa.table(columns)

    def static(self, node: JoinTable) -> str:
        """Return the table of a static table's rows: ``c0, c1, ...`` as in ``node.columns``.

        It is registered anew on each call. Raises KeyError for a missing table or column.
        """
        rows = self.tables[node.table]
        table: Any = as_arrow(rows, "oracle")
        columns = {f"c{i}": to_duckdb(table[f.name], f.type) for i, f in enumerate(node.columns)}
        return self.registered(pa.table(columns))


# sources


def column(node: Source, name: str) -> str:
    """Return the column of a source's rows (:meth:`Run.source`) for a column's name."""
    return f"x{[f.name for f in node.columns].index(name)}"


def payload_of(node: Source) -> list[str]:
    return [f"{column(node, f.name)} AS c{i}" for i, f in enumerate(node.payload)]


def no_start(time: str, last: int = INFINITY - 1) -> str:
    """Return branches of a CASE for the reasons why an instant is not a start: NULL, -2^63, or after ``last``."""
    return (
        f"WHEN {time} IS NULL THEN 'null start' WHEN {time} = {MINUS_INFINITY} THEN 'a start before time begins' "
        f"WHEN {time} > {last} THEN 'a start where time ends'"
    )


def events_of(node: Source, run: Run, query: str) -> str:
    """Return, for a FROM clause, the rows of a query whose column ``bad`` is NULL.

    Raises InvalidEvent if there are others, unless the source's policy is ``invalid="drop"``: the default fails, as in a batch.
    """
    rows = run.table(query)
    if node.policy.invalid_in(False) == Invalid.FAIL:
        bad = run.value(f"SELECT min(bad) FROM {rows}")
        if bad is not None:
            raise InvalidEvent(f"source {node.shown_name()}", "a row is no event", bad)
    return f"(SELECT * EXCLUDE (bad) FROM {rows} WHERE bad IS NULL)"


def keyed(node: Source, run: Run, rows: str) -> str:
    """Return the table of rows with the key columns of their payload."""
    own = own_keys(node.schema)
    return run.table(f"SELECT {listed('*', *own)} FROM {rows}") if own else rows


def representatives(node: Source) -> list[str]:
    """Return the payload columns of rows that are grouped by their key columns."""
    return [f"any_value({c}) AS {c}" for c in payload(node.schema) if c not in keys(node.schema)]


def once(node: Source, run: Run, rows: str) -> str:
    """Return rows deduplicated by id and start: the row least by (end, payload) stays, equal rows go.

    Others are invalid: dropped or an error, see :func:`events_of`. A source without ids keeps all rows.
    """
    if not node.ids:
        return rows
    names = keys(node.schema)
    ids = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.ids]
    order = listed("re", *(f"{c} NULLS FIRST" for c in names))
    columns = listed("le", "re", *names)
    return events_of(node, run, f"""
        SELECT *, CASE WHEN row_number() OVER (PARTITION BY {listed("le", *ids)} ORDER BY {order}) > 1
            THEN 'two rows of one id and start that differ' END AS bad
        FROM (SELECT {listed(columns, *representatives(node))}
            FROM {keyed(node, run, rows)} GROUP BY {columns})""")  # fmt: skip
