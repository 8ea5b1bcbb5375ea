"""How a module that goes from event to event is called: with the state so far and an event's values, for a new state and rows."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamq.errors import PlanError, sentence
from streamq.plan.own_names import argument
from streamq.plan.user_code import (
    STEPWISE,
    Called,
    check_call,
    check_method,
    check_methods,
    has_states,
    signature_without_self,
)
from streamq.runtime.module import instance_of
from streamq.runtime.module_calls import guarded, pickled, unchanging
from streamq.runtime.user_results import RowShape, Unfit, shortened


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


def event_calling(
    code: Any,
    values: int,
    *,
    name: str,
    options: Mapping[str, Any],
    initial: Any,
    rows: RowShape,
    sensitive: bool,
    time_limit: float | None,
    checked: bool,
    quarantine: bool,
) -> EventCalling:
    """Return how a user's code is called for events of so many ``values``; raises PlanError for what cannot be called so.

    The code is a class, made with the options, or an object with ``initial()`` and ``step(state, *values)``; or, where
    ``initial`` is a state and not ``...``, a function ``f(state, *values)`` with the options.
    """
    check_code(name, code, initial, sensitive=sensitive)
    module: Any = instance_of(name, code, options) if inspect.isclass(code) else code
    has_methods = initial is ...
    if options and not inspect.isclass(code) and has_methods:
        hint = "Give the class, which is made with them, or a function."
        raise PlanError(sentence(name, "an object takes no parameters", f"found {', '.join(options)}", hint))
    if has_methods:
        start, step = module.initial, module.step
    else:
        start = lambda: copy.deepcopy(initial)  # noqa: E731  so that what a step does to it stays there
        step = _with_options(code, options) if options else code
    own = step if has_methods else code
    if inspect.isgeneratorfunction(own):
        hint = "Return the state, and a list of rows."
        raise PlanError(sentence(name, "a step gives (state, rows)", "this one is a generator", hint))
    before = 1 + sensitive
    own_options = {} if has_methods else options
    check_call(name, code, Called(values, own_options, before, "step" if has_methods else ""))
    names = _parameters(own, before + values)
    return EventCalling(
        name=name,
        initial=start,
        step=step,
        names=names[before:],
        rows=rows,
        sensitive=sensitive,
        time_limit=time_limit,
        checked=checked,
        quarantine=quarantine,
    )


def check_code(name: str, code: Any, initial: Any, *, sensitive: bool) -> None:
    """Raise PlanError for what is neither a class or object with ``initial()`` and ``step``, nor a function with ``initial``."""
    if initial is ... and has_states(code):
        check_methods(name, code, STEPWISE)
        check_method(name, code, "initial", "")
        check_method(name, code, "step", "state, start, *values" if sensitive else "state, *values")
    has_methods = all(callable(getattr(code, method, None)) for method in ("initial", "step"))
    if has_methods and initial is not ...:
        found = "the code has initial(), and initial= is given"
        raise PlanError(sentence("udso", "two initial states", found, "Say it in one of them."))
    if not has_methods and (initial is ... or not inspect.isroutine(code)):
        hint = "Give a class with initial() and step(state, *values), or say initial= and give a function."
        raise PlanError(sentence("udso", "no code that goes from event to event", f"found {code!r}", hint))


def _with_options(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments, **options)


def _parameters(step: Any, count: int) -> tuple[str, ...]:
    """Return the names of a step's first ``count`` parameters."""
    unnamed = list(map(argument, range(count)))
    signature = signature_without_self(step)
    if signature is None:
        return tuple(unnamed)
    named = [
        p.name for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL and p.kind is not p.KEYWORD_ONLY
    ]
    return (*named[:count], *unnamed[len(named) :])


__all__ = ["EventCalling", "check_code", "event_calling"]
