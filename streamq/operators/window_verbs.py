"""The verbs that put a stream, or each of its groups, into windows: one per window kind, and two derived from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamq.errors import TimeError, sentence
from streamq.operators.per_window import PerWindow, warn_of_neighbours
from streamq.operators.windowed_stream import WindowedStream, windowed
from streamq.plan.schema import POINT
from streamq.plan.verbs import Verbs, named_after
from streamq.time import Duration, ticks
from streamq.windows import AllWindowVerbs, Snapshot, Window

S = TypeVar("S", bound=Verbs)


class WindowVerbs(AllWindowVerbs[WindowedStream[S]], Generic[S]):
    """The window verbs; shared by streams and groups."""

    @abstractmethod
    def _groups(self) -> tuple[S, tuple[str, ...]]:
        """Return the stream and the keys of its groups; without keys the whole stream is one group."""

    def _in_windows(
        self, window: Callable[[str], Window], verb: str, clip_input: str, stamp: str | None
    ) -> WindowedStream[S]:
        """Put the groups into windows; ``window`` makes the kind for a time axis, the other arguments are the user's."""
        stream, keys = self._groups()
        kind = window(stream.plan.schema.axis)
        warn_of_neighbours(stream.plan, verb)
        return windowed(stream, keys, kind, clip=clip_input, stamp=stamp, verb=verb)

    def per_window(self) -> WindowedStream[S]:
        """Group the rows by lifetime: each distinct lifetime is one window, and its members are the rows that have it.

        Applied to the results of windows, it treats the results of each window by themselves; any other window would mix the
        results of overlapping windows. Only equality of lifetimes counts, not their origin. A result has its rows' lifetime.

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
        return PerWindow.from_stream(*self._groups())

    def sliding_window(
        self, duration: Duration, *, clip_input: str = "full", stamp: str | None = None
    ) -> WindowedStream[S]:
        """Look back over the last ``duration`` at every instant: extend each lifetime by it, then take snapshots.

        In a stream of points, declared (``sq.points``) or derived (``to_points()``, a join with points), each lifetime is set to
        ``duration`` instead. Raises TimeError for a duration that is not positive.

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


def _slid(stream: Any, duration: Duration) -> Any:
    """Return a stream whose lifetimes last ``duration`` longer, or of points just that long; raise TimeError unless positive."""
    if ticks(duration, stream.plan.schema.axis, "sliding_window") <= 0:
        raise TimeError(sentence("sliding_window", "the duration must be positive", f"found {duration!r}"))
    return stream.set_duration(duration) if stream.plan.schema.shape == POINT else stream.extend(duration)


named_after(WindowVerbs, "Stream")
