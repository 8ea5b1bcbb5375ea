"""Outputs of a streaming query: checks which outputs a plan can have, and converts result rows to the user's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamq.choices import OutputForm
from streamq.errors import PlanError
from streamq.operators.operator import Operator, RowKey, no_row_key
from streamq.plan.lowering import instant_sql, ship_runtime
from streamq.plan.node import Node
from streamq.plan.schema import quote
from streamq.plan.tree import fold
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.hosts.envelope import LATE
from streamq.runtime.hosts.result_rows import (
    CHANGELOG_ADDS,
    SENT,
    STAMP,
    UPSERT_ADDS,
    changelog_rows,
    folding,
    upsert_rows,
)
from streamq.time import INFINITY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from streamq.compiler.results import Result

    Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ADDED = {OutputForm.FINAL: (), OutputForm.CHANGELOG: CHANGELOG_ADDS, OutputForm.UPSERT: UPSERT_ADDS}
"""The columns that each output adds to payload, start and end."""


@dataclass(frozen=True)
class Egress:
    """The form in which a result is written.

    ``columns``: the columns that, together with start, are the key of an upsert. ``ctis``: a changelog has rows for CTIs, too;
    ``stamped``: its rows carry the instant of the micro-batch that sent them.
    """

    output: OutputForm = OutputForm.FINAL
    columns: tuple[str, ...] = ()
    ctis: bool = False
    stamped: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of an upsert; empty for other outputs."""
        return (*self.columns, "start") if self.output == OutputForm.UPSERT else ()


def choose_egress(plan: Node, output: OutputForm, *, ctis: bool = False, stamped: bool = False, verb: str) -> Egress:
    """Return the egress of a plan as its user wrote it; raise PlanError if the plan cannot have that output.

    That is so, too, if the plan has a column, in upper or lower case, that the output adds. ``ctis``: the output has CTIs among
    its rows; ``stamped``: rows carry the instant at which they are sent. Only a changelog can have either.
    """
    for argument, value in (("ctis", ctis), ("stamped", stamped)):
        if not isinstance(value, bool):
            raise PlanError(verb, f"{argument} is True or False", f"found {value!r}")
        if value and output != OutputForm.CHANGELOG:
            raise PlanError(verb, f"{argument}=True goes with output='changelog'", f"found output={output!r}")
    added = (*ADDED[output], STAMP) if stamped else ADDED[output]
    for name in plan.schema.names:
        if name.lower() in added:
            what, hint = f"output={output!r} has a column of that name", "Rename it: q.rename({...})."
            raise PlanError(verb, f"a payload column called {name!r}", what, hint)
    return Egress(output, _upsert_key(plan, verb) if output == OutputForm.UPSERT else (), ctis, stamped)


def _upsert_key(plan: Node, verb: str) -> tuple[str, ...]:
    """Return the groups' columns by their names in the result, none without groups.

    Raises PlanError if rows of a group may share a start.
    """
    key: RowKey = fold(plan, _row_key)
    if key.wrong:
        raise PlanError(verb, "output='upsert' needs a result with one row a group and start", key.wrong, key.hint)
    return key.columns


def _row_key(node: Node, inputs: list[RowKey]) -> RowKey:
    """Return the columns that identify a row of a node, from those of its inputs."""
    return node.row_key(inputs) if isinstance(node, Operator) else no_row_key(node.title)


@dataclass(frozen=True, kw_only=True)
class ResultColumns:
    """The columns of a result's output, as Spark's SQL over the rows of a program.

    It holds plain values, because Spark Connect runs the function of a sink on the server, where streamq need not be installed.

    ``column``: the column that holds the result's rows; None: they are the program's. ``payload``: the columns that are read
    beside times, weight and the columns ``carried``. ``columns``: those of the output. ``fold``: turns the deltas of a task into
    rows of the type ``folded``; None: rows are written as they are. ``in_one_task``: one task has all rows.
    """

    column: str | None
    payload: tuple[str, ...]
    columns: tuple[str, ...]
    fold: Fold | None = None
    folded: StructType | None = None
    in_one_task: bool = False
    carried: tuple[str, ...] = ()

    def read(self, df: DataFrame) -> DataFrame:
        """Return the rows of the result; late rows, reports and rows of other results have no weight and are left out."""
        if self.column is not None:
            df = df.select(f"{self.column}.*", *self.carried)
        df = df.where(f"{WEIGHT} IS NOT NULL")
        if self.fold is not None:
            assert self.folded is not None
            df = df.select(*self.payload, *self.carried, LE, RE, WEIGHT)
            # PySpark reads a column's name as a path, in which dots and backticks have a meaning: columns go by their numbers
            df = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
            df = (df.repartition(1) if self.in_one_task else df).mapInArrow(self.fold, self.folded)
        return df.selectExpr(*self.columns)


def result_columns(result: Result) -> ResultColumns:
    """Return the columns of a result's output.

    Final rows are payload, ``start`` and ``end``, which is NULL for an open end. The other outputs are folded to changes:
    ``kind`` or ``op``, payload, their times, and ``sent`` if they are stamped. A changelog in order of time without CTIs is
    brought into one partition.
    """
    from pyspark.sql import types as t

    schema, out = result.plan.schema, result.egress
    payload = tuple(quote(name) for name in schema.names)
    if out.output == OutputForm.FINAL:
        end = f"CASE WHEN {RE} != {INFINITY} THEN {RE} END"
        times = (f"{instant_sql(LE, schema.axis)} AS `start`", f"{instant_sql(end, schema.axis)} AS `end`")
        return ResultColumns(column=result.column, payload=payload, columns=(*payload, *times))
    first, names = (
        ("kind", ["start", "end", "new_end"]) if out.output == OutputForm.CHANGELOG else ("op", ["start", "end"])
    )
    fields = [t.StructField(field.name, field.type) for field in schema.fields]
    carried = (SENT,) if out.stamped else ()
    fields += [t.StructField(SENT, t.TimestampType())] * out.stamped
    whole = [t.StructField(first, t.StringType()), *fields, *(t.StructField(n, t.LongType()) for n in names)]
    # it is packed with the code that it needs
    ship_runtime()
    rows = changelog_rows if out.output == OutputForm.CHANGELOG else partial(upsert_rows, key=out.columns)
    return ResultColumns(
        column=result.column,
        payload=payload,
        columns=(
            first,
            *payload,
            *(f"{instant_sql(quote(n), schema.axis)} AS {quote(n)}" for n in names),
            *(f"{name} AS {STAMP}" for name in carried),
        ),
        fold=folding(rows, [*schema.names, *carried, LE, RE, WEIGHT]),
        folded=t.StructType(whole),
        # with CTIs one task has all rows already
        in_one_task=result.in_order and not out.ctis,
        carried=carried,
    )


def user_late_rows(df: DataFrame) -> DataFrame:
    """Return the late output, in the columns of LATE_SCHEMA: times and late_by in ticks, payload and group as JSON."""
    return df.where(f"__channel = {LATE}").select("__late.*")
