"""How a module of a user's is called for one window: within its time limit, twice in checking mode, and what a failure says.

Liarou's and Ali's engines call such code blindly; StreamInsight's contract (Ali et al., The Extensibility Framework in Microsoft
StreamInsight, V.D) is that it is deterministic, which the checking mode refutes.
"""

from __future__ import annotations

import ctypes
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamq.choices import Stamp
from streamq.errors import ModuleFailed, sentence
from streamq.plan.named import Named
from streamq.plan.own_names import show_argument, shown_group
from streamq.runtime.rendering import python_rows
from streamq.runtime.user_code.returns import Lifetime, RowShape, Unfit, fit, plain_result, reason_of, shortened
from streamq.runtime.user_code.states import Module
from streamq.runtime.user_code.window_interval import WindowInterval, instant_of
from streamq.time import INFINITY, INTEGER, TIMESTAMP, show_ticks

FIRST = 3
"""How many events of a window an error shows."""

NOBODY_TAKES = "Give the run a late_sink, which takes what fails."
"""The hint of an error where a module would set aside what it fails for, and there is nothing that takes it."""


class TimeUp(Unfit):
    """A call has run for longer than its module may."""


@dataclass(frozen=True, kw_only=True)
class Calling(Named):
    """A module, and how it is called: ``names`` of its arguments, and what it gives.

    rows: the shape of the rows that an operator gives; None: it gives one value of type ``to``, which errors call ``shown_type``.
    stamp: what becomes of the lifetimes of such rows. time_limit: seconds a window may take; None: any. checked: whether each
    call is repeated. quarantine: whether a window that fails is set aside, and the query goes on.
    """

    module: Module
    names: tuple[str, ...]
    to: pa.DataType
    shown_type: str
    axis: pa.DataType
    rows: RowShape | None = None
    stamp: Stamp = Stamp.ALIGN
    time_limit: float | None = None
    checked: bool = False
    quarantine: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """What errors call the module."""
        return self.module.name

    @property
    def identity(self) -> str:
        return f"{self.module.identity}:{self.to}:{self.rows}:{self.stamp}:{self.names}"

    def value(self, result: Any, window: tuple[int, int]) -> Any:
        """Return what the module gave as a value of the result column; raises Unfit for what is none."""
        if self.rows is None:
            return fit(plain_result(result), self.to, self.shown_type)
        return self.rows.rows(result, self.axis, lambda lifetime: self._placed(lifetime, window))

    @property
    def of_nothing(self) -> Any:
        """What a window gives all of whose members a filter has left out: NULL, or no rows. The module is not called."""
        return None if self.rows is None else []

    def interval(self, window: tuple[int, int]) -> WindowInterval:
        """Return the window as the module reads it."""
        return WindowInterval(instant_of(window[0], self.axis), instant_of(window[1], self.axis))

    def _placed(self, lifetime: Lifetime | None, window: tuple[int, int]) -> tuple[int, int | None]:
        """Where a row of an operator lives that has this lifetime of its own; an end of None is infinite."""
        start, end = window if lifetime is None else lifetime
        if self.stamp is Stamp.CLIP:
            start, end = max(start, window[0]), min(end, window[1])
        if start < window[0]:
            raise Unfit(
                f"a row that starts at {self.shown_instant(start)}, before its window, under stamp={self.stamp!r}"
            )
        if end <= start:
            where = " in its window" if self.stamp is Stamp.CLIP else ""
            raise Unfit(f"a row with no lifetime{where}, under stamp={self.stamp!r}")
        return start, None if end == INFINITY else end

    def shown_instant(self, ticks: int) -> str:
        """An instant as errors show it."""
        return show_ticks(ticks, TIMESTAMP if pa.types.is_timestamp(self.axis) else INTEGER)


@dataclass(frozen=True)
class FirstEvents:
    """The first of so many events, as rows of what a module is called with."""

    rows: Sequence[Mapping[str, Any]]
    count: int

    def __str__(self) -> str:
        shown = "; ".join(
            ", ".join(show_argument(n, shortened(value)) for n, value in row.items()) for row in self.rows
        )
        return f"the first of {self.count} events: {shown}" if self.count > len(self.rows) else f"events: {shown}"


