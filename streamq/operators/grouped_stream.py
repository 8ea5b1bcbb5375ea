"""Grouped streams: windows per group, and whole sub-plans per group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streamq.errors import PlanError, kind_of, sentence
from streamq.operators.group_apply import Group, apply_to_groups
from streamq.operators.scan import ScanVerbs
from streamq.operators.window_verbs import WindowVerbs
from streamq.operators.windowed_stream import WindowedStream, missing_verb
from streamq.plan.keys import check_key
from streamq.plan.resolve import ExprArgument
from streamq.plan.schema import check_names
from streamq.plan.verbs import Verbs, named_after

S = TypeVar("S", bound=Verbs)


class GroupVerbs(WindowVerbs[Any], Verbs):
    """The window verbs over the whole stream, and ``group_by``, after which they apply per group."""

    def _groups(self) -> tuple[Any, tuple[str, ...]]:
        return self, ()

    def group_by(self, *keys: str, **named_keys: ExprArgument) -> GroupedStream[Self]:
        """Group the stream by keys, for windows, ``scan`` or sub-plans per group; NULLs are equal.

        Arguments are columns; a keyword argument is a computed key of that name, in which a string is a constant. Raises
        PlanError without a key, UnknownColumn, and TypeMismatch for a key that has no equality.

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.group_by("k").tumbling_window(4).select(n=sq.count()).show()
        k  n  start  end
        a  1      0    4
        b  1      0    4
        b  1      4    8
        """
        if not keys and not named_keys:
            raise PlanError(sentence("group_by", "no key", "", "Name at least one column, or leave group_by out."))
        stream: Any = self
        if named_keys:
            stream = stream.with_columns(**named_keys)
        names: tuple[Any, ...] = (*keys, *named_keys)
        for name in names:
            if not isinstance(name, str):
                cure = "Name a computed key: group_by(k=expression)."
                cure = 'Give them one by one: group_by("a", "b").' if isinstance(name, list | tuple) else cure
                raise PlanError(sentence("group_by", "a key is a column name", f"found {name!r}", cure))
            check_key(stream.plan.schema.require(name, "group_by"), name)
        check_names(names, "group_by")
        return GroupedStream(stream, names)


class GroupedStream(ScanVerbs[S], WindowVerbs[S]):
    """A stream divided into groups, the result of ``group_by``."""

    called = "a group without a window"
    not_yet = "Add a window first, as .tumbling_window(size).select(...), for results of windows .per_window(), or .apply(...)."

    def __init__(self, stream: S, keys: tuple[str, ...]):
        self.stream, self.keys = stream, keys

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_verb(name, self)

    def __repr__(self) -> str:
        return f"{self.stream!r} by {', '.join(self.keys)}"

    def select(self, *columns: ExprArgument, **named_columns: ExprArgument) -> S:
        """Compute one row for each window and group of the pairs of a :meth:`windowed_join`, as :meth:`per_window` does.

        Over :meth:`last_rows`, and pairs of them, the windows are snapshots, as of :meth:`snapshot_window`. Raises PlanError for
        groups of another stream, which need a window before; the message suggests one.
        """
        if (implied := self.stream.plan.implied_windows) is not None:
            windows: WindowedStream[S] = getattr(self, implied)()
            return windows.select(*columns, **named_columns)
        raise PlanError(
            sentence(
                "select",
                "a group without a window",
                f"found {self!r}",
                "Add a window, as .tumbling_window(size), for results of windows .per_window(), or use .apply(...).",
            )
        )

    agg = select

    def apply(self, sub_plan: Callable[[S], S]) -> S:
        """Apply a sub-plan to each group: ``sub_plan`` is a function from the stream of one group's events to its result.

        The result has the keys, unless ``sub_plan`` returns them itself, and then its columns. ``sub_plan`` may use any verb,
        ``group_by`` too, and join other streams to the group, which are the same for every group. Raises PlanError if the
        function does not return a stream of the group. (StreamInsight's Group & Apply.)

        ::

            events  a [1,5)  a [3,8)   b [4,6)
            counts  a 1 [1,3)  a 2 [3,5)  a 1 [5,8)   b 1 [4,6)

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "a"}), (4, 6, {"k": "b"})])
        >>> s.group_by("k").apply(lambda g: g.snapshot_window().select(n=sq.count()).where(sq.col("n") > 1)).show()
        k  n  start  end
        a  2      3    5
        """
        if not callable(sub_plan):
            raise PlanError(
                sentence("apply", "not a function", f"found {sub_plan!r}", "Write apply(lambda g: g.where(...)).")
            )
        group = Group(self.stream.plan, self.keys)
        result = sub_plan(self.stream._derive(group))
        _check_is_stream(result)
        return result._derive(apply_to_groups(result.plan, group))

    def _groups(self) -> tuple[S, tuple[str, ...]]:
        return self.stream, self.keys


def _check_is_stream(result: object) -> None:
    """Raise PlanError if the sub-plan of ``apply`` returned anything but a stream."""
    if not isinstance(result, Verbs):
        cure = "End it with .select(...)." if isinstance(result, WindowedStream | GroupedStream) else ""
        raise PlanError(sentence("apply", "the sub-plan gave no stream", f"found {kind_of(result)}", cure))


named_after(GroupedStream, "group_by(...)")
