"""The base of the rooms of sources: columns of raw rows, which rows are events, and their payload with its keys."""

from __future__ import annotations

from streamq.choices import Invalid
from streamq.errors import InvalidEvent, sentence
from streamq.operators import Source
from streamq.testing.oracle.expressions import keys, listed, own_keys, payload
from streamq.testing.oracle.run import Run
from streamq.time import INFINITY, MINUS_INFINITY


def column(node: Source, name: str) -> str:
    """A column of a source's rows (:meth:`Run.source`) by its name."""
    return f"x{[f.name for f in node.columns].index(name)}"


def payload_of(node: Source) -> list[str]:
    return [f"{column(node, f.name)} AS c{i}" for i, f in enumerate(node.payload)]


def no_start(time: str, last: int = INFINITY - 1) -> str:
    """Branches of CASE that say why an instant is no start: -2^63 is none, 2^63 - 1 the end of time."""
    return (
        f"WHEN {time} IS NULL THEN 'null start' WHEN {time} = {MINUS_INFINITY} THEN 'a start before time begins' "
        f"WHEN {time} > {last} THEN 'a start where time ends'"
    )


def events_of(node: Source, run: Run, query: str) -> str:
    """What FROM reads of the rows of a query whose column ``bad`` is NULL; under ``invalid="fail"`` all have to be."""
    rows = run.table(query)
    if node.policy.invalid_in(False) == Invalid.FAIL:
        bad = run.value(f"SELECT min(bad) FROM {rows}")
        if bad is not None:
            raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", bad))
    return f"(SELECT * EXCLUDE (bad) FROM {rows} WHERE bad IS NULL)"


def keyed(node: Source, run: Run, rows: str) -> str:
    """Rows with what their payload is matched, grouped and ordered by."""
    own = own_keys(node.schema)
    return run.table(f"SELECT {listed('*', *own)} FROM {rows}") if own else rows


def representatives(node: Source) -> list[str]:
    """Of rows grouped by their keys the payload."""
    return [f"any_value({c}) AS {c}" for c in payload(node.schema) if c not in keys(node.schema)]


def once(node: Source, run: Run, rows: str) -> str:
    """With ids: of the rows of one id and start, equal ones being one row, only the least by end, then payload, is one."""
    if not node.ids:
        return rows
    names = keys(node.schema)
    whose = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.ids]
    order = listed("re", *(f"{c} NULLS FIRST" for c in names))
    columns = listed("le", "re", *names)
    return events_of(node, run, f"""
        SELECT *, CASE WHEN row_number() OVER (PARTITION BY {listed("le", *whose)} ORDER BY {order}) > 1
            THEN 'two rows of one id and start that differ' END AS bad
        FROM (SELECT {listed(columns, *representatives(node))}
            FROM {keyed(node, run, rows)} GROUP BY {columns})""")  # fmt: skip


__all__ = ["column", "events_of", "keyed", "no_start", "once", "payload_of", "representatives"]
