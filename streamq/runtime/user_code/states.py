"""States of user code, and how they change: parts are merged, events are added and removed; remembered from call to call.

The last state is reused in two places: from window to window in one walk (``module_walk``), and from micro-batch to micro-batch,
and basic window to basic window, as partial results (``partial_states``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamq.runtime.user_code.code_values import FAILURES, EventReader, ReturnError, reason_of, short_text

FIRST = 3
"""The number of events of a window that an error shows."""


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


NOTHING = b""
"""The state over no events, for which the module is not called; None may be a state of the module."""

StateRows = tuple[tuple[Any, ...], ...]
"""The first events of a state, as their arguments in order."""


class PartState(NamedTuple):
    """A state over a number of ``events``; errors show the ``first`` of them; ``error``: the failure, if there is no state.

    A call that fails for a part of a window fails for each window with that part, and is reported for that window.
    """

    state: Any
    first: StateRows
    events: int
    error: BaseException | None = None

    def valid_state(self) -> Any:
        """Return the state; raise the error in its place."""
        if self.error is not None:
            raise self.error
        return self.state

    @property
    def pickle(self) -> bytes:
        """The state with its events as bytes, for :func:`unpickled`; a state that cannot be pickled becomes an error."""
        try:
            return pickled(tuple(self))
        except FAILURES as error:
            why = error if self.error is None else self.error
            return pickled((None, self.first, self.events, ReturnError(reason_of(why))))

    @property
    def held(self) -> HeldState:
        """The state as this process holds it: itself if no merge can change it, else bytes, of which each reader has a copy."""
        return self if self.error is None and _is_immutable(self.state) else self.pickle


HeldState = PartState | bytes
"""A state in memory: the same for all its readers, or bytes for :func:`unpickled`; NOTHING: no event counts."""


def unpickled(body: bytes) -> PartState:
    """Return the state in bytes that :attr:`PartState.pickle` returned."""
    return PartState(*pickle.loads(body))


class EventSlice(NamedTuple):
    """Some events of a state: ``read`` returns them as the module takes them; the ``first`` of them, and their number."""

    read: Callable[[], Any]
    first: StateRows
    events: int


def merged_parts(
    parts: Sequence[PartState], states: States, added: EventSlice | None = None, gone: EventSlice | None = None
) -> PartState | None:
    """Return the state over the events of all parts and those ``added``, without those ``gone``; None over no events.

    It is an error if one of the parts is, or if a call fails; of several errors the first in the order of the parts.
    """
    first = sum((part.first for part in parts), ())[:FIRST] + (() if added is None else added.first)
    events = sum(part.events for part in parts) + (0 if added is None else added.events)
    if gone is not None:
        first, events = tuple(row for row in first if row not in gone.first), events - gone.events
    if events <= 0:
        return None
    state, error = None, next((part.error for part in parts if part.error is not None), None)
    try:
        if error is None or parts[0].error is None:
            state = _merged(parts, states)
        if error is None and added is not None:
            state = states.add(state, added.read())
        if error is None and gone is not None:
            assert states.remove is not None
            state = states.remove(state, gone.read())
    except FAILURES as failure:
        error = failure
    return PartState(None if error is not None else state, first[:FIRST], events, error)


def _merged(parts: Sequence[PartState], states: States) -> Any:
    """Return the merged state of the parts before the first error; the initial one without parts."""
    before = [part.state for part in takewhile(lambda part: part.error is None, parts)]
    if len(before) < 2:
        return before[0] if before else states.initial()
    assert states.merge is not None
    return reduce(states.merge, before)


_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Types of values that nothing can change, beside NumPy's scalars."""


def _is_immutable(value: Any, depth: int = 3) -> bool:
    """True if nothing can change a value, and it can be pickled: a number, a text, bytes, None, or a tuple of such.

    Tuples nested deeper than ``depth`` do not count.
    """
    kind = type(value)
    if kind in _ATOMS:
        return True
    if isinstance(value, tuple) and not hasattr(value, "__dict__"):
        return depth > 0 and all(_is_immutable(item, depth - 1) for item in value)
    return isinstance(value, np.number | np.bool_) and kind.__module__ == "numpy"


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
