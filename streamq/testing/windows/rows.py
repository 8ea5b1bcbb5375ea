"""The room of rows windows."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, order_of, same
from streamq.testing.program_text import one_or_more
from streamq.testing.windows.room import Draw, Members, WindowRoom
from streamq.windows import Rows


class RowsRoom(WindowRoom[Rows]):
    """The room of :class:`Rows`."""

    kind = Rows
    needs_exact_columns = True
    usual_stamp = Stamp.POINT_AT_END
    begins_with_its_last_member = True

    def members(self, window: Rows, source: Members, run: Run) -> str:
        """Return a table of events, joined with their windows: n in a row of a group, from each multiple of ``step`` on.

        Events are in the order of start, ``order_by``, the rest of the payload, and end.
        A window lasts from the first one's start to a tick after the last one's; a window with fewer events does not exist.
        """
        names = source.schema.names
        whole = [*window.order_by, *(n for n in names if n not in window.order_by)]
        order = listed("le", *(f"{order_of(source.schema)[names.index(c)]} NULLS FIRST" for c in whole), "re")
        rows = run.table(
            f"SELECT *, row_number() OVER ({source.by} ORDER BY {order}) - 1 AS place FROM {source.events}"
        )
        last = f"lead(le, {window.n - 1}) OVER ({source.by} ORDER BY place) + 1 AS w_re"
        windows = run.table(f"""
            SELECT * FROM (SELECT {listed("place AS w", "le AS w_le", last, *source.groups)} FROM {rows})
            WHERE w % {window.step} = 0 AND w_re IS NOT NULL""")  # fmt: skip
        inside = f"{same(source.groups)} AND a.place BETWEEN b.w AND b.w + {window.n - 1}"
        return run.table(f"SELECT b.w, b.w_le, b.w_re, a.* FROM {rows} a JOIN {windows} b ON {inside}")

    def drawn(self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]) -> tuple[Rows, ClipInput, Stamp]:
        order = draw(st.lists(st.sampled_from(ordered), max_size=1)) if ordered else []
        return Rows(draw(st.integers(1, 3)), draw(st.integers(1, 4)), tuple(order)), clip, stamp

    def written(self, window: Rows, axis: str) -> tuple[str, list[str]]:
        arguments = [str(window.n), *([] if window.step == 1 else [str(window.step)])]
        return "rows", arguments + ([f"order_by={one_or_more(window.order_by)}"] if window.order_by else [])
