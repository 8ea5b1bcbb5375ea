"""The oracle: every logical operator defined once more, as SQL over canonical histories, run by DuckDB.

Nothing here is shared with what it judges but nodes, schemas and the types of expressions. No definition is clever: the
members of a window are found by comparing lifetimes, not by arithmetic on window numbers, and every window is computed
from all of its members. So it is slow and meant for small inputs. ``ORACLE`` finds an operator's definition by its
node; each takes ``(node, names of the input histories, Run)`` and returns a query whose columns are ``le``, ``re``
(ticks; an open end is INFINITY) and the payload as ``c0, c1, ...``.

What fails by Spark's rules (overflow, division by zero, a cast that loses) fails here too, with QueryFailed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from streamq.compiler.operators import Edges, Intervals, Physical, Points, Select, Source, Union, Where, WindowAggregate
from streamq.compiler.plan import Node
from streamq.compiler.plan import fold as fold_plan
from streamq.errors import InvalidEvent, NeedsSpark, PlanError, QueryFailed, SourceError, sentence
from streamq.expr import ARITHMETIC, COMPARISON, Aggregate, Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit, show
from streamq.expr import fold as fold_expr
from streamq.schema import Schema, infer, wider
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

MOST_WINDOWS = 1_000_000
"""Lifetimes of more hops than this are refused."""


def oracle(plan: Node, tables: Mapping[str, pa.Table | pd.DataFrame], until: int | None = None) -> pa.Table:
    """The canonical history of a plan's answer: ``start`` and ``end`` in ticks, then the payload, in no order.

    ``tables`` are the rows of the sources by source name; time columns are of their declared type or int64 ticks. In a
    pandas table NaN is NULL, as pandas has it. With ``until`` only windows are reported that start before it (SEMANTICS
    section 3). Raises InvalidEvent for rows that are no events where the source says ``fail``, PlanError for an
    expression that is not translated, naming the function, QueryFailed where evaluation fails by Spark's rules.
    """
    import pyarrow as pa

    run = Run(_database().cursor(), tables, until)

    def visit(node: Node, inputs: list[str]) -> str:
        if type(node) not in ORACLE:
            there = ", ".join(n.__name__ for n in ORACLE)
            raise PlanError(sentence("oracle", f"no definition of {type(node).__name__}", f"there are: {there}"))
        query = ORACLE[type(node)](node, inputs, run)
        typed = [f"CAST(c{i} AS {sql_type(f.type)}) AS c{i}" for i, f in enumerate(node.schema.fields)]
        return run.table(f"SELECT {listed('le', 're', *typed)} FROM ({query})")

    try:
        made = run.arrow(f"SELECT {listed('le', 're', *payload(plan.schema))} FROM {fold_plan(plan, visit)}")
    finally:
        run.connection.close()
    kinds = [pa.int64(), pa.int64(), *(arrow_type(f.type) for f in plan.schema.fields)]
    columns = [_handed_out(column, kind) for column, kind in zip(made.columns, kinds, strict=True)]
    return pa.table(columns, names=["start", "end", *plan.schema.names])


@cache
def _database() -> duckdb.DuckDBPyConnection:
    # to open one costs more than most queries; a cursor of it has its own temporary tables
    import duckdb

    return duckdb.connect(config={"threads": 1})


@dataclass
class Run:
    """One evaluation: the connection, the rows of the sources, the bound on infinite lifetimes, the tables made."""

    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, pa.Table | pd.DataFrame]
    until: int | None = None
    made: list[str] = field(default_factory=list)

    def _name(self) -> str:
        self.made.append(f"t{len(self.made)}")
        return self.made[-1]

    def table(self, query: str) -> str:
        """The name of a new table that holds a query's result."""
        import duckdb

        name = self._name()
        try:
            self.connection.execute(f"CREATE TEMP TABLE {name} AS {query}")
        except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException) as error:
            reason = str(error).splitlines()[0]
            raise QueryFailed(sentence("oracle", "the query fails by Spark's rules", reason)) from error
        return name

    def arrow(self, query: str) -> pa.Table:
        """A query's result."""
        return self.connection.sql(query).to_arrow_table()

    def value(self, query: str) -> Any:
        """A query's only value; None if there is no row."""
        found = self.connection.execute(query).fetchall()
        return found[0][0] if found else None

    def source(self, node: Source) -> str:
        """A source's rows: ``n``, their number in order of arrival, and ``x0, x1, ...`` as in ``node.columns``.

        Times are ticks.
        """
        import pyarrow as pa

        given = self.tables[node.table]
        table = given if isinstance(given, pa.Table) else pa.Table.from_pandas(given, preserve_index=False)
        columns: dict[str, Any] = {"n": pa.array(range(table.num_rows), pa.int64())}
        for i, f in enumerate(node.columns):
            if f.name not in table.column_names:
                there = ", ".join(table.column_names)
                raise SourceError(sentence("oracle", f"no column {f.name!r} in {node.table!r}", f"there are: {there}"))
            column = table[f.name]
            columns[f"x{i}"] = _ticks(column) if f.name in _times(node) else _taken_in(column, arrow_type(f.type))
        name = self._name()
        self.connection.register(name, pa.table(columns))
        return name


