"""The results of a program: its plans under one root, so that parts which they share are compiled once, and their outputs.

Which outputs a plan can have is checked here, and result rows become the user's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructType

from streamq.choices import OutputForm
from streamq.errors import NeedsSpark, PlanError, column_names, unknown_column
from streamq.operators.operator import Operator, RowKey, no_row_key
from streamq.operators.source import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import fold
from streamq.plan.lowering import instant_sql, ship_runtime, text_literal
from streamq.plan.node import ADDED, Node, nodes
from streamq.plan.schema import Schema, quote
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.envelope import LATE
from streamq.runtime.hosts.result_rows import (
    BATCH_ROWS,
    CHANGELOG_ADDS,
    INSERTED,
    RESULT,
    RETRACTED,
    ROWS,
    SENT,
    STAMP,
    UPSERT_ADDS,
    PackedResult,
    changelog_rows,
    final_rows,
    folding,
    unpacking,
    upsert_rows,
)
from streamq.time import INFINITY, TIMESTAMP

if TYPE_CHECKING:
    Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


OUTPUT_COLUMNS = {
    OutputForm.FINAL: (),
    OutputForm.CHANGELOG: CHANGELOG_ADDS,
    OutputForm.UPSERT: UPSERT_ADDS,
    OutputForm.LATEST: UPSERT_ADDS,
}
"""The columns that each output adds to payload, start and end."""


@dataclass(frozen=True)
class Egress:
    """The form in which a result is written.

    ``columns``: the key of latest rows, and together with start that of an upsert. ``ctis``: a changelog has rows for CTIs, too;
    ``stamped``: its rows carry the instant of the micro-batch that sent them.
    """

    output: OutputForm = OutputForm.FINAL
    columns: tuple[str, ...] = ()
    ctis: bool = False
    stamped: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of an upsert, or a latest row; empty for other outputs."""
        return (*self.columns, "start") if self.output == OutputForm.UPSERT else self.columns


@dataclass(frozen=True, eq=False, repr=False)
class Results(Node):
    """The root over the plans of a program, which all have one time axis; it has no rows itself.

    ``egresses``: the forms in which a stream writes the results; () in a batch.
    """

    inputs: tuple[Node, ...]
    egresses: tuple[Egress, ...] = field(default=(), metadata=ADDED)

    title = "results"

    @classmethod
    def from_plans(cls, plans: Sequence[Node], verb: str = "run_all") -> Self:
        """Return the root over some plans; raise PlanError, worded for ``verb``, if their time axes differ."""
        axes = sorted({plan.schema.axis for plan in plans})
        if len(axes) > 1:
            hint = "Run those on each axis by themselves."
            raise PlanError(verb, "queries on different time axes", f"found {' and '.join(axes)}", hint)
        return cls(tuple(plans))

    def _schema(self) -> Schema:
        return Schema((), self.inputs[0].schema.axis)


def as_results(root: Node) -> Results:
    """Return a node as the root that it is: rewriting a root returns a root, because no law applies to one."""
    assert isinstance(root, Results)
    return root


def without_policies(plan: Results) -> tuple[Results, dict[str, SourcePolicy]]:
    """Return the plans with the default policy at every source, and the sources' own policies by table.

    Raises PlanError if two sources of one table differ.
    """
    sources: dict[str, Source] = {}
    for source in (n for n in nodes(plan) if isinstance(n, Source)):
        if sources.setdefault(source.table, source) != source:
            wrong = f"two sources of one table, {source.shown_name()}"
            raise PlanError("stream", wrong, "they read it in different ways", "Give each its own name=.")

    def visit(node: Node, inputs: list[Node]) -> Node:
        return without_policy(node) if isinstance(node, Source) else node.with_children(inputs)

    return as_results(fold(plan, visit)), {table: source.policy for table, source in sources.items()}


def without_policy(source: Source) -> Source:
    """Return a source with the default policy."""
    return source if source.policy == SourcePolicy() else replace(source, policy=SourcePolicy())


