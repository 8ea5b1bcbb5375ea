"""Queries read back from their JSON, over tables given anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamq.compiler.plan_json import from_text, plan_from_json
from streamq.errors import PlanError, TypeMismatch, nearest, sentence, unknown_column
from streamq.operators import JoinTable, Source
from streamq.plan.node import Node, fold, nodes, renamed
from streamq.plan.schema import INTERVAL, Field
from streamq.sources import source_name, static_table, taken_in
from streamq.stream import Stream


def from_json(text: str, /, tables: Mapping[str, Any] | None = None, **named: Any) -> Stream:
    """The query that :meth:`to_json` wrote, over these tables: one for each source and static table, by its name.

    A table is what the source took: a DataFrame or an Arrow table, with the columns that the source had, of the same types
    (others may stand beside them). Or it is a stream with the source's payload and time axis, which then stands in its
    place, policies and all: so ``sq.changes`` and ``sq.events`` are given, and so one query goes on where another ends.
    ``tables`` is for names that are no identifiers: sources without a name are called "#1", "#2", ..., in the order in
    which the text lists them. Nothing in the text is run or imported.

    Raises PlanError for a text that is no plan, is of another version or has been changed, and for missing and surplus
    tables; UnknownColumn and TypeMismatch for a table or a stream that does not fit.

    >>> import pyarrow as pa
    >>> import streamq as sq
    >>> trips = sq.points(pa.table({"at": [1, 2], "fare": [3, 8]}), time="at", name="trips")
    >>> text = trips.where(sq.col("fare") > 5).to_json()
    >>> sq.from_json(text, trips=pa.table({"at": [4, 7], "fare": [9, 4]})).show()
    fare  start  end
       9      4    5
    """
    plan = plan_from_json(from_text(text))
    if tables is not None and not isinstance(tables, Mapping):
        raise PlanError(sentence("from_json", "tables are given by name", f"found {tables!r}", "As {'trips': df}."))
    twice = sorted(named.keys() & (tables or {}).keys())
    if twice:
        raise PlanError(sentence("from_json", f"table {twice[0]!r} twice", "once in tables, once by its name"))
    given = {**(tables or {}), **named}
    wanted = _tables(plan)
    for name in wanted:
        if name not in given:
            hint = f"from_json(text, {name}=df)" if name.isidentifier() else f"from_json(text, {{{name!r}: df}})"
            there = ", ".join(given) or "none"
            raise PlanError(sentence("from_json", f"no table {name!r}", f"there are: {there}", f"Give it: {hint}."))
    for name in given:
        if name not in wanted:
            there = f"there are: {', '.join(wanted)}"
            raise PlanError(
                sentence("from_json", f"the query has no table {name!r}", there, nearest(name, list(wanted)))
            )
    # a number is a place in the text; in this process it may be another source's
    names = {name: source_name(None) if name.startswith("#") else name for name in wanted}
    streams = {names[name]: held for name, held in given.items() if isinstance(held, Stream)}
    held = {names[name]: _fitting(name, given[name], readers) for name, readers in wanted.items()}
    made = Stream(renamed(plan, names), {name: table for name, table in held.items() if name not in streams})
    return made._derive(_put(made.plan, streams), *streams.values())


def _put(plan: Node, streams: Mapping[str, Stream]) -> Node:
    """The plan with streams in the place of sources."""

    def visit(found: Node, inputs: list[Node]) -> Node:
        if isinstance(found, Source) and found.table in streams:
            return streams[found.table].plan
        return (
            found if all(a is b for a, b in zip(found.children, inputs, strict=True)) else found.with_children(inputs)
        )

    return fold(plan, visit)


def _tables(plan: Node) -> dict[str, list[Source | JoinTable]]:
    """The nodes that read each table."""
    found: dict[str, list[Source | JoinTable]] = {}
    for reader in nodes(plan):
        if isinstance(reader, Source | JoinTable):
            found.setdefault(reader.table, []).append(reader)
    return found


def _fitting(name: str, given: Any, readers: list[Source | JoinTable]) -> Any:
    """The table, where it has the columns that its readers want."""
    verb = f"from_json: table {name!r}"
    if isinstance(given, Stream):
        for reader in readers:
            if isinstance(reader, JoinTable):
                raise PlanError(sentence(verb, "a stream", "a table is static", "Join streams with join(...)."))
            ours, theirs = (s.with_shape(INTERVAL).describe() for s in (given.schema, reader.schema))
            if ours != theirs:
                wrong = "a stream of other columns or another time axis"
                raise TypeMismatch(sentence(verb, wrong, f"found ({ours}) instead of ({theirs})", "Use select first."))
        return given
    fields: tuple[Field, ...]
    if any(isinstance(reader, JoinTable) for reader in readers):
        _, fields, held = static_table(given, None, verb)
    else:
        fields, held = taken_in(given, verb)
    there = {f.name: f.type for f in fields}
    for wanted in (f for reader in readers for f in reader.columns):
        if wanted.name not in there:
            unknown_column(verb, wanted.name, list(there), lifetime=False)
        found = there[wanted.name].simpleString()
        if found != wanted.type.simpleString():
            wrong = f"column {wanted.name!r} is of another type"
            was = wanted.type.simpleString()
            raise TypeMismatch(sentence(verb, wrong, f"found {found} instead of {was}", "Cast it first."))
    return held


__all__ = ["from_json"]
