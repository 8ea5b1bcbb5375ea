"""Windows as verbs: over a whole stream or per group, and what a window's ``select`` and ``top_k`` make of its members."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from streamq.aggregates.window_bounds import WINDOW_EDGES
from streamq.errors import PlanError, TimeError, UnknownVerb, column_names, kind_of, sentence
from streamq.operators.grid import grid
from streamq.operators.select import Select
from streamq.operators.top_k import TopK
from streamq.operators.window import show_keys, show_window
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.keys import check_key
from streamq.plan.lifetime import Lifetime
from streamq.plan.passes import columns, nodes, rewrite
from streamq.plan.resolve import Given, column_or_expr, named, resolve
from streamq.plan.schema import POINT, check_names
from streamq.plan.tree import show
from streamq.plan.verbs import Verbs, named_after
from streamq.time import Duration, instant_ticks, ticks
from streamq.windows import (
    ALIGN,
    CLIPS,
    POINT_AT_END,
    STAMPS,
    Count,
    Landmark,
    Rows,
    Session,
    Snapshot,
    Window,
    default_stamp,
)

S = TypeVar("S", bound=Verbs)


class _Windows(ABC, Generic[S]):
    """The window verbs; shared by streams and groups."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named_after(_Windows, "Stream")

    @abstractmethod
    def _grouped(self) -> Grouped[S]:
        """The stream by its groups; without keys it is one group."""

    def _windowed(self, make: Callable[[Any], Window], clip_input: str, stamp: str | None) -> Windowed[S]:
        given = self._grouped()
        return windowed(given.stream, given.keys, make(given.stream.plan.schema.axis), clip_input, stamp)

    def hopping_window(
        self, size: Duration, hop: Duration, offset: Duration = 0, *, clip_input: str = "full", stamp: str | None = None
    ) -> Windowed[S]:
        """The windows ``[offset + i*hop, offset + i*hop + size)`` for every integer i.

        ``size``, ``hop`` and ``offset`` are durations with a unit on a timestamp axis, integer ticks on an integer axis;
        size and hop may be any positive durations. An event is a member of every window its lifetime overlaps; a window
        without a member yields nothing; a result row lives on its window. Raises TimeError.

        All window verbs take ``clip_input``, how members' lifetimes are cut before a time-sensitive aggregate reads them
        ("full", "left", "right", "none"), and ``stamp``, where a result lives: "align" (on its window) or "point_at_end"
        (the tick at the window's end). (SEMANTICS sections 3 and 4; Liarou et al., Enhanced Stream Processing in a DBMS
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
        return self._windowed(lambda axis: grid(size, hop, offset, axis, "hopping_window"), clip_input, stamp)

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
        return self._windowed(lambda axis: grid(size, size, offset, axis, "tumbling_window"), clip_input, stamp)

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
        return self._windowed(lambda axis: Snapshot(), clip_input, stamp)

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
        given = self._grouped()
        return Grouped(_slid(given.stream, duration), given.keys).snapshot_window(clip_input=clip_input, stamp=stamp)

    def count_window(
        self, n: int, by: str = "start", *, clip_input: str = "full", stamp: str | None = None
    ) -> Windowed[S]:
        """Windows of ``n`` consecutive distinct starts (or finite ends, ``by="end"``): ``[s_i, s_(i+n-1) + 1 tick)``.

        Members are the events whose start (end) lies in the window: with ties more than n. By ends, ``clip_input`` is "none"
        or "right". Results are points at the window's end unless ``stamp="align"``.

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
        if by not in ("start", "end"):
            raise PlanError(sentence("count_window", 'by is "start" or "end"', f"found {by!r}"))
        _whole("count_window", "n", n)
        if by == "end":
            clip_input = "right" if clip_input == "full" else clip_input
            if clip_input not in ("none", "right"):
                raise PlanError(
                    sentence("count_window", "windows of ends clip right or not at all", f"found {clip_input!r}")
                )
        return self._windowed(lambda axis: Count(n, by), clip_input, stamp)

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
        _whole("rows_window", "n", n)
        _whole("rows_window", "step", step)
        names = column_names(order_by, "rows_window", "order_by")
        return self._windowed(lambda axis: Rows(n, step, names), clip_input, stamp)

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

        def make(axis: str) -> Session:
            if ticks(gap, axis, "session_window") < 2:
                raise TimeError(sentence("session_window", "gap must be at least two ticks", f"found {gap!r}"))
            return Session(ticks(gap, axis, "session_window"))

        return self._windowed(make, clip_input, stamp)

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
        if start is None and period is None:
            raise PlanError(sentence("landmark_window", "no landmark", "", "Say start=..., period=..., or both."))

        def make(axis: str) -> Landmark:
            at = instant_ticks(start, axis, "landmark_window") if start is not None else 0
            every = None if period is None else ticks(period, axis, "landmark_window")
            for name, given in (("hop", ticks(hop, axis, "landmark_window")), ("period", every)):
                if given is not None and given <= 0:
                    raise TimeError(sentence("landmark_window", f"{name} must be positive", f"found {given} ticks"))
            return Landmark(ticks(hop, axis, "landmark_window"), at or 0, every)

        return self._windowed(make, clip_input, stamp)


