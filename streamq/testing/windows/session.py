"""The room of session windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, same
from streamq.testing.program_text import duration
from streamq.testing.windows.room import Draw, Members, WindowRoom, lengths_of_time
from streamq.time import INFINITY
from streamq.windows import Session


class SessionRoom(WindowRoom[Session]):
    """The room of :class:`Session`."""

    kind = Session
    arguments = {("session_window", "gap"): lengths_of_time(2, 6)}

    def members(self, window: Session, source: Members, run: Run) -> str:
        """Return a table of events, each with its session.

        A session begins at each start that is a gap or more after the last instants of all earlier events of the group. It has
        the events from there until the next session's start, and ends a gap after the last instant of them all; with
        an endless event, it does not end.
        """
        near = f"{same(source.groups)} AND b.le < a.le AND b.re::HUGEINT - 1 + {window.gap} > a.le"
        heads = run.table(f"""
            SELECT DISTINCT {listed("le AS t", *source.groups)} FROM {source.events} a
            WHERE NOT EXISTS (SELECT 1 FROM {source.events} b WHERE {near})""")  # fmt: skip
        first = f"(SELECT max(b.t) FROM {heads} b WHERE {same(source.groups)} AND b.t <= a.le)"
        rows = run.table(f"SELECT {first} AS w_le, a.* FROM {source.events} a")
        own = f"max(re) OVER (PARTITION BY {listed('w_le', *source.groups)})"
        end = f"CAST(least({INFINITY}, {own}::HUGEINT - 1 + {window.gap}) AS BIGINT)"
        return run.table(f"SELECT 0 AS w, w_le, {end} AS w_re, * EXCLUDE (w_le) FROM {rows}")

    def drawn(
        self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]
    ) -> tuple[Session, ClipInput, Stamp]:
        return Session(draw(st.integers(2, 6))), clip, stamp

    def written(self, window: Session, axis: str) -> tuple[str, list[str]]:
        return "session", [duration(window.gap, axis)]

    def lengths(self, window: Session) -> Iterator[int]:
        yield window.gap
