"""Calls of modules, for events, windows and states alike: within a time limit, twice in checking mode, with errors in one form.

The states of an aggregation are here as far as a call needs them: the operations on them, and their bytes.

Liarou's and Ali's engines call such code blindly; StreamInsight's contract (Ali et al., The Extensibility Framework in Microsoft
StreamInsight, V.D) is that it is deterministic, which the checking mode can refute.
"""

from __future__ import annotations

import ctypes
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from streamq.choices import Stamp
from streamq.errors import ModuleFailed
from streamq.plan.function import VersionedCode
from streamq.plan.schema import show_argument, shown_group
from streamq.runtime.user_code.code_values import (
    EventReader,
    Lifetime,
    ReturnError,
    RowShape,
    WindowInterval,
    fit_to_type,
    instant_of,
    plain_result,
    reason_of,
    short_text,
)
from streamq.time import INFINITY, INTEGER, TIMESTAMP, show_ticks

T = TypeVar("T")

NOBODY_TAKES = "Give the run a late_sink: it receives the events that fail."
"""The hint of an error if a module sets events aside and the run has nothing that takes them."""


class CallTimeout(ReturnError):
    """Raised when a call has run for longer than its module may."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleCall:
    """The guards of a module's calls; ``name`` is the module's, for errors.

    time_limit: the seconds that a call may take; None: any number. checked: each call is made twice. quarantine: the events of
    a failing call are set aside, and the query goes on.
    """

    name: str
    time_limit: float | None = None
    checked: bool = False
    quarantine: bool = False

    def guarded(self, compute: Callable[[], T], result_of: Callable[[T], Any] = lambda outcome: outcome) -> T:
        """Return what ``compute`` returns, within the time limit.

        In checking mode it is computed twice, and the first outcome returned; raises ReturnError if what ``result_of`` returns of
        the two differs as pickles, or cannot be pickled. Raises CallTimeout for a call beyond the limit.
        """
        outcome = call_with_limit(compute, self.time_limit)
        if self.checked:
            result, again = result_of(outcome), result_of(call_with_limit(compute, self.time_limit))
            if pickled(again) != pickled(result):
                raise ReturnError(f"two calls with the same events gave {short_text(result)} and {short_text(again)}")
        return outcome

    def reason(self, error: BaseException, about: str) -> str:
        """Return the reason of a failed call on one line, with the subject of the call."""
        return " ".join(f"{reason_of(error)}; {about}".split())

    def failure(self, reason: str, *, is_taken: bool = False) -> ModuleFailed:
        """Return the error of a failed call; under quarantine it advises a late output, unless ``is_taken``: there is one."""
        return ModuleFailed(self.name, "it failed", reason, NOBODY_TAKES if self.quarantine and not is_taken else "")


def shown_values(values: Mapping[str, Any]) -> str:
    """Return arguments, or the keys of a group, as errors show them: ``v = 3, w = None``."""
    return ", ".join(show_argument(name, short_text(value)) for name, value in values.items())


def shown_instant(ticks: int, axis: pa.DataType) -> str:
    """Return an instant of an axis as errors show it."""
    return show_ticks(ticks, TIMESTAMP if pa.types.is_timestamp(axis) else INTEGER)


@dataclass(frozen=True)
class States:
    """The states of an aggregation and the operations on them; an operation returns a new state and does not change its
    arguments.

    remove, merge: None if missing; in_parts: events may be added in parts; any_order: and in any order. The result of a
    time-sensitive module takes the window: ``result(state, window)``.
    """

    name: str
    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    result: Callable[..., Any]
    remove: Callable[[Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    in_parts: bool = True
    any_order: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleStates(States):
    """The states of a user's code; ``read`` converts arguments by name to the events that ``add`` takes.

    sensitive: the code reads lifetimes and the window. Its events are then a pandas DataFrame: the arguments by name, ``start``
    and ``end``.
    """

    sensitive: bool = False
    read: EventReader

    def events(self, arguments: Mapping[str, pa.Array]) -> Any:
        """Return all events, from their arguments by name, as ``add`` takes them."""
        return self.read(arguments)(0, len(next(iter(arguments.values()))))

    @property
    def merges(self) -> bool:
        """True if states of parts of a window may be merged, so that basic windows are computed once."""
        return self.merge is not None and self.in_parts and self.any_order and not self.sensitive


def pickled(value: Any) -> bytes:
    """Return a state or a result as bytes, with its class if only this process has it; raises ReturnError if impossible."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        try:
            return cloudpickle.dumps(value)
        except Exception as error:
            raise ReturnError(f"{short_text(value)} cannot be pickled ({reason_of(error)})") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowCall(ModuleCall, VersionedCode):
    """A module as called for windows: its states, the ``names`` of its arguments, and the type of its result.

    code_text, options: texts that differ for other code, and other options. rows: the shape of the rows that an operator
    returns; None: it returns one value of type ``to``, ``shown_type`` in errors. stamp: the rule for the lifetimes of such rows.
    axis: the type of instants.
    """

    module: ModuleStates
    code_text: str
    options: str
    version: int = 1
    compatible_with: int | None = None
    names: tuple[str, ...]
    to: pa.DataType
    shown_type: str
    axis: pa.DataType
    rows: RowShape | None = None
    stamp: Stamp = Stamp.ALIGN

    @property
    def identity(self) -> str:
        return f"{self.state_identity}:{self.code_text}"

    @property
    def state_identity(self) -> str:
        shape = (self.module.sensitive, self.to, self.rows, self.stamp, self.names)
        return ":".join([self.name, self.options, *map(str, shape)])

    def answer(self, state: Any, window: tuple[int, int]) -> Any:
        """Return the module's result of a state over the members of a window, as :meth:`value` does."""
        asked = (state, self.interval(window)) if self.module.sensitive else (state,)
        return self.value(self.module.result(*asked), window)

    def value(self, result: Any, window: tuple[int, int]) -> Any:
        """Return a result for the ``window`` as a value (NULL for NaN), or as the list of its rows; ReturnError if not valid."""
        if self.rows is None:
            return fit_to_type(plain_result(result), self.to, self.shown_type)
        return self.rows.rows(result, self.axis, lambda lifetime: self._lifetime_under_stamp(lifetime, window))

    @property
    def of_nothing(self) -> Any:
        """The result of a window without members that pass the filter: NULL, or no rows; the module is not called."""
        return None if self.rows is None else []

    def interval(self, window: tuple[int, int]) -> WindowInterval:
        """Return the window as the module reads it."""
        return WindowInterval(instant_of(window[0], self.axis), instant_of(window[1], self.axis))

    def subject(
        self, window: tuple[int, int], group: Mapping[str, Any], first: Iterable[Mapping[str, Any]], count: int
    ) -> str:
        """Return the subject of a call as text: the window, the group, and the ``first`` of its ``count`` events."""
        start, end = (shown_instant(ticks, self.axis) if ticks != INFINITY else "NULL" for ticks in window)
        of_group, rows = shown_values(shown_group(group)), list(first)
        shown = "; ".join(map(shown_values, rows))
        events = f"the first of {count} events: {shown}" if count > len(rows) else f"events: {shown}"
        return f"window [{start}, {end}){of_group and ', '}{of_group}; {events}"

    def _lifetime_under_stamp(self, lifetime: Lifetime | None, window: tuple[int, int]) -> tuple[int, int | None]:
        """Return the lifetime of a row under the stamp, from its own lifetime (None: the window); an end of None is infinite.

        Under "clip" it is cut to the window. Raises ReturnError for a row that starts before its window otherwise, or of which
        nothing is left.
        """
        start, end = window if lifetime is None else lifetime
        if self.stamp is Stamp.CLIP:
            start, end = max(start, window[0]), min(end, window[1])
        if start < window[0]:
            at = shown_instant(start, self.axis)
            raise ReturnError(f"a row that starts at {at}, before its window, under stamp={self.stamp!r}")
        if end <= start:
            where = " in its window" if self.stamp is Stamp.CLIP else ""
            raise ReturnError(f"a row with no lifetime{where}, under stamp={self.stamp!r}")
        return start, None if end == INFINITY else end