def _whole(verb: str, name: str, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise PlanError(sentence(verb, f"{name} is a whole number of at least 1", f"found {given!r}"))


class WindowVerbs(_Windows[Any], Verbs):
    """Windows over the whole stream, and ``group_by`` for windows per group."""

    def _grouped(self) -> Grouped[Any]:
        return Grouped(self, ())

    def group_by(self, *keys: str, **named_keys: Given) -> Grouped[Self]:
        """Windows per group: rows with equal keys form one stream; NULLs are equal. A keyword names a computed key.

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
        return Grouped(stream, names)


class Grouped(_Windows[S]):
    """A stream by groups: what ``group_by`` returns."""

    called = "a group without a window"
    not_yet = "Add a window first, as .tumbling_window(size).select(...), or .apply(...)."

    def __init__(self, stream: S, keys: tuple[str, ...]):
        self.stream, self.keys = stream, keys

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise _asked_too_early(name, self)

    def __repr__(self) -> str:
        return f"{self.stream!r} by {', '.join(self.keys)}"

    def select(self, *columns: Given, **named_columns: Given) -> S:
        """Groups alone have no rows: raises PlanError, naming the windows to choose from."""
        raise PlanError(
            sentence(
                "select",
                "a group without a window",
                f"found {self!r}",
                "Add a window, as .tumbling_window(size), or use .apply(...).",
            )
        )

    agg = select

    def apply(self, sub_plan: Callable[[S], S]) -> S:
        """A whole sub-plan per group: ``sub_plan`` gets a stream of one group's events and gives the group's result.

        Its columns follow the keys that it does not have itself. It may use any verb, ``group_by`` too; other streams may be
        joined to the group, they are the same for every group. (Group & Apply; SEMANTICS section 3.)

        ::

            events  a [1,5)  a [3,8)   b [4,6)
            counts  a 1 [1,3)  a 2 [3,5)  a 1 [5,8)   b 1 [4,6)

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "a"}), (4, 6, {"k": "b"})])
        >>> s.group_by("k").apply(lambda g: g.snapshot_window().select(n=sq.count()).where(sq.col("n") > 1)).show()
        k  n  start  end
        a  2      3    5
        """
        from streamq.operators.grouping import Group, applied

        if not callable(sub_plan):
            raise PlanError(
                sentence("apply", "not a function", f"found {sub_plan!r}", "Write apply(lambda g: g.where(...)).")
            )
        group = Group(self.stream.plan, self.keys)
        made = sub_plan(self.stream._derive(group))
        _check_gave_stream(made)
        return made._derive(applied(made.plan, group))

    def _grouped(self) -> Grouped[S]:
        return self


def _check_gave_stream(made: object) -> None:
    if not isinstance(made, Verbs):
        cure = "End it with .select(...)." if isinstance(made, Windowed | Grouped) else ""
        raise PlanError(sentence("apply", "the sub-plan gave no stream", f"found {kind_of(made)}", cure))


def _asked_too_early(name: str, given: Grouped[Any] | Windowed[Any]) -> AttributeError:
    """For a verb of streams on what is no stream yet."""
    if name.startswith("_") or name in ("stream", "keys", "window"):
        return AttributeError(name)
    return UnknownVerb(sentence(name, given.called, "", given.not_yet))


def _slid(stream: Any, duration: Duration) -> Any:
    if ticks(duration, stream.plan.schema.axis, "sliding_window") <= 0:
        raise TimeError(sentence("sliding_window", "the duration must be positive", f"found {duration!r}"))
    return stream.set_duration(duration) if stream.plan.schema.shape == POINT else stream.extend(duration)


def windowed(stream: S, keys: tuple[str, ...], window: Window, clip: str, stamp: str | None) -> Windowed[S]:
    """A stream in windows; raises PlanError for a policy that does not exist or does not fit."""
    verb = f"{window.name}_window"
    if clip not in CLIPS:
        raise PlanError(sentence(verb, f"no input clipping {clip!r}", f"there are: {', '.join(CLIPS)}"))
    if stamp is not None and stamp not in STAMPS:
        raise PlanError(sentence(verb, f"no stamp {stamp!r}", f"there are: {', '.join(STAMPS)}"))
    if stamp is not None and stamp not in (ALIGN, POINT_AT_END):
        raise PlanError(
            sentence(
                verb,
                f"stamp {stamp!r} is for operations that give their own lifetimes",
                "aggregates and top_k have none",
                f"Say {ALIGN!r} or {POINT_AT_END!r}.",
            )
        )
    if isinstance(window, Rows):
        for name in window.order_by:
            check_key(stream.plan.schema.require(name, verb), name, verb, "order")
    return Windowed(stream, keys, window, clip, stamp or default_stamp(window))


def check_not_nested(expr: Expr) -> None:
    """Raise for an aggregate of an aggregate."""
    for outer in nodes(expr):
        if isinstance(outer, Aggregate):
            inner = [n for part in outer.children for n in nodes(part) if isinstance(n, Aggregate)]
            if inner:
                raise PlanError(
                    sentence(
                        outer.name,
                        "an aggregate of an aggregate",
                        f"found {show(inner[0])} inside",
                        "Put a window over the window: .select(n=...).tumbling_window(...).select(...).",
                    )
                )


@dataclass(frozen=True)
class Windowed(Generic[S]):
    """A stream in windows: ``select`` says what to make of each window's members."""

    called: ClassVar[str] = "a window without a select"
    not_yet: ClassVar[str] = "Call select(...) first, as .select(n=sq.count())."

    stream: S
    keys: tuple[str, ...]
    window: Window
    clip: str
    stamp: str

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise _asked_too_early(name, self)

    def __repr__(self) -> str:
        shown = show_window(self.window, self.stream.plan.schema.axis)
        return f"{self.stream!r} in {self.window.name} windows ({shown}){show_keys(self.keys)}"

    def select(self, *given_columns: Given, **named_columns: Given) -> S:
        """One row a window with members: the group's keys, then a column a keyword.

        A column is an aggregate (``sq.count()``, ``sq.avg("fare")``, ...) or an expression over aggregates, keys,
        ``sq.window_start()`` and ``sq.window_end()``. Raises PlanError for a column that is neither aggregate nor key.

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"v": 2}), (3, 8, {"v": 6})])
        >>> s.tumbling_window(4).select(total=sq.sum("v"), mean=sq.sum("v") / sq.count()).show()
        total  mean  start  end
            8   4.0      0    4
            6   6.0      4    8
        """
        source = self.stream.plan
        made = list(named(given_columns, named_columns, source.schema, "select"))
        made = [(name, e) for name, e in made if not (name in self.keys and isinstance(e, Col) and e.name == name)]
        check_names([*self.keys, *(name for name, _ in made)], "select")
        found: dict[str, tuple[str, Aggregate]] = {}
        outputs: list[tuple[str, Expr]] = []

        def stands_for(aggregate: Aggregate, own: str = "") -> Expr:
            return Col(found.setdefault(aggregate.digest, (own or f"__{aggregate.name}{len(found)}", aggregate))[0])

        def reduced(part: Expr) -> Expr | None:
            return stands_for(part) if isinstance(part, Aggregate) else None

        def bounded(part: Expr) -> Expr | None:
            """The window's own bounds, where the row lives elsewhere than on its window."""
            if not isinstance(part, Lifetime) or self.stamp == ALIGN:
                return None
            if part.part == "duration":
                return rewrite(Lifetime("end") - Lifetime("start"), bounded)
            return stands_for(Aggregate(WINDOW_EDGES[part.part], ()))

        for name, given in made:
            expr = resolve(given, source, "select")
            check_not_nested(expr)
            # the aggregates first: lifetimes inside of them are their members'
            if isinstance(expr, Aggregate):
                output = stands_for(expr, name)
            else:
                output = rewrite(rewrite(expr, reduced), bounded)
            taken = {n for n, _ in found.values()}
            for column in sorted(set(columns(output)) - taken - set(self.keys)):
                raise PlanError(
                    sentence(
                        "select",
                        f"column {column!r} is neither aggregated nor a key",
                        f"found {show(expr)}",
                        f"Aggregate it, as sq.max({column!r}), or group by it.",
                    )
                )
            outputs.append((name, output))
        node = WindowAggregate(source, self.keys, self.window, tuple(found.values()), self.clip, self.stamp)
        plain_columns = [*self.keys, *(name for name, _ in found.values())]
        final = [*((k, Col(k)) for k in self.keys), *outputs]
        if [name for name, _ in final] == plain_columns and all(
            isinstance(e, Col) and e.name == name for name, e in final
        ):
            return self.stream._derive(node)
        return self.stream._derive(Select(node, tuple(final)))

    agg = select

    def top_k(self, k: int, by: Given, *, desc: bool = True, ties: str = "keep") -> S:
        """The ``k`` members of each window with the greatest (``desc=False``: least) ``by``, and their ``rank``.

        Ranks are SQL's RANK: equal values share one; with ``ties="keep"`` all that share the last rank stay, ``"break"`` lets
        the payload decide. A NULL is less than any value. Rows carry the member's payload. (SEMANTICS section 3.)

        ::

            events   3 at 1  5 at 2  1 at 3   k = 2
            window   [0,5): 5 with rank 1, 3 with rank 2

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 5}), (3, 4, {"v": 1})])
        >>> s.tumbling_window(5).top_k(2, by="v").show()
        v  rank  start  end
        3     2      0    5
        5     1      0    5
        """
        _whole("top_k", "k", k)
        if ties not in ("keep", "break"):
            raise PlanError(sentence("top_k", 'ties is "keep" or "break"', f"found {ties!r}"))
        source = self.stream.plan
        order = resolve(column_or_expr(by), source, "top_k")
        return self.stream._derive(TopK(source, self.keys, self.window, k, order, desc, ties, self.clip, self.stamp))


named_after(Grouped, "group_by(...)")
named_after(Windowed, "window")