def unsettled_nodes(plan: Results) -> frozenset[str]:
    """Return the digests of the nodes whose rows reach a result of a stream before they are final."""
    pairs = zip(plan.inputs, plan.egresses, strict=True)
    early = [one for one, egress in pairs if egress.output != OutputForm.FINAL]
    return frozenset(node.digest for one in early for node in nodes(one))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result number ``number`` of a program: the rows of ``plan``, written in the form ``egress``.

    ``in_order``: a changelog is written in the order of sync time.
    """

    number: int
    plan: Node
    egress: Egress
    in_order: bool

    def described(self) -> str:
        """Return the output as explain shows it, on one line."""
        match self.egress.output:
            case OutputForm.UPSERT | OutputForm.LATEST:
                return f"{self.egress.output}, by {', '.join(self.egress.key)}"
            case OutputForm.CHANGELOG if self.egress.ctis:
                return f"changelog with CTIs{', by sync time' if self.in_order else ''}, written by one task"
            case OutputForm.CHANGELOG if self.in_order:
                return "changelog, each micro-batch by sync time, written by one task"
        return self.egress.output


def choose_egress(
    plan: Node,
    output: OutputForm,
    *,
    ctis: bool = False,
    stamped: bool = False,
    key: str | Sequence[str] = (),
    verb: str,
) -> Egress:
    """Return the egress of a plan as its user wrote it; raise PlanError if the plan cannot have that output.

    That is so, too, if the plan has a column, in upper or lower case, that the output adds. ``ctis``: the output has CTIs among
    its rows; ``stamped``: rows carry the instant at which they are sent. Only a changelog can have either. ``key``: that of
    latest rows, which only they can have; (): that of the groups.
    """
    for argument, value in (("ctis", ctis), ("stamped", stamped)):
        if not isinstance(value, bool):
            raise PlanError(verb, f"{argument} is True or False", f"found {value!r}")
        if value and output != OutputForm.CHANGELOG:
            raise PlanError(verb, f"{argument}=True goes with output='changelog'", f"found output={output!r}")
    added = (*OUTPUT_COLUMNS[output], STAMP) if stamped else OUTPUT_COLUMNS[output]
    for name in plan.schema.names:
        if name.lower() in added:
            what, hint = f"output={output!r} has a column of that name", "Rename it: q.rename({...})."
            raise PlanError(verb, f"a payload column called {name!r}", what, hint)
    columns = column_names(key, verb, "key")
    if columns and output != OutputForm.LATEST:
        raise PlanError(verb, "key goes with output='latest'", f"found output={output!r}", "Leave it out.")
    for name in columns:
        if name not in plan.schema.names:
            unknown_column(verb, name, plan.schema.names)
    if output == OutputForm.UPSERT:
        columns = _upsert_key(plan, verb)
    elif output == OutputForm.LATEST:
        columns = columns or _latest_key(plan, verb)
    return Egress(output, columns, ctis, stamped)


def _upsert_key(plan: Node, verb: str) -> tuple[str, ...]:
    """Return the groups' columns by their names in the result, none without groups.

    Raises PlanError if rows of a group may share a start.
    """
    key: RowKey = fold(plan, _row_key)
    if key.wrong:
        raise PlanError(verb, "output='upsert' needs a result with one row a group and start", key.wrong, key.hint)
    return key.columns


def _latest_key(plan: Node, verb: str) -> tuple[str, ...]:
    """Return the groups' columns by their names in the result; raise PlanError if there are none."""
    key: RowKey = fold(plan, _row_key)
    if not key.columns:
        hint = "Name its columns beside output, and not in the sink: output='latest', key='zone'."
        raise PlanError(verb, "output='latest' needs a key", key.wrong or "the result has no groups", hint)
    return key.columns


def _row_key(node: Node, inputs: list[RowKey]) -> RowKey:
    """Return the columns that identify a row of a node, from those of its inputs."""
    return node.row_key(inputs) if isinstance(node, Operator) else no_row_key(node.title)


@dataclass(frozen=True, kw_only=True)
class ResultColumns:
    """The columns of a result's output, as Spark's SQL over the rows of a program.

    It holds plain values, because Spark Connect runs the function of a sink on the server, where streamq need not be installed.

    ``title``: errors name its rows by it. ``condition``: the rows of the program that are read, ``source_columns`` what of
    them. ``columns``: those of the output. ``fold``: turns what a task reads into rows of the type ``folded``; None: rows
    are written as they are. ``in_one_task``: one task has all rows. ``together``: one task has all rows of a value of this
    expression, "" leaves them where they are. ``key``: the columns of an upsert's key. ``schema``: that of the output; None for a
    folder of several results. ``output``: its word, "" for such a folder. ``ctis``: a changelog has rows for CTIs, too.
    ``payload``: the names of its columns beside those that the output adds.
    """

    title: str
    condition: str
    source_columns: tuple[str, ...]
    columns: tuple[str, ...]
    fold: Fold | None = None
    folded: StructType | None = None
    in_one_task: bool = False
    together: str = ""
    key: tuple[str, ...] = ()
    schema: StructType | None = None
    output: str = ""
    ctis: bool = False
    payload: tuple[str, ...] = ()

    def read(self, df: DataFrame) -> DataFrame:
        """Return the rows of the output; late rows, reports and rows of other results are left out."""
        df = df.where(self.condition)
        if self.together:
            df = df.repartition(F.expr(self.together))
        df = df.select(*self.source_columns)
        if self.fold is not None:
            assert self.folded is not None
            # PySpark reads a column's name as a path, in which dots and backticks have a meaning: columns go by their numbers
            df = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
            df = (df.repartition(1) if self.in_one_task else df).mapInArrow(self.fold, self.folded)
        return df.selectExpr(*self.columns)