@dataclass(frozen=True, kw_only=True)
class StepCall(ModuleCall):
    """A module as called for events, with the state so far and the event's values; it returns a new state and rows.

    initial: makes the state before the first event of a group; step: returns the next state and the rows of an event; names: of
    the event's values, for errors; rows: the shape of the rows; sensitive: ``step`` takes the event's start before the values.
    """

    initial: Callable[[], Any]
    step: Callable[..., Any]
    names: tuple[str, ...]
    rows: RowShape
    sensitive: bool = False

    def next_state(self, state: Any, values: Sequence[Any]) -> tuple[Any, list[dict[str, Any]]]:
        """Return the state after an event, and the event's rows; raises ReturnError if they are not valid.

        In checking mode ReturnError is raised if two calls differ, or if one changes its arguments. Raises CallTimeout beyond the
        time limit.
        """
        step = forbid_changes(self.step, "step") if self.checked else self.step

        # the next state is a part of the result, so that checking compares it
        return self.guarded(lambda: self._state_and_rows(step(state, *values)))

    def _state_and_rows(self, result: Any) -> tuple[Any, list[dict[str, Any]]]:
        """Return a step's result as its state and its rows by column; raises ReturnError if it is not valid."""
        if not isinstance(result, tuple) or len(result) != 2:
            raise ReturnError(f"a step gives (state, rows), and this one {short_text(result)}")
        state, rows = result
        return state, self.rows.rows(rows, pa.int64(), _has_no_window)


