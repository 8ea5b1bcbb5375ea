"""Windows that depend on events: of a count, of rows, sessions and snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, order_of, same
from streamq.testing.windows.room import Members, WindowRoom, lengths_of_time, one_of
from streamq.time import INFINITY
from streamq.windows import Count, Rows, Session, Snapshot


class CountRoom(WindowRoom[Count]):
    """The room of :class:`Count`."""

    kind = Count
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
        last = f"lead(t, {window.n - 1}) OVER ({source.partition_clause} ORDER BY t) + 1 AS w_re"
        windows = run.table(f"SELECT {listed('t AS w_le', last, *source.groups)} FROM ({instants})")
        inside = f"{same(source.groups)} AND a.{at} >= b.w_le AND a.{at} < b.w_re"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} b ON {inside}"
        )


class RowsRoom(WindowRoom[Rows]):
    """The room of :class:`Rows`."""

    kind = Rows

    def members(self, window: Rows, source: Members, run: Run) -> str:
        """Return a table of events, joined with their windows: n in a row of a group, from each multiple of ``step`` on.

        Events are in the order of start, ``order_by``, the rest of the payload, and end.
        A window lasts from the first one's start to a tick after the last one's; a window with fewer events does not exist.
        """
        names = source.schema.names
        whole = [*window.order_by, *(n for n in names if n not in window.order_by)]
        order = listed("le", *(f"{order_of(source.schema)[names.index(c)]} NULLS FIRST" for c in whole), "re")
        rows = run.table(
            f"SELECT *, row_number() OVER ({source.partition_clause} ORDER BY {order}) - 1 AS place FROM {source.events}"
        )
        last = f"lead(le, {window.n - 1}) OVER ({source.partition_clause} ORDER BY place) + 1 AS w_re"
        windows = run.table(f"""
            SELECT * FROM (SELECT {listed("place AS w", "le AS w_le", last, *source.groups)} FROM {rows})
            WHERE w % {window.step} = 0 AND w_re IS NOT NULL""")  # fmt: skip
        inside = f"{same(source.groups)} AND a.place BETWEEN b.w AND b.w + {window.n - 1}"
        return run.table(f"SELECT b.w, b.w_le, b.w_re, a.* FROM {rows} a JOIN {windows} b ON {inside}")


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

    def lengths(self, window: Session) -> Iterator[int]:
        yield window.gap


class SnapshotRoom(WindowRoom[Snapshot]):
    """The room of :class:`Snapshot`."""

    kind = Snapshot
    arguments = {("sliding_window", "duration"): lengths_of_time(1, 6)}

    def members(self, window: Snapshot, source: Members, run: Run) -> str:
        """Return a table of events, joined with the windows that overlap them: from a start or end to the group's next."""
        starts, ends = (f"SELECT {listed(f'{at} AS t', *source.groups)} FROM {source.events}" for at in ("le", "re"))
        end = f"lead(t) OVER ({source.partition_clause} ORDER BY t) AS w_re"
        windows = run.table(f"SELECT {listed('t AS w_le', end, *source.groups)} FROM ({starts} UNION {ends})")
        overlap = f"{same(source.groups)} AND a.le < b.w_re AND a.re > b.w_le"
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} b ON {overlap}"
        )