def result_columns(
    result: Result, *, packed: bool, division: str | None = None, preimages: bool = False
) -> ResultColumns:
    """Return the columns of a result's output; ``packed``: its rows come packed, and not as the program's columns.

    Final rows are payload, ``start`` and ``end``, which is NULL for an open end. The other outputs are folded to changes:
    ``kind`` or ``op``, payload, their times, and ``sent`` if they are stamped. A changelog in order of time without CTIs is
    brought into one partition. ``division``: a column ``result`` has this value. ``preimages``: upserts come with the rows that
    they replace or delete.
    """
    schema, out, title = result.plan.schema, result.egress, f"result {result.number + 1}"
    payload = tuple(quote(name) for name in schema.names)
    carried = (SENT,) if out.stamped else ()
    whole = (*payload, *carried, LE, RE, WEIGHT)
    divided = () if division is None else (f"{text_literal(division)} AS {DIVISION}",)
    if not packed and out.output == OutputForm.FINAL:
        end = f"CASE WHEN {RE} != {INFINITY} THEN {RE} END"
        times = (f"{instant_sql(LE, schema.axis)} AS `start`", f"{instant_sql(end, schema.axis)} AS `end`")
        columns = (*divided, *payload, *times)
        return ResultColumns(
            title=title,
            condition=f"{WEIGHT} IS NOT NULL",
            source_columns=whole,
            columns=columns,
            schema=output_schema(result),
            output=str(out.output),
            payload=tuple(schema.names),
        )
    first, names, rows = _output_rows(out, preimages)
    # functions are packed with the code that they need
    ship_runtime()
    packing = _packed_result(result, None, preimages)
    if packed:
        fold = unpacking({result.number: packing}, carried, None)
    else:
        fold = folding(rows, [*schema.names, *carried, LE, RE, WEIGHT])
    fields = [t.StructField(name, t.StringType()) for name in first]
    for column, (_, kind) in zip(schema.fields, packing.payload, strict=True):
        fields.append(t.StructField(column.name, _type_of_arrow(kind, column.type) if packed else column.type))
    fields += [t.StructField(SENT, t.TimestampType())] * out.stamped
    fields += [t.StructField(name, t.LongType()) for name in names]
    return ResultColumns(
        title=title,
        # a text is no part of the code that Spark compiles for the condition, so that all results have one code
        condition=f"cast({RESULT} AS string) = '{result.number}'" if packed else f"{WEIGHT} IS NOT NULL",
        source_columns=(RESULT, ROWS, *carried) if packed else whole,
        columns=(*divided, *first, *payload, *_times(names, schema.axis), *(f"{name} AS {STAMP}" for name in carried)),
        fold=fold,
        folded=t.StructType(fields),
        # with CTIs one task has all rows already
        in_one_task=result.in_order and not out.ctis,
        key=out.key,
        schema=output_schema(result),
        output=str(out.output),
        ctis=out.ctis,
        payload=tuple(schema.names),
    )


def output_schema(result: Result) -> StructType:
    """Return the schema of a result's output, as its user reads it."""
    out, axis = result.egress, result.plan.schema.axis
    first, names, _ = _output_rows(out)
    instant = t.TimestampType() if axis == TIMESTAMP else t.LongType()
    fields = [t.StructField(name, t.StringType()) for name in first]
    fields += [t.StructField(column.name, column.type) for column in result.plan.schema.fields]
    fields += [t.StructField(name, instant) for name in names]
    return t.StructType(fields + [t.StructField(STAMP, t.TimestampType())] * out.stamped)


def _output_rows(
    out: Egress, preimages: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...], Callable[[pa.Table], pa.Table]]:
    """Return the columns of an output before the payload, those of its times, and the function that makes its rows of deltas."""
    match out.output:
        case OutputForm.FINAL:
            return (), ("start", "end"), final_rows
        case OutputForm.CHANGELOG:
            return ("kind",), ("start", "end", "new_end"), changelog_rows
    by_start = out.output == OutputForm.UPSERT
    rows = partial(upsert_rows, key=out.columns, by_start=by_start, preimages=preimages)
    return ("op",), ("start", "end"), rows


