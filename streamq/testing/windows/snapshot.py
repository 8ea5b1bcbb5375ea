"""The room of snapshot windows, including sliding ones."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.choices import ClipInput, Stamp
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, same
from streamq.testing.windows.room import Draw, Members, WindowRoom, lengths_of_time
from streamq.windows import Snapshot


class SnapshotRoom(WindowRoom[Snapshot]):
    """The room of :class:`Snapshot`."""

    kind = Snapshot
    weight = 2
    arguments = {("sliding_window", "duration"): lengths_of_time(1, 6)}

    def members(self, window: Snapshot, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows that overlap them: from a start or end to the group's next."""
        starts, ends = (f"SELECT {listed(f'{at} AS t', *source.groups)} FROM {source.events}" for at in ("le", "re"))
        end = f"lead(t) OVER ({source.by} ORDER BY t) AS w_re"
        windows = run.table(f"SELECT {listed('t AS w_le', end, *source.groups)} FROM ({starts} UNION {ends})")
        overlap = f"{same(source.groups)} AND a.le < b.w_re AND a.re > b.w_le"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} b ON {overlap}"
        )

    def drawn(
        self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]
    ) -> tuple[Snapshot, ClipInput, Stamp]:
        return Snapshot(), clip, stamp

    def written(self, window: Snapshot, axis: str) -> tuple[str, list[str]]:
        return "snapshot", []
