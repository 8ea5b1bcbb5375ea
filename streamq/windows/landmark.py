"""Landmark windows: they start at a landmark and grow, hop by hop."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.errors import PlanError, TimeError
from streamq.plan.footprint import Footprint, Retention
from streamq.runtime.arrow.columnar import codes, expand_ranges, ints
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.assigner import Assigner, RangeAssigner, Ranges, WindowTraits, distance_behind
from streamq.runtime.grid_ranges import grid_index
from streamq.runtime.groups import ToCome
from streamq.runtime.time.endpoints import Bound
from streamq.runtime.time.progress_rule import ARRAYS, Number, saturating
from streamq.time import INFINITY, MINUS_INFINITY, Duration, Grid, instant_ticks, show_duration, show_ticks, ticks
from streamq.windows.batch_events import ENDS, STARTS, UNTIL, BatchEvents
from streamq.windows.window import W, Window, WindowKindVerbs

if TYPE_CHECKING:
    from streamq.runtime.time.progress_rule import Cti


@dataclass(frozen=True)
class Landmark(Window):
    """Landmark windows: from each landmark l the windows ``[l, l + j*hop)``, j = 1, 2, ..., cut at the next landmark.

    The landmarks are ``start + i*period`` for every integer i; without a ``period`` there is one, ``start``. In Flink such
    windows are cumulative: ``hop`` is the step, ``period`` the greatest size.
    """

    hop: int
    start: int = 0
    period: int | None = None

    name = "landmark"
    bound = Bound.ALWAYS

    @classmethod
    def from_arguments(
        cls, hop: Duration, start: int | dt.datetime | None, period: Duration | None, axis: str
    ) -> Landmark:
        """Return windows from landmarks; raise PlanError without a landmark.

        With a ``period`` alone landmarks are its multiples. Raises TimeError for a hop or period below 1 tick, and for
        arguments that do not fit the axis.
        """
        if start is None and period is None:
            raise PlanError("landmark_window", "no landmark", "", "Say start=..., period=..., or both.")
        at = instant_ticks(start, axis, "landmark_window") if start is not None else 0
        every = None if period is None else ticks(period, axis, "landmark_window")
        for name, length in (("hop", ticks(hop, axis, "landmark_window")), ("period", every)):
            if length is not None and length <= 0:
                raise TimeError("landmark_window", f"{name} must be positive", f"found {length} ticks")
        return cls(ticks(hop, axis, "landmark_window"), at or 0, every)

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        cure = "with period=... landmarks follow, and events go with the windows of theirs"
        return replace(
            super().footprint(longest, keys, condenses=condenses),
            cti="the landmark of the earliest window not final",
            keeps="events since the landmark before c",
            for_good=f"all events since the landmark; {cure}" if self.period is None else "",
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention | None:
        if self.period is not None:
            return Retention(longest + self.period)
        return Retention(longest, 1, keys) if condenses else None

    @property
    def traits(self) -> WindowTraits:
        return WindowTraits(ends=self._ends)

    @property
    def _ends(self) -> LandmarkEnds:
        return LandmarkEnds(self.hop, self.start, self.period)

    def shown(self, axis: str) -> str:
        shown = f"hop={show_duration(self.hop, axis)}, start={show_ticks(self.start, axis)}"
        return shown + (f", period={show_duration(self.period, axis)}" if self.period is not None else "")

    def assigner(self, names: Sequence[str]) -> Assigner:
        return LandmarkAssigner(self.traits, self._ends)

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return the events copied into the windows that they overlap, and the columns of the interval.

        The last hop of a window starts before the bound of the input.
        """
        from streamq.windows.batch_events import SQL, TickSql, grid_index_column, grid_instant, sql_of

        hop, at, period = self.hop, self.start, self.period
        df = events.bounded(events.with_lifetimes(), Bound.ALWAYS)
        mark = TickSql("__mark")
        if period is None:
            df = df.where((F.col(RE) > at) & (F.lit(at) < F.col(UNTIL))).withColumn("__mark", F.lit(at).cast("bigint"))
            cut, most = TickSql(sql_of(INFINITY)), INFINITY
        else:
            until = TickSql(f"least({RE}, {UNTIL})") - 1
            low, high = (grid_index_column(t, at, period) for t in (TickSql(LE), until))
            df = df.withColumns({"__lo": low, "__hi": high}).where("__lo <= __hi")
            df = df.withColumn("__mark", F.explode(F.sequence("__lo", "__hi"))).drop("__lo", "__hi")
            df = df.withColumn("__mark", grid_instant(mark, at, period).column)
            cut, most = SQL.moved(mark, period), -(-period // hop)
        # windows that reach beyond the axis are cut at its end
        beyond = sql_of(INFINITY - 1)
        # an event may start further before its landmark than a distance can be; the bound is behind each landmark
        instants = (f"greatest({LE}, __mark)", f"{UNTIL} - 1")
        first, last = (TickSql(f"coalesce(try_subtract({instant}, __mark), {beyond})") for instant in instants)
        last_window = f"least({sql_of(most)}, {(SQL.quotient(last, hop) + 1).text})"
        df = df.withColumns({"__lo": (SQL.quotient(first, hop) + 1).column, "__hi": F.expr(last_window)})
        df = df.where("__lo <= __hi")
        df = df.withColumn("__j", F.explode(F.sequence("__lo", "__hi")))
        end = SQL.moved(mark + (TickSql("__j") - 1) * hop, hop)
        df = df.withColumns({STARTS: mark.column, ENDS: F.expr(f"least({end.text}, {cut.text})")})
        return df.drop("__mark", "__lo", "__hi", "__j", UNTIL), [STARTS, ENDS]


@dataclass(frozen=True)
class LandmarkEnds:
    """The ends of landmark windows: each hop after a landmark, and the landmarks themselves, at which others are cut."""

    hop: int
    start: int
    period: int | None

    @property
    def n(self) -> int:
        return INFINITY if self.period is None else (-(-self.period // self.hop) + 2) // 2

    @property
    def hops(self) -> Grid | None:
        is_even = self.period is None or self.period % self.hop == 0
        return Grid(self.hop, self.hop, self.start) if is_even else None

    def floor_to_hop(self, t: Number) -> Number:
        """Return the last end of a window up to an instant, or to each of an array, whether that window has a member or not."""
        period = self.period or self.hop
        behind_landmark = (t % period - self.start % period) % period
        return t - behind_landmark % self.hop

    def floor_to_end(self, t: int) -> int:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        is_before = self.period is None and t < self.start + self.hop
        return MINUS_INFINITY if is_before else int(self.floor_to_hop(t))


class LandmarkVerbs(WindowKindVerbs[W]):
    """The verb for landmark windows."""

    def landmark_window(
        self,
        hop: Duration,
        *,
        start: int | dt.datetime | None = None,
        period: Duration | None = None,
        clip_input: str = "full",
        stamp: str | None = None,
    ) -> W:
        """Windows that grow from a landmark: ``[l, l + j*hop)``, j = 1, 2, ..., until the next landmark cuts the last one.

        Landmarks: ``start`` alone, or one every ``period``, after ``start`` (default: the epoch, or 0) and before it. Results
        are points at the window's end unless ``stamp="align"``.

        In a batch the last window of a landmark is the one whose last hop holds the last instant of the whole input, all groups
        together: an end, or how far time has come; with ``until`` its last hop starts before that. A stream goes on with time.

        ::

            events   3 at 1  5 at 4  1 at 12       hop 5, period 10
            windows  [0,5):3 5  [0,10):3 5  [10,15):1  reported at 5, 10, 15

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (12, 13, {"v": 1})])
        >>> s.landmark_window(5, period=10).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            8     10   11
            1     15   16
        """
        return self._in_windows(
            Landmark.from_arguments(hop, start, period, self._axis), "landmark_window", clip_input, stamp
        )


@dataclass(frozen=True)
class LandmarkAssigner(RangeAssigner):
    """Assigns events to landmark windows; each landmark numbers its own windows."""

    ends: LandmarkEnds

    @property
    def cti(self) -> Cti:
        from streamq.runtime.time.progress_rule import Cti

        return Cti.LANDMARK

    def basic_windows(self, starts: Ints) -> Ints:
        windows: Ints = self.ends.floor_to_hop(starts)
        return windows

    def ranges(self, g: Ints, table: pa.Table, since: int, upto: int) -> Ranges:
        """Return each event's windows that end after ``since`` and whose last hop starts before ``upto``.

        An owner is a landmark of a group; its windows are numbered from 1 on. Where landmarks are repeated, an event without an
        end has no window unless ``upto`` bounds it.
        """
        hop, at, period = self.ends.hop, self.ends.start, self.ends.period
        le, re = ints(table, LE), ints(table, RE)
        if period is None:
            which = np.flatnonzero(re > at)
            mark, last = np.full(len(which), at), np.full(len(which), INFINITY)
        else:
            # landmarks before the bound whose last window ends after since
            endless = np.minimum(re, upto) == INFINITY
            low = grid_index(le, at, period, ARRAYS)
            high = grid_index(np.where(endless, le, np.minimum(re, upto) - 1), at, period, ARRAYS)
            if since > MINUS_INFINITY:
                low = np.maximum(low, (since - at) // period)
            which, q = expand_ranges(low, np.where(endless, low - 1, high))
            mark, last = at + q * period, np.full(len(which), -(-period // hop))
        # [l, l + jH) is evaluated while l + (j - 1)H lies before the bound, and while it ends after since
        last = np.minimum(last, distance_behind(upto - 1, mark) // hop + 1)
        first = np.maximum(distance_behind(le[which], mark), 0) // hop + 1
        if since > MINUS_INFINITY:
            first = np.maximum(first, distance_behind(since, mark) // hop + 1)
        owner, of = codes(pa.table({"group": g[which], "mark": mark}), ["group", "mark"])

        def where(owner: Ints, index: Ints) -> tuple[Ints, Ints]:
            start = mark[of[owner]]
            end = saturating(start + (index - 1) * hop, hop)
            return start, end if period is None else np.minimum(end, saturating(start, period))

        return Ranges(which, owner, first, last, where)

    def _mark(self, t: int) -> int | None:
        """Return the last landmark at or before t; None if t lies before the only one."""
        at, period = self.ends.start, self.ends.period
        if t < at and period is None:
            return None
        return at if period is None else at + (t - at) // period * period

    def needed(self, g: Ints, table: pa.Table, c: int) -> Mask:
        mark = self._mark(c - 2)
        return ints(table, RE) > (min(c - 1, mark) if mark is not None else MINUS_INFINITY)

    def latest_cti(self, c: int) -> int:
        mark = self._mark(c)
        return c if mark is None or c in (INFINITY, MINUS_INFINITY) else min(c, mark)

    def to_come(self, g: Ints, table: pa.Table, upto: int) -> ToCome:
        """Return all groups, with the next hop, or landmark, from ``upto`` on: every event is in all later windows."""
        mark, ends = self._mark(upto - 1), self.ends
        if mark is None:
            start = max(upto, ends.start)
        else:
            hop = mark + ((upto - 1 - mark) // ends.hop + 1) * ends.hop
            start = hop if ends.period is None else min(hop, mark + ends.period)
        return ToCome(g, np.full(len(g), start))
