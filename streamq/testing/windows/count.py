"""The room of count windows."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, same
from streamq.testing.program_text import string
from streamq.testing.windows.room import Draw, Members, WindowRoom, one_of
from streamq.time import INFINITY
from streamq.windows import Count


class CountRoom(WindowRoom[Count]):
    """The room of :class:`Count`."""

    kind = Count
    usual_stamp = Stamp.POINT_AT_END
    begins_with_its_last_member = True
    arguments = {("count_window", "by"): one_of("start", "end")}

    def members(self, window: Count, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows that contain their start or, by "end", their end.

        A window has n different instants of a group, from each of them on, and ends a tick after the last; where fewer follow
        there is none. By "end", endless events are in no window.
        """
        at = "le" if window.by == "start" else "re"
        instants = (
            f"SELECT DISTINCT {listed(f'{at} AS t', *source.groups)} FROM {source.events} WHERE {at} < {INFINITY}"
        )
        last = f"lead(t, {window.n - 1}) OVER ({source.by} ORDER BY t) + 1 AS w_re"
        windows = run.table(f"SELECT {listed('t AS w_le', last, *source.groups)} FROM ({instants})")
        inside = f"{same(source.groups)} AND a.{at} >= b.w_le AND a.{at} < b.w_re"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} b ON {inside}"
        )

    def drawn(
        self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]
    ) -> tuple[Count, ClipInput, Stamp]:
        by = draw(st.sampled_from(["start", "end"]))
        clip = draw(st.sampled_from([ClipInput.NONE, ClipInput.RIGHT])) if by == "end" else clip
        return Count(draw(st.integers(1, 3)), by), clip, stamp

    def written(self, window: Count, axis: str) -> tuple[str, list[str]]:
        return "count", [str(window.n), *([] if window.by == "start" else [f"by={string(window.by)}"])]

    def usual_clip(self, window: Count) -> ClipInput:
        return ClipInput.RIGHT if window.by == "end" else ClipInput.FULL
