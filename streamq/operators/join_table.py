"""JoinTable: every event with the matching rows of a static table; lifetimes stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from streamq.errors import AmbiguousColumn, PlanError, sentence
from streamq.operators.join import INNER, LEFT, On, check_pairs, check_suffixes, pairs
from streamq.operators.tables import source_name, static_table
from streamq.plan.node import Node, node
from streamq.plan.schema import Field, Schema, check_names, quote
from streamq.plan.verbs import Verbs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.operators.batch_run import BatchRun


@node
class JoinTable(Node):
    """``table`` has ``columns``; ``on`` are pairs (payload column, table column), NULL equals nothing; ``how``: inner, left.

    ``names`` are the table's columns that the result has, and what they are called there.

    CTI: c
    Final: rows of final events
    State: none; the table is read once
    Cost: a hash join with the table
    """

    input: Node
    table: str
    columns: tuple[Field, ...]
    on: tuple[tuple[str, str], ...]
    how: str
    names: tuple[tuple[str, str], ...]

    title = "join_table"
    progress = "c"

    def _schema(self) -> Schema:
        source = self.input.schema
        table = Schema(self.columns, source.axis)
        check_pairs(self.on, source, table, "join_table")
        return source.with_fields([*source.fields, *(Field(to, table.type_of(n)) for n, to in self.names)])

    def detail(self) -> str:
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in self.on)
        return f"{self.table.removeprefix('#')} on {keys}" + ("" if self.how == INNER else f", {self.how}")


def batch(node: JoinTable, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """Spark's own join."""
    names = [*(quote(n) for n in inputs[0].columns), *(quote(to) for _, to in node.names)]
    return looked_up(node, inputs[0], run.tables[node.table]).select(*names)


def looked_up(
    node: JoinTable, df: DataFrame, table: DataFrame, matched: str | None = None, keys: Sequence[str] = ()
) -> DataFrame:
    """``df`` beside the table's rows with equal keys; ``matched`` names a flag and keeps those without one in any case.

    keys: the columns of ``df`` to compare, unless the node's.
    """
    from pyspark.sql import functions as F

    theirs = [F.col(quote(b)).alias(f"__j{i}") for i, (_, b) in enumerate(node.on)]
    made = table.select(*theirs, *(F.col(quote(n)).alias(to) for n, to in node.names))
    if matched is not None:
        made = made.withColumn(matched, F.lit(True))
    ours = keys or [a for a, _ in node.on]
    on = [F.col(quote(a)) == F.col(f"__j{i}") for i, a in enumerate(ours)]
    joined = df.join(made, on, "inner" if node.how == INNER and matched is None else "left")
    return joined.drop(*(f"__j{i}" for i in range(len(node.on))))


class JoinTableVerbs(Verbs):
    """``join_table``."""

    def join_table(
        self,
        table: Any,
        on: On,
        how: str = INNER,
        *,
        suffixes: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> Self:
        """Each event with the rows of a static DataFrame whose ``on`` columns are equal (NULL equals nothing).

        ``table``: a batch DataFrame (or an Arrow table, for queries that run in-process). ``how``: "inner" or "left" (with
        NULLs where no row matches). ``suffixes[1]`` is added to columns of the table whose names the stream has already.
        Raises UnknownColumn, TypeMismatch, AmbiguousColumn. (SEMANTICS section 2.)

        ::

            events  2 [1,5)   table  1 Ulm  2 Bonn
            result  2 Bonn [1,5)

        >>> import pyarrow as pa
        >>> import streamq as sq
        >>> zones = pa.table({"zone": [1, 2], "city": ["Ulm", "Bonn"]})
        >>> sq.events([(1, 5, {"zone": 2})]).join_table(zones, on="zone").show()
        zone  city  start  end
           2  Bonn      1    5
        """
        static = static_table(table)
        columns = static.columns
        if how not in (INNER, LEFT):
            raise PlanError(sentence("join_table", f"no kind {how!r}", f"there are: {INNER}, {LEFT}"))
        keys = pairs(on, "join_table")
        if not keys:
            raise PlanError(sentence("join_table", "no key", "", 'Name the columns that must be equal: on="zone".'))
        check_suffixes(suffixes, "join_table")
        check_pairs(keys, self.plan.schema, Schema(columns, self.plan.schema.axis), "join_table")
        shared = {b for a, b in keys if a == b}
        ours = {n.lower() for n in self.plan.schema.names}
        names = []
        for f in columns:
            if f.name in shared:
                continue
            clash = f.name.lower() in ours
            if clash and suffixes is None:
                raise AmbiguousColumn(
                    sentence(
                        "join_table",
                        f"column {f.name!r} is in the stream and in the table",
                        "",
                        'Bring them apart with suffixes=("", "_t"), or rename one first.',
                    )
                )
            names.append((f.name, f.name + suffixes[1] if clash and suffixes else f.name))
        check_names([*self.plan.schema.names, *(to for _, to in names)], "join_table")
        label = source_name(name)
        joined = JoinTable(self.plan, label, columns, keys, how, tuple(names))
        derived = self._derive(joined)
        derived.tables = {**derived.tables, label: static.rows}
        return derived
