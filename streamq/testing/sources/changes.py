"""The room of sources of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.sources.changes import DELETES, PREIMAGES, VERSIONS, Changes
from streamq.testing.arrival import OPEN, Item
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column
from streamq.testing.program_text import column_lists, one_or_more, string
from streamq.testing.sources.edges import EdgeItems, events_of_edges
from streamq.testing.sources.room import Draw, SourceRoom


@defines(Changes)
def changes(node: Changes, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the events of changes, see :func:`events_of_edges`; a version is a start, a delete an end."""
    op = f"lower({column(node, node.op)})"
    opens = f"CASE WHEN {op} IN {VERSIONS} THEN true WHEN {op} IN {DELETES} THEN false END"
    return events_of_edges(node, run, opens, f"({op} IN {PREIMAGES}) IS DISTINCT FROM true")


class ChangesRoom(EdgeItems, SourceRoom[Changes]):
    """The room of :class:`Changes`; none are drawn at random, because edges are."""

    kind = Changes
    simplicity = 4
    shapes = ()

    def row(self, source: Changes, item: Item) -> dict[str, Any]:
        return {source.time: item.start, source.op: "u" if item.kind == OPEN else "d"}

    def starts(self, source: Changes, run: Run) -> str:
        op, time = (column(source, name) for name in (source.op, source.time))
        return f"SELECT {time} AS t FROM {run.source(source)} WHERE lower({op}) IN {VERSIONS}"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Changes:
        """Draw a source of changes whose key is the first field; ids do not apply."""
        columns = (Field("t", time), Field("op", t.StringType()), *fields)
        return Changes(name, columns, "t", "op", (fields[0].name,))

    def written(self, source: Changes) -> tuple[str, list[str]]:
        """Return ``sq.changes`` and its arguments as text."""
        arguments = [f"op={string(source.op)}", f"time={string(source.time)}", f"key={one_or_more(source.key)}"]
        return "sq.changes", [*arguments, *column_lists(order_by=source.order_by, beside=source.beside)]