def arrow_type(kind: t.DataType) -> pa.DataType:
    """Arrow's type for a Spark type; timestamps are in UTC."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.timestamp("us", "UTC") if isinstance(kind, t.TimestampType) else to_arrow_type(kind)


def _times(node: Source) -> tuple[str, ...]:
    match node:
        case Points() | Edges():
            return (node.time,)
        case Intervals():
            return (node.start, node.end)
        case Physical():
            return (node.start, node.end, node.new_end)
    return ()


def _ticks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return pc.multiply(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    return column.cast(pa.int64())


def _taken_in(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # inside, a timestamp is a naive one in UTC
    import pyarrow as pa

    return _ticks(column).cast(pa.timestamp("us")) if pa.types.is_timestamp(kind) else column.cast(kind)


def _handed_out(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    return _ticks(column).cast(kind) if pa.types.is_timestamp(kind) else column.cast(kind)


def listed(*parts: str) -> str:
    """Parts of a list, with commas."""
    return ", ".join(parts)


def same(columns: Sequence[str]) -> str:
    """The condition that rows ``a`` and ``b`` agree in columns, NULL with NULL."""
    return " AND ".join(f"a.{c} IS NOT DISTINCT FROM b.{c}" for c in columns) or "true"


def payload(schema: Schema) -> list[str]:
    """The payload's columns inside."""
    return [f"c{i}" for i in range(len(schema.fields))]


# sources


def _column(node: Source, name: str) -> str:
    return f"x{[f.name for f in node.columns].index(name)}"


def _payload_of(node: Source) -> list[str]:
    return [f"{_column(node, f.name)} AS c{i}" for i, f in enumerate(node.payload)]


def _events(node: Source, run: Run, query: str) -> str:
    """A table of the rows of a query whose column ``bad`` is NULL; under ``invalid="fail"`` all have to be."""
    rows = run.table(query)
    bad = run.value(f"SELECT min(bad) FROM {rows}")
    if bad is not None and node.policy.invalid_in(False) == "fail":
        raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", bad))
    return run.table(f"SELECT * EXCLUDE (bad) FROM {rows} WHERE bad IS NULL")


