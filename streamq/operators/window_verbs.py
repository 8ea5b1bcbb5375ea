"""The verbs that put a stream, or each of its groups, into windows."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from streamq.errors import TimeError, sentence
from streamq.operators.per_window import PerWindow, warn_of_neighbours
from streamq.operators.windowed import Windowed, windowed
from streamq.plan.schema import POINT
from streamq.plan.verbs import Verbs, named_after
from streamq.time import Duration, ticks
from streamq.windows import Calendar, Count, Hopping, Landmark, Rows, Session, Snapshot, Window

S = TypeVar("S", bound=Verbs)


class WindowVerbs(ABC, Generic[S]):
    """The window verbs; shared by streams and groups."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named_after(WindowVerbs, "Stream")

    @abstractmethod
    def _groups(self) -> tuple[S, tuple[str, ...]]:
        """The stream and the keys of its groups; without keys it is one group."""

    def _windowed(self, make: Callable[[Any], Window], verb: str, clip_input: str, stamp: str | None) -> Windowed[S]:
        stream, keys = self._groups()
        window = make(stream.plan.schema.axis)
        warn_of_neighbours(stream.plan, verb)
        return windowed(stream, keys, window, clip=clip_input, stamp=stamp, verb=verb)

    def per_window(self) -> Windowed[S]:
        """The rows of equal lifetime together: over the results of windows those of each window by itself.

        Lifetimes are compared as they are, whatever they come from; a result lives where its rows do. Any other window over
        the results of overlapping windows holds those of several neighbours.

        ::

            rows     a 3 [0,4)  b 5 [0,4)   a 1 [2,6)  b 0 [2,6)
            top 1    b 5 [0,4)              a 1 [2,6)

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"k": "a"}), (3, 4, {"k": "b"}), (3, 5, {"k": "b"})])
        >>> counts = s.group_by("k").hopping_window(4, 2).select(n=sq.count())
        >>> counts.per_window().top_k(1, by="n").show()
        k  n  rank  start  end
        a  1     1     -2    2
        b  2     1      0    4
        b  2     1      2    6
        b  1     1      4    8
        """
        return PerWindow.of(*self._groups())

    def hopping_window(
        self, size: Duration, hop: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> Windowed[S]:
        """The windows ``[offset + i*hop, offset + i*hop + size)`` for every integer i.

        ``size``, ``hop`` and ``offset`` are durations with a unit on a timestamp axis, integer ticks on an integer axis;
        size and hop may be any positive durations. An event is a member of every window its lifetime overlaps; a window
        without a member yields nothing; a result row lives on its window. Raises TimeError.

        All window verbs take ``clip_input``, how members' lifetimes are cut before a time-sensitive aggregate reads them
        ("full", "left", "right", "none"), and ``stamp``, where a result lives: "align" (on its window) or "point_at_end"
        (the tick at the window's end). (docs/concepts.md, "Windows"; Liarou et al., Enhanced Stream Processing in a DBMS
        Kernel, section 3.)

        ::

            events   a [1,4)  b [3,8)     size 4, hop 2
            windows  [-2,2):a  [0,4):ab  [2,6):ab  [4,8):b  [6,10):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.hopping_window(4, 2).select(n=sq.count()).show()
        n  start  end
        1     -2    2
        2      0    4
        2      2    6
        1      4    8
        1      6   10
        """
        return self._windowed(
            lambda axis: Hopping.of(size, hop, offset, axis, "hopping_window"), "hopping_window", clip_input, stamp
        )

    def tumbling_window(
        self, size: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> Windowed[S]:
        """Hopping windows that do not overlap: ``hop = size``.

        ::

            events   a [1,4)  b [3,8)   size 4
            windows  [0,4):ab  [4,8):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.tumbling_window(4).select(n=sq.count()).show()
        n  start  end
        2      0    4
        1      4    8
        """
        return self._windowed(
            lambda axis: Hopping.of(size, size, offset, axis, "tumbling_window"), "tumbling_window", clip_input, stamp
        )

    def snapshot_window(self, *, clip_input: str = "full", stamp: str | None = None) -> Windowed[S]:
        """The stretches in which nothing starts or ends: ``[t_j, t_j+1)`` between consecutive endpoints of the group.

        ::

            events   a [1,5)  b [3,8)
            windows  [1,3):a  [3,5):ab  [5,8):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.snapshot_window().select(n=sq.count()).show()
        n  start  end
        1      1    3
        2      3    5
        1      5    8
        """
        return self._windowed(lambda axis: Snapshot(), "snapshot_window", clip_input, stamp)

    def sliding_window(self, duration: Duration, *, clip_input: str = "full", stamp: str | None = None) -> Windowed[S]:
        """What the last ``duration`` held, at every instant: lifetimes extended by it (points: set to it), then snapshots.

        ::

            events   3 at 1  5 at 4                duration 5
            windows  [1,4):3  [4,6):3 5  [6,9):5

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5})]).to_points()
        >>> s.sliding_window(5).select(total=sq.sum("v")).show()
        total  start  end
            3      1    4
            8      4    6
            5      6    9
        """
        stream, keys = self._groups()
        warn_of_neighbours(stream.plan, "sliding_window")
        return windowed(_slid(stream, duration), keys, Snapshot(), clip=clip_input, stamp=stamp, verb="sliding_window")

    def count_window(
        self, n: int, by: str = "start", *, clip_input: str | None = None, stamp: str | None = None
    ) -> Windowed[S]:
        """Windows of ``n`` consecutive distinct starts (or finite ends, ``by="end"``): ``[s_i, s_(i+n-1) + 1 tick)``.

        Members are the events whose start (end) lies in the window: with ties more than n. By ends, ``clip_input`` is "right"
        (the default) or "none". Results are points at the window's end unless ``stamp="align"``.

        ::

            events   3 at 1  5 at 4  1 at 9           n = 2
            windows  [1,5):3 5  [4,10):5 1  told at 5 and 10

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.count_window(2).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            6     10   11
        """
        window = Count.of(n, by)
        return self._windowed(lambda axis: window, "count_window", window.clip(clip_input), stamp)

    def rows_window(
        self,
        n: int,
        step: int = 1,
        *,
        order_by: str | Sequence[str] = (),
        clip_input: str = "full",
        stamp: str | None = None,
    ) -> Windowed[S]:
        """Windows of ``n`` events in the order of (start, ``order_by``), every ``step`` events.

        From the first start to the last start + 1 tick; ties go by the rest of the payload,
        then by the ends.
        Results are points at the window's end unless ``stamp="align"``.

        ::

            events   3 at 1  5 at 4  1 at 9           n = 2
            windows  [1,5):3 5  [4,10):5 1  told at 5 and 10

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.rows_window(2).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            6     10   11
        """
        window = Rows.of(n, step, order_by)
        return self._windowed(lambda axis: window, "rows_window", clip_input, stamp)

    def session_window(self, gap: Duration, *, clip_input: str = "full", stamp: str | None = None) -> Windowed[S]:
        """Maximal chains of events that each start before the last instant alive + ``gap``, where the session ends.

        ``gap`` is at least two ticks. An event without end keeps its session open for ever.

        ::

            events   3 [1,2)  5 [4,5)  1 [20,21)   gap 5
            windows  [1,9):3 5  [20,25):1

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (20, 21, {"v": 1})])
        >>> s.session_window(5).select(n=sq.count()).show()
        n  start  end
        2      1    9
        1     20   25
        """
        return self._windowed(lambda axis: Session.of(gap, axis), "session_window", clip_input, stamp)

    def landmark_window(
        self,
        hop: Duration,
        *,
        start: int | dt.datetime | None = None,
        period: Duration | None = None,
        clip_input: str = "full",
        stamp: str | None = None,
    ) -> Windowed[S]:
        """Windows that grow from a landmark: ``[l, l + j*hop)``, j = 1, 2, ..., until the next landmark cuts the last one.

        Landmarks: ``start`` alone, or every ``period`` from ``start`` (default: the epoch, or 0). Results are points at the
        window's end unless ``stamp="align"``.

        In a batch the last window of a landmark is the one whose last hop holds the last instant of the whole input, all groups
        together: an end, or how far time has come; ``until`` moves that instant. A stream goes on with time.

        ::

            events   3 at 1  5 at 4  1 at 12       hop 5, period 10
            windows  [0,5):3 5  [0,10):3 5  [10,15):1  told at 5, 10, 15

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (12, 13, {"v": 1})])
        >>> s.landmark_window(5, period=10).select(total=sq.sum("v")).show()
        total  start  end
            8      5    6
            8     10   11
            1     15   16
        """
        return self._windowed(lambda axis: Landmark.of(hop, start, period, axis), "landmark_window", clip_input, stamp)

    def calendar_window(
        self, period: str, *, zone: str, clip_input: str = "full", stamp: str | None = None
    ) -> Windowed[S]:
        """The days, weeks, months, quarters or years of a time zone, as ``"1 month"`` or ``"2 weeks"``, with its clock changes.

        ``zone``: a name of the tz database. A window begins at midnight of its first day there, so a day has 23 or 25 hours where
        clocks change; weeks begin on Mondays, and windows are counted from 1970. Where clocks skip midnight, a day begins
        when it would have been. An event is a member of every window its lifetime overlaps. Raises TimeError.

        ::

            events   3 [31 March 21:00, 22:30)   5 [2 April 10:00, 11:00)     months of Europe/Berlin, where 22:00 UTC is midnight
            windows  [28 February 23:00, 31 March 22:00): 3   [31 March 22:00, 30 April 22:00): 3 5

        >>> import datetime as dt
        >>> import streamq as sq
        >>> march, april = dt.datetime(2026, 3, 31, 21), dt.datetime(2026, 4, 2, 10)
        >>> s = sq.events([(march, march + dt.timedelta(minutes=90), {"v": 3}), (april, april + dt.timedelta(hours=1), {"v": 5})])
        >>> s.calendar_window("1 month", zone="Europe/Berlin").select(total=sq.sum("v")).show()
        total                start                  end
            3  2026-02-28 23:00:00  2026-03-31 22:00:00
            8  2026-03-31 22:00:00  2026-04-30 22:00:00
        """
        return self._windowed(lambda axis: Calendar.of(period, zone, axis), "calendar_window", clip_input, stamp)


def _slid(stream: Any, duration: Duration) -> Any:
    if ticks(duration, stream.plan.schema.axis, "sliding_window") <= 0:
        raise TimeError(sentence("sliding_window", "the duration must be positive", f"found {duration!r}"))
    return stream.set_duration(duration) if stream.plan.schema.shape == POINT else stream.extend(duration)