def _has_no_window(lifetime: object) -> tuple[int, int | None]:
    raise ReturnError("a row has a lifetime of its own")


def forbid_changes(call: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return ``call`` as a function that raises ReturnError, about ``what``, if it changes a state or values passed to it."""

    def watched(*arguments: Any) -> Any:
        """Return what ``call`` returns; raise ReturnError if its arguments are then unequal to their pickles from before."""
        before = pickled(arguments)
        result = call(*arguments)
        after = pickled(arguments)
        # equal values may have unequal pickles, but not once these have been read
        if after != before and pickled(pickle.loads(after)) != pickled(pickle.loads(before)):
            changed = f"from {short_text(pickle.loads(before))} to {short_text(arguments)}"
            raise ReturnError(f"{what} changes its arguments: {changed}")
        return result

    return watched


def forbid_module_changes(module: ModuleStates) -> ModuleStates:
    """Return a module whose add, result, remove and merge raise ReturnError if they change a state or values passed to them."""
    methods = {name: getattr(module, name) for name in ("add", "result", "remove", "merge")}
    watched: dict[str, Any] = {name: forbid_changes(call, name) for name, call in methods.items() if call is not None}
    return replace(module, **watched)


def call_with_limit(compute: Callable[[], T], seconds: float | None) -> T:
    """Return what ``compute`` returns; raise CallTimeout if it takes longer than the limit.

    With a limit it runs in a thread, which is interrupted after the limit, as soon as it returns to Python's interpreter.
    """
    if seconds is None:
        return compute()
    outcome: list[Any] = []

    def run() -> None:
        """Put into ``outcome`` whether the call returned, with its result or its error; nothing if it was interrupted."""
        try:
            outcome.extend((True, compute()))
        except CallTimeout:
            pass  # the caller has raised it already
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=run, name="streamq call", daemon=True)
    thread.start()
    thread.join(seconds)
    if len(outcome) < 2:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(CallTimeout))
        raise CallTimeout(f"it took longer than {seconds:g} seconds")
    is_result, value = outcome
    if not is_result:
        raise value
    result: T = value
    return result
