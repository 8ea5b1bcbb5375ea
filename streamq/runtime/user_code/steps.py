"""How a module that goes from event to event is called: with the state so far and an event's values, for a new state and rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamq.runtime.user_code.calls import guarded, pickled, unchanging
from streamq.runtime.user_code.returns import RowShape, Unfit, shortened


@dataclass(frozen=True, kw_only=True)
class EventCalling:
    """A module's code as it is called for one event.

    initial: makes the state before the first event of a group; step: gives the next state and the rows of an event; names: those
    of the event's values, for errors; rows: the shape of the rows; sensitive: whether ``step`` takes the event's start before
    the values; at_once: whether it takes, in their place, a list of the values of all events of one start; time_limit: seconds
    that a call may take, None: any; checked: whether each call is repeated; quarantine: whether an event whose call fails is set
    aside; needed_until: gives the last start of an event for which a state differs from the first one, None: it may for good;
    completes_matches: whether its rows are the matches of a pattern.
    """

    name: str
    initial: Callable[[], Any]
    step: Callable[..., Any]
    names: tuple[str, ...]
    rows: RowShape
    sensitive: bool = False
    at_once: bool = False
    time_limit: float | None = None
    checked: bool = False
    quarantine: bool = False
    needed_until: Callable[[Any], int] | None = None
    completes_matches: bool = False

    def after(self, state: Any, values: Sequence[Any]) -> tuple[Any, list[dict[str, Any]]]:
        """Return the state after an event, and the event's rows; raises Unfit for what the code may not give.

        In checking mode both calls get a copy of the state.
        """
        body = pickled(state) if self.checked else b""
        step = unchanging(self.step, "step") if self.checked else self.step

        def compute() -> tuple[tuple[Any, list[dict[str, Any]]], None]:
            before = pickle.loads(body) if self.checked else state
            # the next state is a part of the result: it is compared, too
            return self._parts(step(before, *values)), None

        parts: tuple[Any, list[dict[str, Any]]] = guarded(self, compute)[0]
        return parts

    def _parts(self, result: Any) -> tuple[Any, list[dict[str, Any]]]:
        if not isinstance(result, tuple) or len(result) != 2:
            raise Unfit(f"a step gives (state, rows), and this one {shortened(result)}")
        state, rows = result
        return state, self.rows.rows(rows, pa.int64(), _has_no_window)


def _has_no_window(lifetime: object) -> tuple[int, int | None]:
    raise Unfit("a row has a lifetime of its own")


__all__ = ["EventCalling"]
