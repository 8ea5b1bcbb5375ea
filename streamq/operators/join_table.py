"""JoinTable: joins each event with the matching rows of a static table; lifetimes stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import JoinKind, check_word
from streamq.errors import AmbiguousColumn, PlanError, sentence
from streamq.operators.input_table import source_name, static_table
from streamq.operators.join_arguments import On, check_pairs, check_suffixes, equality_pairs
from streamq.operators.step import SparkRows, Step
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, node
from streamq.plan.own_names import show_equality
from streamq.plan.schema import Field, Schema, check_names, key_types, quote
from streamq.plan.verbs import Verbs
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import expand_ranges
from streamq.runtime.arrow.overlap import matched_codes
from streamq.runtime.arrow.values import Ints

if TYPE_CHECKING:
    from streamq.operators.step import ArrowRows


@node
class JoinTable(Step):
    """Joins each event of ``input`` with the rows of ``table``, which has ``columns``, that are equal to it in ``on``.

    ``on`` are pairs (payload column, table column); NULL equals nothing. ``how``: inner or left. ``names`` are pairs of a table's
    column and its name in the result.
    """

    input: Node
    table: str
    columns: tuple[Field, ...]
    on: tuple[tuple[str, str], ...]
    how: JoinKind
    names: tuple[tuple[str, str], ...]

    title = "join_table"
    may_drop = multiplies = True

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            keeps="none; the table is read once",
            cost="a hash join with the table",
        )

    def _schema(self) -> Schema:
        """Return the stream's columns, then the table's by their new ``names``, which the verb has checked for clashes.

        Raises UnknownColumn or TypeMismatch for bad ``on``.
        """
        source = self.input.schema
        table = Schema(self.columns, source.axis)
        check_pairs(self.on, source, table, "join_table")
        return source.with_fields([*source.fields, *(Field(to, table.type_of(n)) for n, to in self.names)])

    def detail(self) -> str:
        keys = ", ".join(show_equality(a, b) for a, b in self.on)
        return f"{self.table.removeprefix('#')} on {keys}" + ("" if self.how == JoinKind.INNER else f", {self.how}")

    def on_spark(self, rows: SparkRows) -> SparkRows:
        """Join by Spark's own join on equal ``on`` columns; a left join keeps rows without a match, with NULLs."""
        from pyspark.sql import functions as F

        keys = [F.col(quote(theirs)).alias(f"__j{i}") for i, (_, theirs) in enumerate(self.on)]
        table = rows.tables[self.table].select(*keys, *(F.col(quote(n)).alias(to) for n, to in self.names))
        on = [(ours, f"__j{i}") for i, (ours, _) in enumerate(self.on)]
        return rows.join(table, on, self.how == JoinKind.INNER, self.schema)

    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        """Number the keys of both sides, sort the table by number, and look up each event's range of table rows.

        In a left join the events without a match come last, with NULLs.
        """
        table = rows.tables[self.table]
        mine, others = self._codes(rows, table)
        order = np.argsort(others, kind="stable")
        low = np.searchsorted(others[order], mine, "left")
        high = np.searchsorted(others[order], mine, "right") - 1
        events, places = expand_ranges(low, np.where(mine >= 0, high, low - 1))
        matches = pa.array(order[places])
        if self.how != JoinKind.INNER:
            alone = np.setdiff1d(np.arange(len(mine)), events)
            events = np.concatenate([events, alone])
            matches = pa.concat_arrays([matches, pa.nulls(len(alone), pa.int64())])
        beside = rows.take(pa.array(events))
        theirs = {to: table.column(name).combine_chunks().take(matches) for name, to in self.names}
        return beside.with_payload({**beside.payload, **theirs}, self.schema)

    def _codes(self, rows: ArrowRows, table: pa.Table) -> tuple[Ints, Ints]:
        """Return the keys of events and of table rows as numbers, equal if the keys are equal; -1 for a NULL."""
        ours, theirs = {}, {}
        kinds = key_types(self.input.schema, Schema(self.columns, self.schema.axis), self.on)
        for i, ((mine, other), common) in enumerate(zip(self.on, kinds, strict=True)):
            ours[f"k{i}"] = _normalize_key(rows.payload[mine], arrow_type(common))
            theirs[f"k{i}"] = _normalize_key(table.column(other).combine_chunks(), arrow_type(common))
        return matched_codes(pa.table(ours), pa.table(theirs), [(name, name) for name in ours])


def _normalize_key(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a key column in the type ``kind``, in which -0.0 is 0.0: the two are one key."""
    # as Spark rounds a bigint beyond 2^53 to a double
    values = column.cast(kind, safe=not pa.types.is_floating(kind))
    return pc.add(values, pa.scalar(0.0, kind)) if pa.types.is_floating(kind) else values


class JoinTableVerbs(Verbs):
    """``join_table``."""

    def join_table(
        self,
        table: Any,
        on: On,
        how: str = JoinKind.INNER,
        *,
        suffixes: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> Self:
        """Join each event with the rows of a static table that have equal ``on`` columns (NULL equals nothing).

        ``table``: a batch DataFrame, or an Arrow table for queries that run in-process. ``how``: "inner" or "left", which
        keeps events without a match, with NULLs. ``suffixes[1]`` is appended to table columns whose names the stream has; a key
        column of one name on both sides is there once, as the stream's. Raises UnknownColumn, TypeMismatch, AmbiguousColumn,
        PlanError without a key, SourceError for a table that is streaming or none.

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
        check_word(how, (JoinKind.INNER, JoinKind.LEFT), "how", "join_table")
        keys = equality_pairs(on, "join_table")
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
        joined = JoinTable(self.plan, label, columns, keys, JoinKind(how), tuple(names))
        derived = self._derive(joined)
        derived.tables = {**derived.tables, label: static.rows}
        return derived