def first_rows(events: pa.Table) -> list[dict[str, Any]]:
    """Return those of the events that an error shows."""
    return python_rows(events.slice(0, FIRST))


def failed(
    calling: Calling, error: BaseException, *, window: tuple[int, int], group: Mapping[str, Any], events: FirstEvents
) -> ModuleFailed:
    """Return the error that names the module, the window, the group and the first events."""
    what = reason_for(calling, error, window=window, group=group, events=events)
    hint = NOBODY_TAKES if calling.quarantine else ""
    return ModuleFailed(sentence(calling.name, "it failed", what, hint))


def reason_for(
    calling: Calling, error: BaseException, *, window: tuple[int, int], group: Mapping[str, Any], events: FirstEvents
) -> str:
    """Return what went wrong, in which window and group, and the first events, on one line."""
    start, end = (calling.shown_instant(ticks) if ticks != INFINITY else "NULL" for ticks in window)
    of_group = "".join(f", {name} = {shortened(value)}" for name, value in shown_group(group).items())
    return " ".join(f"{reason_of(error)}; window [{start}, {end}){of_group}; {events}".split())


class Guard(Protocol):
    """The watch over a module's calls: the seconds that one may take (None: any), and whether it is made twice."""

    @property
    def time_limit(self) -> float | None: ...

    @property
    def checked(self) -> bool: ...


def guarded(guard: Guard, compute: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return what ``compute`` gives, a result and the state behind it, within the time limit.

    In checking mode it is computed twice, and the results must be the same.
    """
    result, state = limited(compute, guard.time_limit)
    if guard.checked:
        again, _ = limited(compute, guard.time_limit)
        if pickled(again) != pickled(result):
            raise Unfit(f"two calls with the same events gave {shortened(result)} and {shortened(again)}")
    return result, state


def unchanging(call: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return a call that raises Unfit where code changes a state or values that it is given."""

    def watched(*arguments: Any) -> Any:
        before = pickled(arguments)
        result = call(*arguments)
        # unequal pickles may be of equal values
        if pickled(arguments) != before and not _is_same(pickle.loads(before), arguments):
            raise Unfit(
                f"{what} changes what it is given: from {shortened(pickle.loads(before))} to {shortened(arguments)}"
            )
        return result

    return watched


def unchanging_module(module: Module) -> Module:
    """Return a module whose methods raise Unfit where they change a state or values that they are given."""
    methods = {name: getattr(module, name) for name in ("add", "result", "remove", "merge")}
    watched: dict[str, Any] = {name: unchanging(call, name) for name, call in methods.items() if call is not None}
    return replace(module, **watched)


def _is_same(before: Any, now: Any) -> bool:
    if type(before) is not type(now):
        return False
    if isinstance(now, tuple | list):
        return len(before) == len(now) and all(map(_is_same, before, now))
    if hasattr(now, "equals"):
        return bool(before.equals(now))
    return bool(np.all(before == now))


def limited(compute: Callable[[], Any], seconds: float | None) -> Any:
    """Return what ``compute`` gives, or raise TimeUp if it takes longer; without a limit it is just called.

    It then runs in a thread, which is interrupted as soon as it comes back to Python's interpreter.
    """
    if seconds is None:
        return compute()
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((True, compute()))
        except TimeUp:
            pass  # nobody waits any more
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=run, name="streamq call", daemon=True)
    thread.start()
    thread.join(seconds)
    if len(outcome) < 2:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp))
        raise TimeUp(f"it took longer than {seconds:g} seconds")
    is_result, value = outcome
    if not is_result:
        raise value
    return value


def pickled(value: Any) -> bytes:
    """Return a state or a result as bytes; of a class that only this process has, with the class. Raises Unfit for others."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        try:
            return cloudpickle.dumps(value)
        except Exception as error:
            raise Unfit(f"{shortened(value)} cannot be pickled ({reason_of(error)})") from error


__all__ = [
    "NOBODY_TAKES",
    "Calling",
    "FirstEvents",
    "Guard",
    "TimeUp",
    "failed",
    "first_rows",
    "guarded",
    "limited",
    "pickled",
    "reason_for",
    "unchanging",
    "unchanging_module",
]
