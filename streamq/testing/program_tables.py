"""Write the sources and tables of a program, and choose the names of variables."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamq.operators import JoinTable, Source
from streamq.plan.node import Node, number_sources
from streamq.plan.schema import Field
from streamq.reading import table_readers
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.kernel import DROP
from streamq.testing.arrival import plain_values
from streamq.testing.program_text import WIDTH, call, free_name, is_name, listed, module_name, string, value
from streamq.testing.progress_policies import leader_of
from streamq.testing.progress_policies import room_of as room_of_progress
from streamq.testing.sources.room import room_of as room_of_source
from streamq.user_code.repository import called_modules

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED = frozenset(
    {"sq", "t", "f", "q", "text", "tables", "dt", "zoneinfo", "Decimal", "col", "lit", "when", *dir(builtins)}
)
"""Names that a program uses itself."""


def variables_of(plans: Sequence[Node]) -> dict[str, str]:
    """Return the names of the variables of a program for tables and sources, by the names that these have in plans."""
    variables: dict[str, str] = {}
    modules = module_names(plans)
    for plan in plans:
        numbered, names = number_sources(plan)
        readers = table_readers(numbered)
        for name, number in names.items():
            if name not in variables:
                variables[name] = variable(readers[number][0], number, {*variables.values(), *modules})
    return variables


def module_names(plans: Iterable[Node]) -> set[str]:
    """Return the names under which a program has the modules that plans call."""
    return {module_name(module) for plan in plans for module in called_modules(plan)}


def variable(reader: Source | JoinTable, table: str, used_names: set[str]) -> str:
    """Return an unused name for a table that a node reads: its own, or that of the kind of source."""
    if is_name(table):
        return free_name(table, used_names | RESERVED)
    return free_name(reader.title.split()[-1] if isinstance(reader, Source) else "table", used_names | RESERVED)


def source_text(node: Source, table: str, variables: Mapping[str, str]) -> str:
    """Return the call that builds a source over a table, with the parts of its policy that are not the default."""
    axis, policy = node.schema.axis, node.policy
    head, own = room_of_source(node).written(node)
    arguments = [table, *own]
    arguments += [] if node.table.startswith("#") else [f"name={string(node.table)}"]
    leader = leader_of(node)
    if leader is not None:
        arguments.append(f"progress=sq.follow({variables[leader]})")
    elif policy.progress != room_of_source(node).usual_progress:
        arguments.append(f"progress={room_of_progress(node).written(policy.progress, axis)}")
    arguments += [] if policy.late is DROP else [f"late={string(policy.late.name)}"]
    arguments += [] if policy.invalid is None else [f"invalid={string(policy.invalid)}"]
    return call(head, arguments)


def table_text(readers: Sequence[Source | JoinTable], table: pa.Table) -> str:
    """Return the columns of a table that nodes read as the text ``t.table(...)``; a long row is on several lines."""
    fields = {f.name: f for reader in readers for f in reader.columns}.values()
    shown = [f"{_quoted(f.name)} {f.type.simpleString()}" for f in fields]
    rows = []
    for row in zip(*[_values(f, table) for f in fields], strict=True):
        line = value(tuple(row))
        rows.append(line if len(line) <= WIDTH else listed([value(v) for v in row], "()"))
    return call("t.table", [string(", ".join(shown)), listed(rows)])


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _values(field: Field, table: pa.Table) -> list[Any]:
    """Return a column's values in Python.

    Instants are all returned as ticks if each is within a second of the epoch, as generated ones are, or if one is beyond the
    range of Python's datetime.
    """
    import pyarrow as pa

    column = table.column(field.name).cast(arrow_type(field.type))
    if not pa.types.is_timestamp(column.type):
        return plain_values(column)
    ticks = column.cast(pa.int64()).to_pylist()
    if all(n is None or abs(n) < 1_000_000 for n in ticks):
        return ticks
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if column.type.tz else None)
    try:
        return [None if n is None else epoch + dt.timedelta(microseconds=n) for n in ticks]
    except OverflowError:
        # beyond the range of Python's datetime
        return ticks