def points(node: Points, inputs: Sequence[str], run: Run) -> str:
    """``[t, t + 1)``."""
    time = _column(node, node.time)
    rows = _events(node, run, f"""
        SELECT {listed(f"{time} AS le", f"{time} + 1 AS re", *_payload_of(node))},
            CASE WHEN {time} IS NULL THEN 'null start' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    return f"SELECT * FROM {rows}"


def intervals(node: Intervals, inputs: Sequence[str], run: Run) -> str:
    """``[start, end)`` with ``start < end``; a NULL end is infinity."""
    start, end = _column(node, node.start), f"coalesce({_column(node, node.end)}, {INFINITY})"
    rows = _events(node, run, f"""
        SELECT {listed(f"{start} AS le", f"{end} AS re", *_payload_of(node))},
            CASE WHEN {start} IS NULL THEN 'null start' WHEN NOT {start} < {end} THEN 'end before start' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    return f"SELECT * FROM {rows}"


def edges(node: Edges, inputs: Sequence[str], run: Run) -> str:
    """A start lives until the first later instant at which its key has an edge.

    An end closes if the last earlier instant at which its key has an edge has a start; the ends of an instant come
    before its starts. Of several starts, or ends, of one key and instant only the least by payload is one.
    """
    time, edge = _column(node, node.time), _column(node, node.edge)
    opens, closes = sql(node.open, node.schema), sql(node.close, node.schema)
    rows = _events(node, run, f"""
        SELECT {listed("n", f"{time} AS le", f"{edge} IS NOT DISTINCT FROM {opens} AS opens", *_payload_of(node))},
            CASE WHEN {time} IS NULL THEN 'null start'
                WHEN {edge} IS DISTINCT FROM {opens} AND {edge} IS DISTINCT FROM {closes}
                THEN 'neither a start nor an end' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    key = [f"c{i}" for i, f in enumerate(node.payload) if f.name in node.key]
    rest = [c for c in payload(node.schema) if c not in key]
    places = run.table(f"""
        SELECT *, row_number() OVER (PARTITION BY {listed(*key, "le", "opens")}
            ORDER BY {listed(*(f"{c} NULLS FIRST" for c in rest), "n")}) AS place
        FROM {rows}""")  # fmt: skip
    before = f"(SELECT max(b.le) FROM {rows} b WHERE {same(key)} AND b.le < a.le)"
    chain = _events(node, run, f"""
        SELECT *, CASE
            WHEN NOT opens AND NOT EXISTS (SELECT 1 FROM {rows} b WHERE {same(key)} AND b.opens AND b.le = {before})
            THEN 'an end without an open start'
            WHEN place > 1 AND opens THEN 'two starts of one key at one instant'
            WHEN place > 1 THEN 'two ends of one key at one instant' END AS bad
        FROM {places} a""")  # fmt: skip
    starts = run.table(f"""
        SELECT a.*, (SELECT min(b.le) FROM {chain} b WHERE {same(key)} AND b.le > a.le) AS til
        FROM {chain} a WHERE a.opens""")  # fmt: skip
    ends = f"SELECT * FROM {chain} WHERE NOT opens"
    late = [f"CASE WHEN b.n IS NULL THEN a.{c} ELSE b.{c} END" for c in rest]
    taken = dict(zip(rest, late, strict=True)) if node.payload_from == "end" else {}
    made = [f"{taken.get(c, f'a.{c}')} AS {c}" for c in payload(node.schema)]
    return f"""
        SELECT {listed("a.le", f"coalesce(a.til, {INFINITY}) AS re", *made)}
        FROM {starts} a LEFT JOIN ({ends}) b ON {same(key)} AND b.le = a.til"""


def physical(node: Physical, inputs: Sequence[str], run: Run) -> str:
    """Each insert counts one lifetime, each retraction one of the new lifetime less one of that it names.

    With ids a retraction names its event by id, start and end, and the payload is the insert's; without, by start, end
    and payload. A lifetime that counts less than none is an error of the source; under ``invalid="drop"`` those
    retractions that arrived last go, with what follows from them. Empty lifetimes and CTIs are gone.
    """
    kind, start = _column(node, node.kind), _column(node, node.start)
    end, new_end = (f"coalesce({_column(node, name)}, {INFINITY})" for name in (node.end, node.new_end))
    rows = _events(node, run, f"""
        SELECT n, {kind} = 'insert' AS inserts, {listed(f"{start} AS le", f"{end} AS re", f"{new_end} AS new_re")}, CASE
            WHEN {kind} IS NULL OR {kind} NOT IN ('insert', 'retract') THEN 'neither insert, retract nor cti'
            WHEN {start} IS NULL THEN 'null start'
            WHEN NOT {start} < {end} THEN 'end before start'
            WHEN {kind} = 'retract' AND {new_end} < {start} THEN 'new end before start' END AS bad
            {"".join(f", {column}" for column in _payload_of(node))}
        FROM {run.source(node)} WHERE {kind} IS DISTINCT FROM 'cti'""")  # fmt: skip
    names = payload(node.schema)
    whose = [f"c{i}" for i, f in enumerate(node.payload) if f.name == node.id] if node.id else names

    def counted(rows: str) -> str:
        return run.table(f"""
            SELECT {listed("le", "re", *whose)}, sum(w) AS w FROM (
                SELECT {listed("le", "re", *whose)}, CASE WHEN inserts THEN 1 ELSE -1 END AS w FROM {rows}
                UNION ALL SELECT {listed("le", "new_re", *whose)}, 1 FROM {rows} WHERE NOT inserts
            ) GROUP BY {listed("le", "re", *whose)}""")  # fmt: skip

    totals = counted(rows)
    while run.value(f"SELECT count(*) FROM {totals} WHERE w < 0"):
        if node.policy.invalid_in(False) == "fail":
            wrong = "a retraction that matches nothing"
            raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", wrong))
        place = f"row_number() OVER (PARTITION BY {listed('inserts', 'le', 're', *whose)} ORDER BY n DESC)"
        rows = run.table(f"""
            SELECT a.* EXCLUDE (place) FROM (SELECT *, {place} AS place FROM {rows}) a
            JOIN {totals} b ON {same(["le", "re", *whose])} WHERE a.inserts OR a.place > -b.w""")  # fmt: skip
        totals = counted(rows)
    living = run.table(f"SELECT * EXCLUDE (w), unnest(range(CAST(w AS BIGINT))) AS copy FROM {totals}")
    if not node.id:
        return f"SELECT {listed('le', 're', *names)} FROM {living} WHERE le < re"
    event = listed("le", *whose)
    return f"""
        SELECT {listed("a.le", "a.re", *(f"b.{c}" for c in names))}
        FROM (SELECT *, row_number() OVER (PARTITION BY {event} ORDER BY re, copy) AS place FROM {living}) a
        JOIN (SELECT *, row_number() OVER (PARTITION BY {event} ORDER BY re, n) AS place FROM {rows} WHERE inserts) b
        ON {same(["le", *whose, "place"])} WHERE a.le < a.re"""


# span operators


def where(node: Where, inputs: Sequence[str], run: Run) -> str:
    """The rows for which the predicate is true."""
    return f"SELECT * FROM {inputs[0]} WHERE {sql(node.predicate, node.input.schema)}"


def select(node: Select, inputs: Sequence[str], run: Run) -> str:
    """The same lifetimes, each column computed from its row."""
    made = [f"{sql(e, node.input.schema)} AS c{i}" for i, (_, e) in enumerate(node.columns)]
    return f"SELECT {listed('le', 're', *made)} FROM {inputs[0]}"


def union(node: Union, inputs: Sequence[str], run: Run) -> str:
    """All rows of all inputs."""
    return " UNION ALL ".join(f"SELECT * FROM {name}" for name in inputs)


# windows


def window_aggregate(node: WindowAggregate, inputs: Sequence[str], run: Run) -> str:
    """Per window ``[o + iH, o + iH + S)`` and group: aggregates over the events with ``LE < W.RE and RE > W.LE``."""
    source = node.input.schema
    groups = [f"g{i}" for i in range(len(node.keys))]
    keys = [
        f"{_key(f'c{source.names.index(k)}', source.type_of(k))} AS {g}" for g, k in zip(groups, node.keys, strict=True)
    ]
    kinds = {f"v{i}": infer(a.args[0], source, "oracle") for i, (_, a) in enumerate(node.aggregates) if a.args}
    values = [f"{sql(node.aggregates[int(v[1:])][1].args[0], source)} AS {v}" for v in kinds]
    events = run.table(f"SELECT {listed('le', 're', *keys, *values)} FROM {inputs[0]}")
    windows = _windows(node, events, run)
    members = run.table(f"SELECT w_le, w_re, a.* FROM {events} a JOIN {windows} ON le < w_re AND re > w_le")
    window = listed("w_le", "w_re", *groups)
    # a variance needs the mean first
    numbers = [v for v, kind in kinds.items() if isinstance(kind, t.NumericType)]
    means = [f"avg(CAST({v} AS DOUBLE)) OVER (PARTITION BY {window}) AS {v}_mean" for v in numbers]
    made = [f"{aggregate(a, f'v{i}', kinds.get(f'v{i}'))}" for i, (_, a) in enumerate(node.aggregates)]
    columns = [f"{e} AS c{i}" for i, e in enumerate([*groups, *made])]
    return f"""
        SELECT {listed("w_le AS le", "w_re AS re", *columns)} FROM (SELECT {listed("*", *means)} FROM {members})
        GROUP BY {window}"""


def _windows(node: WindowAggregate, events: str, run: Run) -> str:
    """The windows to report: of every event those of the grid that it may overlap, and some more."""
    size, hop, offset = node.window.size, node.window.hop, node.window.offset
    infinite = run.value(f"SELECT count(*) FROM {events} WHERE re = {INFINITY}")
    finite = run.value(f"SELECT max(CASE WHEN re < {INFINITY} THEN re ELSE le END) FROM {events}")
    until = run.until if run.until is not None else finite if infinite else INFINITY
    last = f"least(re, {until})"
    if (run.value(f"SELECT max({last}::HUGEINT - le) FROM {events}") or 0) > MOST_WINDOWS * hop:
        raise QueryFailed(sentence("oracle", "too many windows", f"a lifetime is longer than {MOST_WINDOWS} hops"))
    low, high = f"(le::HUGEINT - {offset} - {size}) // {hop} - 2", f"({last}::HUGEINT - {offset}) // {hop} + 2"
    start = f"{offset} + i * {hop}::HUGEINT"
    return run.table(f"""
        SELECT DISTINCT CAST(greatest({MINUS_INFINITY}, {start}) AS BIGINT) AS w_le,
            CAST(least({INFINITY}, {start} + {size}) AS BIGINT) AS w_re
        FROM (SELECT DISTINCT unnest(range(CAST({low} AS BIGINT), CAST({high} AS BIGINT))) AS i FROM {events})
        WHERE {start} < {until}""")  # fmt: skip


def _key(column: str, kind: t.DataType) -> str:
    # -0.0 and 0.0 are one group, called 0.0
    return f"CASE WHEN {column} = 0 THEN 0 ELSE {column} END" if _floating(kind) else column


def _floating(kind: t.DataType | None) -> bool:
    return isinstance(kind, t.FloatType | t.DoubleType)


def aggregate(found: Aggregate, v: str, kind: t.DataType | None) -> str:
    """An aggregate of column ``v`` over a group; ``{v}_mean`` is its mean if it is a number."""
    n, squares = f"count({v})", f"sum(power(CAST({v} AS DOUBLE) - {v}_mean, 2))"
    match found.name:
        case "count":
            return n if found.args else "count(*)"
        case "min" | "max":
            return f"{found.name}({v})"
        case "sum":
            return f"sum(CAST({v} AS DOUBLE))" if _floating(kind) else f"sum({v})"
        case "avg":
            return _decimal_mean(v, kind) if isinstance(kind, t.DecimalType) else f"avg(CAST({v} AS DOUBLE))"
        case "var":
            return f"CASE WHEN {n} > 1 THEN {squares} / ({n} - 1) END"
        case "var_pop":
            return f"CASE WHEN {n} > 0 THEN {squares} / {n} END"
        case "stddev":
            return f"CASE WHEN {n} > 1 THEN sqrt({squares} / ({n} - 1)) END"
        case "stddev_pop":
            return f"CASE WHEN {n} > 0 THEN sqrt({squares} / {n}) END"
    raise PlanError(sentence("oracle", f"aggregate {found.name!r} is not translated", f"found {show(found)}"))


def _decimal_mean(v: str, kind: t.DecimalType) -> str:
    # the exact quotient with four more digits, rounded half up, computed in units of the last digit and written out
    precision, scale = min(38, kind.precision + 4), min(38, kind.scale + 4)
    units = f"CAST(replace(CAST(sum({v}) AS VARCHAR), '.', '') AS HUGEINT)"
    rounded = f"((2 * {10 ** (scale - kind.scale)} * abs({units}) + count({v})) // (2 * nullif(count({v}), 0)))"
    one = f"{10**scale}::HUGEINT"
    digits = f"{rounded} // {one} || '.' || lpad(CAST({rounded} % {one} AS VARCHAR), {scale}, '0')"
    return f"CAST(CASE WHEN {units} < 0 THEN '-' ELSE '' END || {digits} AS DECIMAL({precision}, {scale}))"


ORACLE: dict[type[Node], Callable[..., str]] = {
    Points: points,
    Intervals: intervals,
    Edges: edges,
    Physical: physical,
    Where: where,
    Select: select,
    Union: union,
    WindowAggregate: window_aggregate,
}
"""The definition of every logical operator."""


# expressions

_TYPES: Mapping[type[t.DataType], str] = {
    t.BooleanType: "BOOLEAN",
    t.ByteType: "TINYINT",
    t.ShortType: "SMALLINT",
    t.IntegerType: "INTEGER",
    t.LongType: "BIGINT",
    t.FloatType: "FLOAT",
    t.DoubleType: "DOUBLE",
    t.StringType: "VARCHAR",
    t.BinaryType: "BLOB",
    t.DateType: "DATE",
    t.TimestampType: "TIMESTAMP",
    t.TimestampNTZType: "TIMESTAMP",
    t.NullType: "INTEGER",
}

_DIGITS: Mapping[type[t.DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 20}
"""The integral types, and the digits of the decimals that they count as."""


def sql_type(kind: t.DataType) -> str:
    """DuckDB's name for a Spark type; raises PlanError for one that is not translated."""
    if isinstance(kind, t.DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if type(kind) not in _TYPES:
        raise PlanError(sentence("oracle", f"type {kind.simpleString()} is not translated"))
    return _TYPES[type(kind)]


def sql(expr: Expr, schema: Schema) -> str:
    """DuckDB's SQL for an expression over a history, with Spark's values; PlanError for what is not translated."""

    def kind_of(node: Expr) -> t.DataType | None:
        try:
            return infer(node, schema, "oracle")
        except NeedsSpark:
            return None

    def visit(node: Expr, parts: list[str]) -> str:
        match node:
            case Col(name=name):
                return f"c{schema.names.index(name)}"
            case Lit(value=value, type=kind):
                made = literal(value)
                return made if kind is None else f"CAST({made} AS {sql_type(kind)})"
            case Lifetime(part=part):
                return _lifetime(part, schema)
            case Alias():
                return parts[0]
            case Cast(arg=arg, type=to):
                return _cast(node, parts[0], kind_of(arg), to)
            case Case():
                branches = [f"WHEN {parts[i]} THEN {parts[i + 1]}" for i in range(0, len(parts) - 1, 2)]
                return _as(f"CASE {' '.join(branches)} ELSE {parts[-1]} END", kind_of(node))
            case Call(name=name) if name in ARITHMETIC:
                return _arithmetic(node, parts, [kind_of(a) for a in node.children])
            case Call(name=name) if name in COMPARISON:
                return _compared(name, parts, [kind_of(a) for a in node.children])
            case Call(name="isin"):
                return f"({parts[0]} IN ({listed(*parts[1:])}))" if len(parts) > 1 else "false"
            case Call(name="coalesce" | "ifnull" | "nvl"):
                return f"coalesce({listed(*(_as(p, kind_of(node)) for p in parts))})"
            case Call(name="greatest" | "least" as name):
                return f"{name}({listed(*(_as(p, kind_of(node)) for p in parts))})"
            case Call(name=name, args=args) if name in FUNCTIONS:
                shown = iter(parts)
                try:
                    return f"({FUNCTIONS[name](*(next(shown) if isinstance(a, Expr) else literal(a) for a in args))})"
                except TypeError as error:
                    wrong = f"function {name!r} of {len(args)} arguments is not translated"
                    raise PlanError(sentence("oracle", wrong, f"found {show(node)}")) from error
            case Call(name=name):
                raise PlanError(sentence("oracle", f"function {name!r} is not translated", f"found {show(node)}"))
        raise PlanError(sentence("oracle", f"{type(node).__name__} is not translated", f"found {show(node)}"))

    return fold_expr(expr, visit)


def _lifetime(part: str, schema: Schema) -> str:
    shown = "make_timestamp({})" if schema.axis == TIMESTAMP else "{}"
    match part:
        case "start":
            return shown.format("le")
        case "end":
            return f"CASE WHEN re < {INFINITY} THEN {shown.format('re')} END"
    return f"CASE WHEN re < {INFINITY} THEN CAST(least({INFINITY}, re::HUGEINT - le) AS BIGINT) END"


def literal(value: Any) -> str:
    """A Python value in SQL, of the type that Spark gives it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return f"CAST({value} AS {'INTEGER' if -(2**31) <= value < 2**31 else 'BIGINT'})"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"from_hex('{value.hex()}')"
        case Decimal():
            digits = format(value, "f").lstrip("-")
            whole, _, fraction = digits.partition(".")
            precision = max(len(whole.lstrip("0")) + len(fraction), 1)
            return f"CAST('{format(value, 'f')}' AS DECIMAL({precision}, {len(fraction)}))"
        case dt.datetime():
            utc = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"CAST('{utc.isoformat(' ')}' AS TIMESTAMP)"
        case dt.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case dt.timedelta():
            return f"to_microseconds({value // dt.timedelta(microseconds=1)})"
    raise PlanError(sentence("oracle", f"a literal of {type(value).__name__} is not translated", f"found {value!r}"))


def _as(part: str, kind: t.DataType | None) -> str:
    return f"({part})" if kind is None or isinstance(kind, t.NullType) else f"CAST({part} AS {sql_type(kind)})"


def _compared(name: str, parts: list[str], kinds: list[t.DataType | None]) -> str:
    # a float makes the comparison one of floats
    a, b = (f"CAST({p} AS DOUBLE)" for p in parts) if any(_floating(k) for k in kinds) else parts
    operator = {"==": "=", "!=": "<>", "<=>": "IS NOT DISTINCT FROM"}.get(name, name)
    return f"({a} {operator} {b})"


def _arithmetic(node: Call, parts: list[str], kinds: list[t.DataType | None]) -> str:
    """Operands in Spark's common type; overflow and division by zero are errors; a remainder has the left's sign."""
    if any(isinstance(k, t.DecimalType) for k in kinds):
        return _decimal(node, parts, kinds)
    left, right = kinds
    if isinstance(left, t.TimestampType) and isinstance(right, t.DayTimeIntervalType) and node.name in "+-":
        return f"({parts[0]} {node.name} {parts[1]})"
    common = wider(left, right) if left is not None and right is not None else None
    if not isinstance(common, t.NumericType):
        raise PlanError(sentence("oracle", f"{node.name!r} on these types is not translated", f"found {show(node)}"))
    if node.name == "/":
        common = t.DoubleType()
    a, b = (_as(p, common) for p in parts)
    if node.name not in ("/", "%"):
        return _as(f"{a} {node.name} {b}", common)
    # the least integer has no remainder by -1 that a machine could compute
    by_one = f"WHEN {b} = -1 THEN 0" if node.name == "%" and type(common) in _DIGITS else ""
    null = f"WHEN {a} IS NULL OR {b} IS NULL THEN NULL"
    return _as(f"CASE {null} WHEN {b} = 0 THEN error('division by zero') {by_one} ELSE {a} {node.name} {b} END", common)


def _decimal(node: Call, parts: list[str], kinds: list[t.DataType | None]) -> str:
    # what is no decimal and no integer has too many digits for a product or a sum
    found = [
        (k.precision, k.scale) if isinstance(k, t.DecimalType) else (_DIGITS.get(type(k or t.NullType()), 99), 0)
        for k in kinds
    ]
    (p, s), (q, r) = found
    scale = s + r if node.name == "*" else max(s, r)
    precision = p + q + 1 if node.name == "*" else max(p - s, q - r) + scale + 1
    if node.name in ("/", "%") or precision > 38:
        raise PlanError(sentence("oracle", f"{node.name!r} on these types is not translated", f"found {show(node)}"))
    a, b = (f"CAST({part} AS DECIMAL({n}, {m}))" for part, (n, m) in zip(parts, found, strict=True))
    return f"CAST({a} {node.name} {b} AS DECIMAL({precision}, {scale}))"


def _cast(node: Expr, part: str, kind: t.DataType | None, to: t.DataType) -> str:
    """A cast by Spark's ANSI rules: fractions are cut, text has to be well formed, what does not fit is an error."""
    plain = f"CAST({part} AS {sql_type(to)})"
    exact = type(kind) in _DIGITS or isinstance(kind, t.BooleanType)
    match kind, to:
        case (t.NullType(), _):
            return plain
        case _ if kind == to:
            return plain
        case (t.FloatType() | t.DoubleType() | t.DecimalType(), _) if type(to) in _DIGITS:
            return f"CAST(trunc({part}) AS {sql_type(to)})"
        case (t.NumericType(), t.BooleanType()):
            return f"({part} <> 0)"
        case (t.NumericType(), t.FloatType() | t.DoubleType()) | (t.DecimalType(), t.DecimalType()):
            return plain
        case (_, t.NumericType() | t.StringType()) if exact:
            return plain
        case (t.StringType(), _) if type(to) in _DIGITS:
            return _well_formed(part, r"\s*[+-]?\d+\s*", plain, to)
        case (t.StringType(), t.FloatType() | t.DoubleType() | t.DecimalType()):
            return _well_formed(part, r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", plain, to)
        case (t.StringType(), t.BooleanType()):
            true = f"trim(lower({part}), ' ') IN ('t', 'true', 'y', 'yes', '1')"
            return _well_formed(part, "(?i) *(t|true|y|yes|1|f|false|n|no|0) *", true, to)
        case (t.TimestampType(), t.LongType()):
            return f"CAST(floor(epoch_us({part}) / 1000000) AS BIGINT)"
        case (t.DateType(), t.StringType() | t.TimestampType()) | (t.TimestampType(), t.DateType()):
            return plain
    of = "an expression of unknown type" if kind is None else kind.simpleString()
    raise PlanError(
        sentence("oracle", f"a cast of {of} to {to.simpleString()} is not translated", f"found {show(node)}")
    )


def _well_formed(part: str, form: str, made: str, to: t.DataType) -> str:
    wrong = f"error('no {to.simpleString()}: ' || {part})"
    return f"CASE WHEN regexp_full_match({part}, '{form}') THEN {made} WHEN {part} IS NOT NULL THEN {wrong} END"


FUNCTIONS: dict[str, Callable[..., str]] = {
    "and": lambda a, b: f"{a} AND {b}",
    "or": lambda a, b: f"{a} OR {b}",
    "not": lambda a: f"NOT {a}",
    "negative": lambda a: f"- {a}",
    "positive": lambda a: a,
    "abs": lambda a: f"abs({a})",
    "sqrt": lambda a: f"CASE WHEN {a} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({a}) END",
    "exp": lambda a: f"exp(CAST({a} AS DOUBLE))",
    "ln": lambda a: f"CASE WHEN {a} > 0 THEN ln(CAST({a} AS DOUBLE)) END",
    "log10": lambda a: f"CASE WHEN {a} > 0 THEN log10(CAST({a} AS DOUBLE)) END",
    "log2": lambda a: f"CASE WHEN {a} > 0 THEN log2(CAST({a} AS DOUBLE)) END",
    "pow": lambda a, b: f"power(CAST({a} AS DOUBLE), CAST({b} AS DOUBLE))",
    "power": lambda a, b: f"power(CAST({a} AS DOUBLE), CAST({b} AS DOUBLE))",
    "isnull": lambda a: f"{a} IS NULL",
    "isnotnull": lambda a: f"{a} IS NOT NULL",
    "isnan": lambda a: f"coalesce(isnan(CAST({a} AS DOUBLE)), false)",
    "nullif": lambda a, b: f"nullif({a}, {b})",
    "nvl2": lambda a, b, c: f"CASE WHEN {a} IS NOT NULL THEN {b} ELSE {c} END",
    "upper": lambda a: f"upper({a})",
    "lower": lambda a: f"lower({a})",
    "trim": lambda a: f"trim({a}, ' ')",
    "ltrim": lambda a: f"ltrim({a}, ' ')",
    "rtrim": lambda a: f"rtrim({a}, ' ')",
    "length": lambda a: f"length({a})",
    "reverse": lambda a: f"reverse({a})",
    "concat": lambda *parts: " || ".join(parts),
    "concat_ws": lambda *parts: f"concat_ws({listed(*parts)})",
    "startswith": lambda a, b: f"starts_with({a}, {b})",
    "endswith": lambda a, b: f"ends_with({a}, {b})",
    "contains": lambda a, b: f"contains({a}, {b})",
    "like": lambda a, b: f"{a} LIKE {b} ESCAPE '\\'",
    "rlike": lambda a, b: f"regexp_matches({a}, {b})",
    "year": lambda a: f"year({a})",
    "month": lambda a: f"month({a})",
    "day": lambda a: f"day({a})",
    "dayofmonth": lambda a: f"day({a})",
    "dayofweek": lambda a: f"dayofweek({a}) + 1",
    "hour": lambda a: f"hour({a})",
    "minute": lambda a: f"minute({a})",
    "second": lambda a: f"second({a})",
    "unix_micros": lambda a: f"epoch_us({a})",
    "timestamp_micros": lambda a: f"make_timestamp({a})",
}
"""Spark's functions that SQL here gives Spark's values for; the others are refused by name."""

__all__ = ["FUNCTIONS", "ORACLE", "Run", "arrow_type", "literal", "oracle", "sql", "sql_type"]
