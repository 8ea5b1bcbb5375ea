"""Explode and JoinTable make several rows of one: one for each element of an array, or for each matching row of a static table.

Lifetimes stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import JoinKind, check_word
from streamq.connectors.connector import Connector
from streamq.errors import AmbiguousColumn, PlanError, TypeMismatch, kind_of
from streamq.operators.input_table import source_name, static_table
from streamq.operators.join_arguments import On, check_pairs, check_suffixes, equality_pairs
from streamq.operators.operator import RowKey
from streamq.operators.step import ArrowRows, SparkRows, Step, StepEffect
from streamq.plan.footprint import Footprint
from streamq.plan.node import ADDED, Node, Verbs, node
from streamq.plan.schema import Field, Schema, check_names, key_types, quote, show_equality, shown_name
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import expand_ranges
from streamq.runtime.arrow.overlap import matched_codes
from streamq.runtime.arrow.values import Ints
from streamq.time import TIMESTAMP, Duration, show_duration, ticks


@node
class Explode(Step):
    """Replaces the array in ``column`` by each of its elements, a row per element; an empty array or NULL gives no row.

    ``flatten``: the elements are structs, and their fields become columns instead.
    """

    input: Node
    column: str
    flatten: bool = False

    title = "explode"
    effect = StepEffect(drops=True, multiplies=True)

    footprint = Footprint(cost="a row an element")

    def _schema(self) -> Schema:
        """Return the columns with elements in place of the array or, with ``flatten``, with their fields at the end instead.

        Raises UnknownColumn, TypeMismatch for a column that is no array (with ``flatten``: of structs), and the errors of
        ``check_names``.
        """
        source = self.input.schema
        kind = source.require(self.column, "explode")
        if not isinstance(kind, t.ArrayType):
            raise TypeMismatch("explode", "not an array", f"column {self.column!r} is {kind.simpleString()}")
        elements = [Field(self.column, kind.elementType)]
        if self.flatten:
            if not isinstance(kind.elementType, t.StructType):
                observed = f"column {self.column!r} is {kind.simpleString()}"
                raise TypeMismatch("explode", "flatten is for arrays of structs", observed)
            elements = [Field(f.name, f.dataType) for f in kind.elementType.fields]
        others = [f for f in source.fields if f.name != self.column]
        fields = (
            [*others, *elements]
            if self.flatten
            else [elements[0] if f.name == self.column else f for f in source.fields]
        )
        check_names([f.name for f in fields if not f.name.startswith("__")], "explode")
        return source.with_fields(fields)

    @property
    def element_columns(self) -> tuple[str, ...]:
        """The columns that hold the elements or, with ``flatten``, their fields."""
        kind = self.input.schema.type_of(self.column)
        assert isinstance(kind, t.ArrayType)
        if self.flatten and isinstance(kind.elementType, t.StructType):
            return tuple(kind.elementType.names)
        return (self.column,)

    def detail(self) -> str:
        return f"{shown_name(self.column)}{', flatten' if self.flatten else ''}"

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        return inputs[0].of_elements(self.column) or super().row_key(inputs)

    def on_spark(self, rows: SparkRows) -> SparkRows:
        """Explode by Spark's own function."""
        return rows.explode(self.column, self.flatten, self.schema)

    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        """Repeat each row for the elements of its array, and set the elements beside it."""
        lists = rows.payload[self.column]
        beside = rows.take(pc.list_parent_indices(lists).cast(pa.int64()))
        elements = pc.list_flatten(lists)
        if not self.flatten:
            return beside.with_payload({**beside.payload, self.column: elements}, self.schema)
        fields = dict(zip([f.name for f in elements.type], elements.flatten(), strict=True))
        return beside.with_payload({n: fields.get(n, beside.payload.get(n)) for n in self.schema.names}, self.schema)


EACH_BATCH = "each batch"
"""The word for a table that is read again in each micro-batch."""


def check_refreshable(rows: Any, verb: str) -> None:
    """Raise PlanError for rows that cannot be read again: those of anything but a connector."""
    if not isinstance(rows, Connector):
        hint = "Say where its rows are, as sq.files(...), or leave refresh out."
        raise PlanError(verb, "refresh is of a table that is read again", f"found {kind_of(rows)}", hint)


