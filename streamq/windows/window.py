"""The base of the kinds of windows: everything that operators, the compiler, explain and the hosts need to know of one.

An interval ``[a, b)`` contains a and not b. All lengths and instants are in ticks: microseconds since 1970 (UTC) on a timestamp
axis, the column's own unit on an integer axis. LE and RE are the start and end of an event or a window. An event is a member
of a window by its *lifetime*: of every window that it overlaps, unless a kind says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from pyspark.sql import DataFrame

from streamq.choices import ClipInput, Stamp
from streamq.plan.footprint import Footprint, Retention
from streamq.plan.node import Traits, named_after
from streamq.plan.schema import Schema, check_key
from streamq.runtime.evaluators.assigner import Assigner, WindowTraits
from streamq.runtime.time.endpoints import Bound
from streamq.windows.batch_events import BatchEvents


class Window(ABC):
    """A kind of windows with its lengths: a frozen dataclass, held by plans and named in their JSON."""

    name: ClassVar[str]
    """Its name in explain."""

    bound: ClassVar[Bound] = Bound.NONE
    """The rule that bounds the windows once the input has ended; an ``until`` of the user's bounds those of all lifetimes."""

    @property
    @abstractmethod
    def traits(self) -> WindowTraits:
        """The traits by which operators and rules compute over the windows."""

    def footprint(self, longest: int | None, keys: tuple[str, ...], *, condenses: bool) -> Footprint:
        """Return the footprint of an operator that keeps the members of windows; its cost is said by the operator.

        Events live ``longest`` ticks at most, None without a bound; ``keys`` are the columns of the group. ``condenses``: the
        settled events in the same windows are one row. ``for_good`` are the events that stay, more and more, as windows to come
        may contain them, with the cure if there is one.
        """
        bound = None if longest is None else self._retention(longest, keys, condenses=condenses)
        return Footprint(
            cti="start of the earliest window not final",
            final="windows that end at or before c",
            keeps="members of windows not final",
            opens="whole groups that rows touch or with a window due",
            cost="",
            bounds=(bound,),
        )

    def _retention(self, longest: int, keys: tuple[str, ...], *, condenses: bool) -> Retention | None:
        """Return what a stream keeps of events; None where windows do not bound it. The arguments are those of footprint."""
        return None

    @abstractmethod
    def shown(self, axis: str) -> str:
        """Return the lengths as explain shows them: ``size=1 hour, hop=5 minutes``."""

    @abstractmethod
    def assigner(self, names: Sequence[str]) -> Assigner:
        """Return the assigner of events with the columns ``names`` to the windows, for streams and in-process."""

    def copies(self, events: BatchEvents) -> tuple[DataFrame, list[str]]:
        """Return, for a batch, one row for each member of each window, and the columns that identify a window of a group.

        These are ``__wle`` and ``__wre``, a window's start and end; on a grid ``__i`` alone identifies a window where nothing
        reads the interval. Windows that are not copied have none: raises NotImplementedError.
        """
        raise NotImplementedError(f"{self.name} windows are evaluated")


def default_stamp(window: Window) -> Stamp:
    """Return the lifetime of results if the user chose none.

    It is POINT_AT_END where windows may stay open for ever without events of their group, by numbers or after a landmark: if
    they lived on the windows, the results of one idle group would hold back the CTI.
    """
    stays_open = window.traits.counting.n or window.bound is Bound.ALWAYS
    return Stamp.POINT_AT_END if stays_open else Stamp.ALIGN


def result_traits(window: Window, stamp: Stamp, source: Traits) -> Traits:
    """Return the traits of results over events with the traits ``source``.

    Time-bound results may retract rows, move ends and be endless. Others may only be endless: if they live on windows that
    end by an event, because neither a rule nor a number ends them, and the source may be endless. Those that live on windows
    of a grid last as long as these, and those of snapshots no longer than the longest event.
    """
    if stamp == Stamp.TIME_BOUND:
        return Traits(True, True, True)
    if stamp != Stamp.ALIGN:
        return Traits()
    windows = window.traits
    if (grid := windows.grid) is not None:
        return Traits(longest=grid.size, cells=grid if grid.size == grid.hop else None)
    ends_by_event = window.bound is Bound.NONE and not windows.counting.n
    longest = source.longest if windows.is_piecewise else None
    return Traits(infinite=ends_by_event and source.infinite, longest=longest)


def show_lengths(window: Window, clip: ClipInput, stamp: Stamp, axis: str) -> str:
    """Return the lengths, and clip and stamp unless they are the defaults: ``gap=5, clip=left, stamp=align``."""
    shown = window.shown(axis) + ("" if clip == ClipInput.FULL else f", clip={clip}")
    return shown + ("" if stamp == default_stamp(window) else f", stamp={stamp}")


def check_order(window: Window, schema: Schema, verb: str) -> None:
    """Raise UnknownColumn or TypeMismatch for a column of the user's order of rows that ``schema`` lacks or that has no order.

    ``verb``: the name for errors.
    """
    for name in window.traits.counting.order_by:
        check_key(schema.require(name, verb), name, verb, "order")


W = TypeVar("W")


class WindowKindVerbs(ABC, Generic[W]):
    """The verbs of one kind of windows, for streams and groups; ``W`` is the type that they return."""

    def __init_subclass__(cls) -> None:
        """Make the verbs of one kind check their keywords, as verbs of Stream."""
        super().__init_subclass__()
        # what has the verbs of all kinds names its own
        if WindowKindVerbs in cls.__bases__:
            named_after(cls, "Stream")

    @property
    @abstractmethod
    def _axis(self) -> str:
        """The time axis of the stream."""

    @abstractmethod
    def _in_windows(self, window: Window, verb: str, clip_input: str, stamp: str | None) -> W:
        """Put the stream, or each group, into windows; ``verb``: the name for errors, ``clip_input``, ``stamp``: the user's."""
