"""Outputs of a streaming query: checks which outputs a plan can have, and converts result rows to the user's columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamq.choices import OutputForm
from streamq.errors import PlanError, sentence
from streamq.operators.operator import Operator
from streamq.operators.row_key import RowKey, no_row_key
from streamq.plan.folding import fold
from streamq.plan.lowering import instant, map_in_arrow, ship_runtime
from streamq.plan.node import Node
from streamq.plan.schema import quote
from streamq.runtime.envelope import LATE
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.result_rows import CHANGELOG_ADDS, UPSERT_ADDS, changelog_rows, folding, upsert_rows
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.compiler.results import Result

ADDED = {OutputForm.FINAL: (), OutputForm.CHANGELOG: CHANGELOG_ADDS, OutputForm.UPSERT: UPSERT_ADDS}
"""The columns that each output adds to payload, start and end."""


@dataclass(frozen=True)
class Egress:
    """The form in which a result is written.

    ``columns``: the columns that, together with start, are the key of an upsert. ``ctis``: a changelog has rows for CTIs, too.
    """

    output: OutputForm = OutputForm.FINAL
    columns: tuple[str, ...] = ()
    ctis: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of an upsert; empty for other outputs."""
        return (*self.columns, "start") if self.output == OutputForm.UPSERT else ()


def choose_egress(plan: Node, output: OutputForm, *, ctis: bool = False, verb: str) -> Egress:
    """Return the egress of a plan as its user wrote it; raise PlanError if the plan cannot have that output.

    That is so, too, if the plan has a column, in upper or lower case, that the output adds. ``ctis``: the output has CTIs among
    its rows, which only a changelog can have.
    """
    if ctis and output != OutputForm.CHANGELOG:
        raise PlanError(sentence(verb, "ctis=True goes with output='changelog'", f"found output={output!r}"))
    for name in plan.schema.names:
        if name.lower() in ADDED[output]:
            what, hint = f"output={output!r} has a column of that name", "Rename it: q.rename({...})."
            raise PlanError(sentence(verb, f"a payload column called {name!r}", what, hint))
    return Egress(output, _upsert_key(plan, verb) if output == OutputForm.UPSERT else (), ctis)


def _upsert_key(plan: Node, verb: str) -> tuple[str, ...]:
    """Return the groups' columns by their names in the result, none without groups.

    Raises PlanError if rows of a group may share a start.
    """
    key: RowKey = fold(plan, _row_key)
    if key.wrong:
        raise PlanError(
            sentence(verb, "output='upsert' needs a result with one row a group and start", key.wrong, key.hint)
        )
    return key.columns


def _row_key(node: Node, inputs: list[RowKey]) -> RowKey:
    """Return the columns that identify a row of a node, from those of its inputs."""
    return node.row_key(inputs) if isinstance(node, Operator) else no_row_key(node.title)


def user_rows(df: DataFrame, result: Result) -> DataFrame:
    """Return the rows of a result in the columns of its output.

    Final rows are payload, ``start`` and ``end``, which is NULL for an open end. The other outputs are folded to changes:
    ``kind`` or ``op``, payload, and their times. Late rows, reports and rows of other results have no weight and are left out.
    A changelog in order of time without CTIs is brought into one partition.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as t

    schema, out = result.plan.schema, result.egress
    if result.column is not None:
        df = df.select(f"{result.column}.*")
    df = df.where(F.col(WEIGHT).isNotNull())
    payload = [F.col(quote(n)) for n in schema.names]
    if out.output == OutputForm.FINAL:
        end = F.when(F.col(RE) != INFINITY, F.col(RE))
        start, stop = instant(F.col(LE), schema.axis).alias("start"), instant(end, schema.axis).alias("end")
        return df.select(*payload, start, stop)
    # Spark may run this in a sink's function, where nothing else has shipped the runtime to the executors
    ship_runtime()
    df = df.select(*payload, LE, RE, WEIGHT)
    fields = [t.StructField(f.name, f.dataType) for f in df.schema.fields[: len(payload)]]
    first, times = (
        ("kind", ["start", "end", "new_end"]) if out.output == OutputForm.CHANGELOG else ("op", ["start", "end"])
    )
    whole = [t.StructField(first, t.StringType()), *fields, *(t.StructField(n, t.LongType()) for n in times)]
    # with CTIs one task has all rows already
    df = df.repartition(1) if result.in_order and not out.ctis else df
    rows = changelog_rows if out.output == OutputForm.CHANGELOG else partial(upsert_rows, key=out.columns)
    df = map_in_arrow(df, folding(rows), t.StructType(whole))
    return df.select(first, *payload, *(instant(F.col(n), schema.axis).alias(n) for n in times))


def user_late_rows(df: DataFrame) -> DataFrame:
    """Return the late output, in the columns of LATE_SCHEMA: times and late_by in ticks, payload and group as JSON."""
    from pyspark.sql import functions as F

    return df.where(F.col("__channel") == LATE).select("__late.*")


__all__ = ["ADDED", "Egress", "choose_egress", "user_late_rows", "user_rows"]