def _refresh_ticks(refresh: Duration, rows: Any) -> int:
    """Return the microseconds after which rows are read again, 0 for each micro-batch.

    Raises PlanError for rows that cannot be read again, and for a negative time, TimeError for what is no time.
    """
    check_refreshable(rows, "join_table")
    names_batch = "batch" in str(refresh).lower()
    every = 0 if names_batch else ticks(refresh, TIMESTAMP, "join_table")
    if every < 0 or (names_batch and refresh != EACH_BATCH):
        raise PlanError("join_table", f"refresh is {EACH_BATCH!r} or a duration", f"found {refresh!r}")
    return every


@node
class JoinTable(Step):
    """Joins each event of ``input`` with the rows of ``table``, which has ``columns``, that are equal to it in ``on``.

    ``on`` are pairs (payload column, table column); NULL equals nothing. ``how``: inner or left. ``names`` are pairs of a table's
    column and its name in the result. ``refresh``: the microseconds after which a stream reads the table again, None for never.
    """

    input: Node
    table: str
    columns: tuple[Field, ...]
    on: tuple[tuple[str, str], ...]
    how: JoinKind
    names: tuple[tuple[str, str], ...]
    refresh: int | None = field(default=None, metadata=ADDED)

    title = "join_table"
    effect = StepEffect(drops=True, multiplies=True)

    @property
    def footprint(self) -> Footprint:
        read = "is read once" if self.refresh is None else "is read again"
        return Footprint(keeps=f"none; the table {read}", cost="a hash join with the table")

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
        kind = "" if self.how == JoinKind.INNER else f", {self.how}"
        every = show_duration(self.refresh, TIMESTAMP) if self.refresh else EACH_BATCH
        return f"{self.table.removeprefix('#')} on {keys}{kind}{'' if self.refresh is None else f', refresh={every}'}"

    def on_spark(self, rows: SparkRows) -> SparkRows:
        """Join by Spark's own join on equal ``on`` columns; a left join keeps rows without a match, with NULLs."""
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


class ExpansionVerbs(Verbs):
    """``explode`` and ``join_table``."""

    def explode(self, column: str, *, flatten: bool = False) -> Self:
        """Replace each event by one event per element of an array column; an empty array or NULL gives no event.

        The element replaces the array; with ``flatten`` the elements must be structs, and their fields become columns after
        the others. Lifetimes stay as they are. Raises UnknownColumn, TypeMismatch for a column that is no such array,
        AmbiguousColumn.

        ::

            events  1, [a, b] [1,5)  2, [] [3,4)
            result  1, a [1,5)  1, b [1,5)

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"n": 1, "tags": ["a", "b"]}), (3, 4, {"n": 2, "tags": []})])
        >>> s.explode("tags").show()
        n  tags  start  end
        1     a      1    5
        1     b      1    5
        """
        return self._derive(Explode(self.plan, column, flatten))

    def join_table(
        self,
        table: Any,
        on: On,
        how: str = JoinKind.INNER,
        *,
        suffixes: tuple[str, str] | None = None,
        refresh: Duration | None = None,
        name: str | None = None,
    ) -> Self:
        """Join each event with the rows of a static table that have equal ``on`` columns (NULL equals nothing).

        ``table``: a batch DataFrame, rows that are offered as Arrow, or ``sq.files(...)``. ``how``: "inner" or "left", which
        keeps events without a match, with NULLs. ``suffixes[1]`` is appended to table columns whose names the stream has; a key
        column of one name on both sides is there once, as the stream's. Raises UnknownColumn, TypeMismatch, AmbiguousColumn,
        PlanError without a key, SourceError for a table that is streaming or none.

        A stream has the table as it was at the start. ``refresh``, of a connector that is read without Spark: "each batch", or a
        duration, ``"10 minutes"``, after which a micro-batch reads the table again. Which rows an event meets then depends on
        when it is processed, and a micro-batch that is repeated after a crash may meet others. (docs/connectors.md)

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
            raise PlanError("join_table", "no key", "", 'Name the columns that must be equal: on="zone".')
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
                hint = 'Bring them apart with suffixes=("", "_t"), or rename one first.'
                raise AmbiguousColumn("join_table", f"column {f.name!r} is in the stream and in the table", "", hint)
            names.append((f.name, f.name + suffixes[1] if clash and suffixes else f.name))
        check_names([*self.plan.schema.names, *(to for _, to in names)], "join_table")
        label = source_name(name)
        every = None if refresh is None else _refresh_ticks(refresh, static.rows)
        joined = JoinTable(self.plan, label, columns, keys, JoinKind(how), tuple(names), every)
        derived = self._derive(joined)
        derived.tables = {**derived.tables, label: static.rows}
        return derived
