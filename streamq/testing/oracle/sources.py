"""SQL that the rooms of sources share: columns of raw rows, the selection of events, and their payload with its keys."""

from __future__ import annotations

from streamq.choices import Invalid
from streamq.errors import InvalidEvent, sentence
from streamq.operators import Source
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, own_keys, payload
from streamq.time import INFINITY, MINUS_INFINITY


def column(node: Source, name: str) -> str:
    """Return the column of a source's rows (:meth:`Run.source`) for a column's name."""
    return f"x{[f.name for f in node.columns].index(name)}"


def payload_of(node: Source) -> list[str]:
    return [f"{column(node, f.name)} AS c{i}" for i, f in enumerate(node.payload)]


def no_start(time: str, last: int = INFINITY - 1) -> str:
    """Return branches of a CASE for the reasons why an instant is not a start: NULL, -2^63, or after ``last``."""
    return (
        f"WHEN {time} IS NULL THEN 'null start' WHEN {time} = {MINUS_INFINITY} THEN 'a start before time begins' "
        f"WHEN {time} > {last} THEN 'a start where time ends'"
    )


def events_of(node: Source, run: Run, query: str) -> str:
    """Return, for a FROM clause, the rows of a query whose column ``bad`` is NULL.

    Raises InvalidEvent if there are others, unless the source's policy is ``invalid="drop"``: the default fails, as in a batch.
    """
    rows = run.table(query)
    if node.policy.invalid_in(False) == Invalid.FAIL:
        bad = run.value(f"SELECT min(bad) FROM {rows}")
        if bad is not None:
            raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", bad))
    return f"(SELECT * EXCLUDE (bad) FROM {rows} WHERE bad IS NULL)"


def keyed(node: Source, run: Run, rows: str) -> str:
    """Return the table of rows with the key columns of their payload."""
    own = own_keys(node.schema)
    return run.table(f"SELECT {listed('*', *own)} FROM {rows}") if own else rows


def representatives(node: Source) -> list[str]:
    """Return the payload columns of rows that are grouped by their key columns."""
    return [f"any_value({c}) AS {c}" for c in payload(node.schema) if c not in keys(node.schema)]


def once(node: Source, run: Run, rows: str) -> str:
    """Return rows deduplicated by id and start: the row least by (end, payload) stays, equal rows go.

    Others are invalid: dropped or an error, see :func:`events_of`. A source without ids keeps all rows.
    """
    if not node.ids:
        return rows
    names = keys(node.schema)
    ids = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.ids]
    order = listed("re", *(f"{c} NULLS FIRST" for c in names))
    columns = listed("le", "re", *names)
    return events_of(node, run, f"""
        SELECT *, CASE WHEN row_number() OVER (PARTITION BY {listed("le", *ids)} ORDER BY {order}) > 1
            THEN 'two rows of one id and start that differ' END AS bad
        FROM (SELECT {listed(columns, *representatives(node))}
            FROM {keyed(node, run, rows)} GROUP BY {columns})""")  # fmt: skip
