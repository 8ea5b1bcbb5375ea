"""The windows of a grid, and the bound on windows and pieces."""

from __future__ import annotations

from streamq.errors import sentence
from streamq.grid import Grid
from streamq.testing.oracle.run import Run, TooMuch
from streamq.time import FIRST_INSTANT, INFINITY

MOST_WINDOWS = 1_000_000
"""The greatest length of a lifetime, in hops; longer ones are refused."""


def hopping_windows(grid: Grid, events: str, run: Run) -> str:
    """Create the table of a grid's windows, with ``w_le`` and ``w_re``: for each event those it may overlap, and some more.

    They are without repetitions, start before :func:`bound`, and are cut at the ends of the axis. Raises TooMuch for a lifetime,
    up to that bound, of more than MOST_WINDOWS hops.
    """
    size, hop, offset = grid.size, grid.hop, grid.offset
    until = bound(events, run)
    last = f"least(re, {until})"
    if (run.value(f"SELECT max({last}::HUGEINT - le) FROM {events}") or 0) > MOST_WINDOWS * hop:
        hint = "Use lifetimes of the query's own lengths: leave the pattern out, or make it shorter."
        raise TooMuch(sentence("oracle", "too many windows", f"a lifetime is longer than {MOST_WINDOWS} hops", hint))
    low, high = f"(le::HUGEINT - {offset} - {size}) // {hop} - 2", f"({last}::HUGEINT - {offset}) // {hop} + 2"
    start = f"{offset} + i * {hop}::HUGEINT"
    return run.table(f"""
        SELECT DISTINCT CAST(greatest({FIRST_INSTANT}, {start}) AS BIGINT) AS w_le,
            CAST(greatest({FIRST_INSTANT}, least({INFINITY}, {start} + {size})) AS BIGINT) AS w_re
        FROM (SELECT DISTINCT unnest(range(CAST({low} AS BIGINT), CAST({high} AS BIGINT))) AS i FROM {events})
        WHERE {start} < {until}""")  # fmt: skip


def bound(events: str, run: Run, always: bool = False) -> int:
    """Return the instant before which windows and pieces must start.

    This is the caller's ``until``. Without it, if a lifetime has no end, or if ``always``, it is the greatest instant of the
    input or the CTI that its input has reached, whichever is later (``always``: one tick later); else infinity.
    """
    if run.until is not None:
        return run.until
    is_endless, finite = f"re = {INFINITY}", f"CASE WHEN re < {INFINITY} THEN re ELSE le END"
    ((has_endless, latest),) = run.rows(f"SELECT bool_or({is_endless}), max({finite}) FROM {events}")
    last = max((t for t in (latest, run.reach) if t is not None), default=0)
    if always:
        return last + 1
    return last if has_endless else INFINITY


__all__ = ["MOST_WINDOWS", "bound", "hopping_windows"]
