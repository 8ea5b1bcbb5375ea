"""Snapshot windows, sliding ones among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamq.choices import ClipInput, LengthKind, Stamp
from streamq.operators import AlterLifetime
from streamq.operators.lifetime_change import Length, Start
from streamq.plan.schema import POINT
from streamq.testing.oracle.expressions import listed, same
from streamq.testing.oracle.run import Run
from streamq.testing.windows.room import Draw, Members, Reading, WindowRoom, lengths_of_time
from streamq.windows import Snapshot


def snapshot_window(of: Reading, *, clip_input: str = "full", stamp: str | None = None) -> Any:
    return of.in_windows(Snapshot(), clip_input, stamp)


def sliding_window(of: Reading, duration: Any, *, clip_input: str = "full", stamp: str | None = None) -> Any:
    """Points live for the duration, other events longer by it; then snapshots."""
    is_point = of.plan.schema.shape == POINT
    length = Length(LengthKind.FIXED if is_point else LengthKind.SAME, of.ticks(duration))
    return of.in_windows(Snapshot(), clip_input, stamp, AlterLifetime(of.plan, Start(), length))


class SnapshotRoom(WindowRoom[Snapshot]):
    """The room of :class:`Snapshot`."""

    kind = Snapshot
    weight = 2
    verbs = {"snapshot_window": snapshot_window, "sliding_window": sliding_window}
    arguments = {("sliding_window", "duration"): lengths_of_time(1, 6)}

    def members(self, window: Snapshot, of: Members, run: Run) -> str:
        starts, ends = (f"SELECT {listed(f'{at} AS t', *of.groups)} FROM {of.events}" for at in ("le", "re"))
        windows = run.table(
            f"SELECT {listed('t AS w_le', f'lead(t) OVER ({of.by} ORDER BY t) AS w_re', *of.groups)} FROM ({starts} UNION {ends})"
        )
        overlap = f"{same(of.groups)} AND a.le < b.w_re AND a.re > b.w_le"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {of.events} a JOIN {windows} b ON {overlap}"
        )

    def drawn(
        self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]
    ) -> tuple[Snapshot, ClipInput, Stamp]:
        return Snapshot(), clip, stamp

    def written(self, window: Snapshot, axis: str) -> tuple[str, list[str]]:
        return "snapshot", []
