"""What one kind of windows is: all that operators, the compiler, explain and the hosts ask of it.

An interval ``[a, b)`` contains a and not b. All lengths and instants are in ticks: microseconds since 1970 (UTC) on a timestamp
axis, the column's own unit on an integer axis. LE and RE are the start and end of an event or a window. An event is a member
of a window by its *lifetime*: of every one that it overlaps, where a kind does not say otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from streamq.choices import ClipInput, Stamp
from streamq.grid import Grid
from streamq.plan.keys import check_key
from streamq.plan.node import Traits
from streamq.plan.schema import Schema
from streamq.runtime.endpoints import Bound
from streamq.runtime.evaluators.assigner import Assigner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.windows.batch_events import BatchEvents


class Window(ABC):
    """A kind of windows with its lengths: a frozen dataclass, which plans hold and their JSON names.

    Its docstring states CTI, Final and State, as those of operators do: explain and the docs show it for operators over it.
    """

    name: ClassVar[str]
    """What explain calls it."""

    bound: ClassVar[Bound] = Bound.NONE
    """Which windows of lifetimes without an end the end of the input brings."""

    default_stamp: ClassVar[Stamp] = Stamp.ALIGN
    """Where results live unless the user says it.

    A kind whose windows may stay open for ever with no event of their group says POINT_AT_END: on the whole of its windows the
    results of one idle group would hold back the CTI.
    """

    is_bounded_by_events: ClassVar[bool] = False
    """True if a window ends by the end of some event, so that one of an event without an end has none either."""

    is_piecewise: ClassVar[bool] = False
    """Whether windows are the pieces between the endpoints of a group's events: their ends move with those, a change leaves the
    pieces before it as they are, and events of one lifetime, a group by themselves, have just that lifetime as their window."""

    by_places: ClassVar[bool] = False
    """Whether windows go by the places of events in their order, to which the whole payload belongs, and not by time alone."""

    @property
    @abstractmethod
    def overlap(self) -> bool:
        """Return whether two windows of one group may have an instant in common."""

    @property
    def grid(self) -> Grid | None:
        """Return the grid that the windows lie on: they can then be split into basic windows; None: they lie on none."""
        return None

    def basic_grid(self) -> Grid:
        """Return the grid of windows that are split into basic windows, and so have one."""
        assert self.grid is not None, f"{self.name} windows lie on no grid"
        return self.grid

    @property
    def by_starts(self) -> bool:
        """Return whether the starts of events alone say in which windows they are."""
        return False

    def order(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns by which events that start together are ordered: those the user named, then others of ``names``.

        There are none where windows go by time alone.
        """
        return ()

    def equal_starts(self, stamp: Stamp) -> bool:
        """Return whether results of several windows of one group may start at one instant."""
        return False

    def depends_on_other_groups(self, *, endless: bool) -> str:
        """Return why the windows of a group depend on the events of others; nothing if they do not.

        endless: whether some event may never end.
        """
        return (
            "events may never end, and then the windows of one group depend on the endpoints of all" if endless else ""
        )

    def traits(self, stamp: Stamp, source: Traits) -> Traits:
        """Return what results may do later, over events that may do ``source``."""
        if stamp == Stamp.TIME_BOUND:
            return Traits(True, True, True)
        return Traits(infinite=self.is_bounded_by_events and stamp == Stamp.ALIGN and source.infinite)

    @abstractmethod
    def shown(self, axis: str) -> str:
        """Return the lengths as explain shows them: ``size=1 hour, hop=5 minutes``."""

    def shown_with(self, clip: ClipInput, stamp: Stamp, axis: str) -> str:
        """Return the lengths, and clip and stamp where they are not the default: ``gap=5, clip=left, stamp=align``."""
        shown = self.shown(axis) + ("" if clip == ClipInput.FULL else f", clip={clip}")
        return shown + ("" if stamp == self.default_stamp else f", stamp={stamp}")

    @abstractmethod
    def assigner(self, names: Sequence[str]) -> Assigner:
        """Return what assigns events with the columns ``names`` to the windows, on a stream and in-process."""

    @abstractmethod
    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return a row a member and window, in batch, and the columns that tell the windows of a group apart.

        ``__wle`` and ``__wre``, a window's start and end, are among them; on a grid they may be told apart by ``__i`` alone where
        nobody reads the interval.
        """

    def check(self, schema: Schema, verb: str) -> None:
        """Raise for a column of the user's order that events of ``schema`` have not, or cannot be ordered by.

        ``verb`` is what the user has called.
        """
        for name in self.order(()):
            check_key(schema.require(name, verb), name, verb, "order")


__all__ = ["Window"]