def _packed_result(result: Result, division: str | None, preimages: bool = False) -> PackedResult:
    """Return a result as its packed rows are read."""
    payload = tuple((column.name, _type_in_arrow(column.type)) for column in result.plan.schema.fields)
    return PackedResult(payload, _output_rows(result.egress, preimages)[2], division)


def _times(names: Sequence[str], axis: str) -> list[str]:
    """Return the columns of ticks as instants, under the same names."""
    return [f"{instant_sql(quote(name), axis)} AS {quote(name)}" for name in names]


DIVISION = "result"
"""The column by which a folder of several results is divided."""


def folder_columns(results: Mapping[str, Result], verb: str) -> ResultColumns:
    """Return the columns of a folder of several results, by their names: ``result``, and those of all, NULL where one has none.

    Raises PlanError, worded for ``verb``, for results with other outputs than the first, for one whose rows are in order of sync
    time, and for a column that has two types, or one that Parquet files of several results cannot have.
    """
    some = next(iter(results.values()))
    first, times, _ = _output_rows(some.egress)
    kinds: dict[str, tuple[pa.DataType | None, DataType]] = {}
    own_sink = "Give it a sink of its own."
    for name, result in results.items():
        form, wanted = (replace(one.egress, columns=()) for one in (result, some))
        if form != wanted:
            raise PlanError(verb, "results in one folder have one form of output", f"{name!r} has another", own_sink)
        if result.in_order or result.egress.ctis:
            wrong = "a folder of several results has no order of time"
            raise PlanError(verb, wrong, f"{name!r} is a changelog in order of time", own_sink)
        for column in result.plan.schema.fields:
            kind = _type_in_arrow(column.type)
            if kind is None or column.name.lower() in (DIVISION, *first, *times, STAMP):
                wrong = f"a column {column.name!r} in a folder of several results"
                raise PlanError(
                    verb, wrong, f"found it in {name!r}", "Rename or cast it, or give the result a sink of its own."
                )
            if kinds.setdefault(column.name, (kind, column.type))[0] != kind:
                wrong = f"a column {column.name!r} of two types in a folder of several results"
                other = f"{name!r} has {column.type.simpleString()}, another one {kinds[column.name][1].simpleString()}"
                raise PlanError(verb, wrong, other, "Cast or rename it, or give one of them a sink of its own.")
    carried = (SENT,) if some.egress.stamped else ()
    texts, ticks = (RESULT, *first), {name: pa.int64() for name in times}
    stamp = {name: pa.timestamp("us", "UTC") for name in carried}
    schema = pa.schema(
        {**dict.fromkeys(texts, pa.string()), **{n: kind for n, (kind, _) in kinds.items()}, **stamp, **ticks}
    )
    fields = [t.StructField(column.name, _type_of_arrow(column.type, t.StringType())) for column in schema]
    ship_runtime()
    packed = {result.number: _packed_result(result, name) for name, result in results.items()}
    columns = (f"{RESULT} AS {DIVISION}", *first, *map(quote, kinds), *_times(times, some.plan.schema.axis))
    return ResultColumns(
        title="the folder of results",
        condition=f"{RESULT} IN ({', '.join(map(str, packed))})",
        source_columns=(RESULT, ROWS, *carried),
        columns=(*columns, *(f"{name} AS {STAMP}" for name in carried)),
        fold=unpacking(packed, carried, schema),
        folded=t.StructType(fields),
        # a file for each result, and not for each result and task, unless it has many rows
        together=f"IF({INSERTED} + {RETRACTED} < {BATCH_ROWS}, {RESULT}, xxhash64({ROWS}))",
    )


def _type_in_arrow(kind: DataType) -> pa.DataType | None:
    """Return the Arrow type of a column of a result; None for a type that only Spark has."""
    try:
        return arrow_type(kind)
    except NeedsSpark:
        return None


def _type_of_arrow(kind: pa.DataType | None, of_spark: DataType) -> DataType:
    """Return Spark's type for values of an Arrow type: that of the column, but for NULLs inside arrays and structs."""
    return of_spark if kind is None else from_arrow_type(kind)


LATE_ROWS = f"__channel = {LATE}"
"""The rows of a program that are its late output."""


def user_late_rows(df: DataFrame) -> DataFrame:
    """Return the late output, in the columns of LATE_SCHEMA: times and late_by in ticks, payload and group as JSON."""
    return df.where(LATE_ROWS).select("__late.*")
