"""The room of landmark windows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.grid import Grid
from streamq.testing.oracle.grids import bound
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed
from streamq.testing.payload_values import EPOCH
from streamq.testing.program_text import duration, instant
from streamq.testing.windows.room import Draw, Members, WindowRoom, lengths_of_time
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP
from streamq.windows import Landmark


def first_landmarks(axis: str) -> st.SearchStrategy[Any]:
    """Return a strategy for an instant near tick 0."""
    at = st.integers(-5, 9)
    return at.map(lambda n: EPOCH + dt.timedelta(microseconds=n)) if axis == TIMESTAMP else at


class LandmarkRoom(WindowRoom[Landmark]):
    """The room of :class:`Landmark`."""

    kind = Landmark
    usual_stamp = Stamp.POINT_AT_END
    begins_with_its_last_member = True
    arguments = {("landmark_window", "start"): first_landmarks, ("landmark_window", "period"): lengths_of_time(2, 15)}

    def last_end(self, window: Landmark, c: int) -> int:
        """Return the greatest end of a window that is not after a CTI; minus infinity before the first one."""
        mark = window.start
        if window.period is not None:
            mark = c - (c - window.start) % window.period
        elif c < window.start + window.hop:
            return MINUS_INFINITY
        return c - (c - mark) % window.hop

    def members(self, window: Landmark, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows ``[l, l + jH)`` that overlap them.

        The last window is cut at the next landmark; windows are reported while ``l + (j - 1)H`` is before the oracle's bound,
        even if all events end.
        """
        hop, start, period = window.hop, window.start, window.period
        until = bound(source.events, run, always=True)
        if period is None:
            marks, cut = f"(SELECT {start}::HUGEINT AS l)", str(INFINITY)
            most = f"({until} - l) // {hop} + 2"
        else:
            low, high = (f"CAST(({t}::HUGEINT - {start}) // {period} AS BIGINT)" for t in ("le", f"least(re, {until})"))
            number = f"unnest(range({low} - 1, {high} + 2))::HUGEINT"
            marks = f"(SELECT DISTINCT {start} + {period} * {number} AS l FROM {source.events})"
            cut, most = f"l + {period}", f"{period} // {hop} + 2"
        end = f"least(l + j * {hop}, {cut}, {INFINITY})"
        windows = run.table(f"""
            SELECT DISTINCT CAST(l AS BIGINT) AS w_le, CAST({end} AS BIGINT) AS w_re
            FROM (SELECT l, unnest(range(1, CAST({most} AS BIGINT) + 1)) AS j FROM {marks})
            WHERE l >= {MINUS_INFINITY} AND l + (j - 1) * {hop} < least({until}, {cut})""")  # fmt: skip
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} ON le < w_re AND re > w_le"
        )

    def drawn(
        self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]
    ) -> tuple[Landmark, ClipInput, Stamp]:
        period = draw(st.one_of(st.none(), st.integers(2, 15)))
        return Landmark(draw(st.integers(1, 6)), draw(st.integers(-5, 5)), period), clip, stamp

    def written(self, window: Landmark, axis: str) -> tuple[str, list[str]]:
        arguments = [duration(window.hop, axis)]
        arguments += [f"start={instant(window.start, axis)}"] if window.start or window.period is None else []
        return "landmark", arguments + ([] if window.period is None else [f"period={duration(window.period, axis)}"])

    def complete(self, draw: Draw, verb: str, arguments: dict[str, Any], open: Any) -> None:
        """If the period is open, set it, or an open start, to None in some draws; a window without a period must have a start."""
        if verb != "landmark_window" or arguments.get("period") is not open:
            return
        if draw(st.sampled_from([False, False, True])):
            arguments["period"] = None
            arguments["start"] = arguments.get("start") or open
        elif arguments.get("start") is open and draw(st.booleans()):
            arguments["start"] = None

    def lengths(self, window: Landmark) -> Iterator[int]:
        yield from (window.hop, window.period or window.hop)

    def recurrences(self, window: Landmark) -> Iterator[int]:
        yield window.hop

    def grids(self, window: Landmark) -> Iterator[Grid]:
        yield Grid(window.hop, window.period or window.hop, window.start)

    def instants(self, window: Landmark, axis: str) -> Iterator[int]:
        if window.period is None and axis == TIMESTAMP:
            yield window.start
