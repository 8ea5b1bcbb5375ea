"""The windows of a grid, and the bound on those and on pieces."""

from __future__ import annotations

from streamq.errors import sentence
from streamq.grid import Grid
from streamq.testing.oracle.run import Run, TooMuch
from streamq.time import INFINITY, MINUS_INFINITY

MOST_WINDOWS = 1_000_000
"""Lifetimes of more hops than this are refused."""


def hopping_windows(grid: Grid, events: str, run: Run) -> str:
    """The windows of a grid to report: of every event those that it may overlap, and some more."""
    size, hop, offset = grid.size, grid.hop, grid.offset
    until = bound(events, run)
    last = f"least(re, {until})"
    if (run.value(f"SELECT max({last}::HUGEINT - le) FROM {events}") or 0) > MOST_WINDOWS * hop:
        hint = "Lifetimes of the query's own lengths do: leave the pattern out, or make it shorter."
        raise TooMuch(sentence("oracle", "too many windows", f"a lifetime is longer than {MOST_WINDOWS} hops", hint))
    low, high = f"(le::HUGEINT - {offset} - {size}) // {hop} - 2", f"({last}::HUGEINT - {offset}) // {hop} + 2"
    start = f"{offset} + i * {hop}::HUGEINT"
    return run.table(f"""
        SELECT DISTINCT CAST(greatest({MINUS_INFINITY}, {start}) AS BIGINT) AS w_le,
            CAST(greatest({MINUS_INFINITY}, least({INFINITY}, {start} + {size})) AS BIGINT) AS w_re
        FROM (SELECT DISTINCT unnest(range(CAST({low} AS BIGINT), CAST({high} AS BIGINT))) AS i FROM {events})
        WHERE {start} < {until}""")  # fmt: skip


def bound(events: str, run: Run, always: bool = False) -> int:
    """Before what windows and pieces must start: the caller's bound; else, if a lifetime has no end, or ``always``, the greater
    of the last finite endpoint and how far the input has come (``always``: one tick later).
    """
    if run.until is not None:
        return run.until
    infinite = run.value(f"SELECT count(*) FROM {events} WHERE re = {INFINITY}")
    finite = run.value(f"SELECT max(CASE WHEN re < {INFINITY} THEN re ELSE le END) FROM {events}")
    last = max((t for t in (finite, run.reach) if t is not None), default=0)
    if always:
        return last + 1
    return last if infinite else INFINITY


__all__ = ["MOST_WINDOWS", "bound", "hopping_windows"]
