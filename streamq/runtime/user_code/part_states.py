"""States over parts of windows, with what errors say of their events: merged, pickled, or held in this process's memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamq.runtime.user_code.calls import FIRST, pickled
from streamq.runtime.user_code.code_values import FAILURES, ReturnError, reason_of

NOTHING = b""
"""The state over no events, for which the module is not called; None may be a state of the module."""

StateRows = tuple[tuple[Any, ...], ...]
"""The first events of a state, as their arguments in order."""

Merge = Callable[[Any, Any], Any]


class PartState(NamedTuple):
    """A state over a number of ``events``; errors show the ``first`` of them; ``error``: the failure, if there is no state.

    A call that fails for a part of a window fails for each window with that part, and is reported for that window.
    """

    state: Any
    first: StateRows
    events: int
    error: BaseException | None = None

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


def part_state(compute: Callable[[], Any], first: StateRows, events: int) -> PartState:
    """Return the state that ``compute`` returns, with the number of its events and the first ones; its error if it fails."""
    try:
        return PartState(compute(), first, events)
    except FAILURES as error:
        return PartState(None, first, events, error)


def unpickled(body: bytes) -> PartState:
    """Return the state in bytes that :attr:`PartState.pickle` returned."""
    return PartState(*pickle.loads(body))


def merged_parts(parts: Sequence[PartState], merge: Merge) -> PartState:
    """Return the state over the events of all parts, at least one; it is an error if one of them is, or if ``merge`` fails.

    Of several errors the first in the order of the parts is returned.
    """
    state, first, events, error = parts[0]
    for part in parts[1:]:
        if len(first) < FIRST:
            first = (first + part.first)[:FIRST]
        events += part.events
        error = error or part.error
        if error is None:
            try:
                state = merge(state, part.state)
            except FAILURES as failure:
                error = failure
    return PartState(state if error is None else None, first, events, error)


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


__all__ = ["NOTHING", "HeldState", "PartState", "StateRows", "merged_parts", "part_state", "unpickled"]
