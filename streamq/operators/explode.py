"""Explode: makes a row for each element of an array column; lifetimes stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.errors import TypeMismatch, sentence
from streamq.operators.operator import RowKey
from streamq.operators.step import SparkRows, Step
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, node
from streamq.plan.own_names import shown_name
from streamq.plan.schema import Field, Schema, check_names
from streamq.plan.verbs import Verbs

if TYPE_CHECKING:
    from streamq.operators.step import ArrowRows


@node
class Explode(Step):
    """Replaces the array in ``column`` by each of its elements, a row per element; an empty array or NULL gives no row.

    ``flatten``: the elements are structs, and their fields become columns instead.
    """

    input: Node
    column: str
    flatten: bool = False

    title = "explode"
    may_drop = multiplies = True

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cost="a row an element",
        )

    def _schema(self) -> Schema:
        """Return the columns with elements in place of the array or, with ``flatten``, with their fields at the end instead.

        Raises UnknownColumn, TypeMismatch for a column that is no array (with ``flatten``: of structs), and the errors of
        ``check_names``.
        """
        source = self.input.schema
        kind = source.require(self.column, "explode")
        if not isinstance(kind, t.ArrayType):
            raise TypeMismatch(sentence("explode", "not an array", f"column {self.column!r} is {kind.simpleString()}"))
        elements = [Field(self.column, kind.elementType)]
        if self.flatten:
            if not isinstance(kind.elementType, t.StructType):
                observed = f"column {self.column!r} is {kind.simpleString()}"
                raise TypeMismatch(sentence("explode", "flatten is for arrays of structs", observed))
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


class ExplodeVerbs(Verbs):
    """``explode``."""

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
