"""The forms in which a user may write code, and what hosts call of each: a function, a class or an object with states, steps."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamq.errors import PlanError, sentence
from streamq.plan.own_names import argument
from streamq.runtime.user_code.returns import RowShape
from streamq.runtime.user_code.states import Module, as_frame, series_of
from streamq.runtime.user_code.steps import EventCalling
from streamq.user_code.signature import (
    STEPWISE,
    Called,
    check_call,
    check_method,
    check_methods,
    check_options,
    has_states,
    signature_without_self,
)


def module_of(
    code: Any,
    verb: str,
    *,
    name: str = "",
    options: Mapping[str, Any] | None = None,
    time_sensitive: bool = False,
    order_insensitive: bool = False,
) -> Module:
    """A user's code as a module, by the methods it has; raises PlanError, at ``verb``, for what is none.

    It is a class, made with the ``options``, or an object with ``initial()``, ``add(state, values)``, ``result(state)`` and maybe
    ``remove(state, values)`` and ``merge(a, b)``; one in the shape of Spark's Aggregator, with ``zero()``, ``reduce(buffer,
    value)``, ``merge(a, b)`` and ``finish(buffer)``; or a function of all values and the ``options``, which goes by their order
    unless it is ``order_insensitive``. Values are a pandas Series an argument, to an Aggregator one event's at a time; if it is
    ``time_sensitive``, a DataFrame, and functions and ``result`` take the window, too.
    """
    name, options = name or getattr(code, "__name__", type(code).__name__), dict(options or {})
    is_type = inspect.isclass(code) and not any(hasattr(code, method) for method in _METHODS)
    module: Any = instance_of(name, code, options) if inspect.isclass(code) and not is_type else code

    def has(*methods: str) -> bool:
        return all(getattr(module, method, None) is not None for method in methods)

    if options and not inspect.isclass(code) and not inspect.isroutine(code):
        hint = "Give the class, which is made with them, or a function."
        raise PlanError(sentence(verb, "an object takes no parameters", f"found {', '.join(options)}", hint))
    if has("initial", "add", "result"):
        return _incremental(name, code, module, options, time_sensitive)
    if has("zero", "reduce", "merge", "finish"):
        if time_sensitive:
            hint = "Give initial(), add(state, events) and result(state, window)."
            raise PlanError(sentence(verb, "Spark's Aggregator does not know time", f"found {name}", hint))
        return _aggregator(name, code, module, options)
    # a type that makes a value of others, such as list, is called like a function
    if callable(module) and (is_type or not inspect.isclass(code)):
        return Module(
            name,
            lambda: None,
            lambda _, events: events,
            _of_function(code, options, time_sensitive),
            in_parts=False,
            any_order=order_insensitive,
            code=code,
            options=options,
            sensitive=time_sensitive,
            read=as_frame if time_sensitive else series_of,
        )
    methods = "initial(), add(state, values), result(state)"
    hint = f"Give an aggregate, a function of Series, or what has {methods}, or zero, reduce, merge and finish."
    raise PlanError(sentence(verb, "not a module", f"found {code!r}", hint))


_METHODS = ("initial", "result", "zero", "reduce", "finish")
"""By which a class is told that has states of its own."""


def instance_of(name: str, cls: type, options: Mapping[str, Any]) -> Any:
    """The object of a class; raises PlanError where it does not take these options."""
    signature = signature_without_self(cls)
    if signature is not None:
        check_options(name, signature, options, f"It is {name}{signature}.")
    try:
        return cls(**options)
    except TypeError as error:
        raise PlanError(sentence(name, "it cannot be made", str(error), f"It is {name}{signature_of(cls)}.")) from error


def signature_of(code: Any) -> str:
    """How code is called, as far as Python says it."""
    try:
        return str(inspect.signature(code))
    except (TypeError, ValueError):
        return "(...)"


def _of_function(function: Callable[..., Any], options: Mapping[str, Any], sensitive: bool) -> Callable[..., Any]:
    """The result of a function of all members at once: what has come is the state."""
    if sensitive:
        return lambda events, window: function(events, window, **options)
    return lambda values: function(*values, **options)


def _incremental(name: str, code: Any, module: Any, options: Mapping[str, Any], sensitive: bool) -> Module:
    """A class, or an object, with states of its own; a time-sensitive one takes a DataFrame, others a Series an argument."""
    remove = getattr(module, "remove", None)

    def add(state: Any, events: Any) -> Any:
        return module.add(state, events) if sensitive else module.add(state, *events)

    def taken_out(state: Any, events: Any) -> Any:
        assert remove is not None
        return remove(state, events) if sensitive else remove(state, *events)

    return Module(
        name,
        module.initial,
        add,
        module.result,
        taken_out if remove is not None else None,
        getattr(module, "merge", None),
        code=code,
        options=options,
        sensitive=sensitive,
        read=as_frame if sensitive else series_of,
    )


def _aggregator(name: str, code: Any, module: Any, options: Mapping[str, Any]) -> Module:
    """Spark's Aggregator: a value at a time (a tuple of several), into a buffer that its methods may change and return."""

    def read(columns: Mapping[str, pa.Array]) -> list[Any]:
        values = [column.to_pylist() for column in columns.values()]
        return list(zip(*values, strict=True)) if len(values) > 1 else values[0]

    def zero() -> Any:
        return copy.deepcopy(module.zero() if callable(module.zero) else module.zero)

    def reduce(buffer: Any, events: Sequence[Any]) -> Any:
        buffer = copy.deepcopy(buffer)
        for event in events:
            buffer = module.reduce(buffer, event)
        return buffer

    def merge(a: Any, b: Any) -> Any:
        return module.merge(copy.deepcopy(a), b)

    def finish(buffer: Any) -> Any:
        return module.finish(copy.deepcopy(buffer))

    return Module(name, zero, reduce, finish, merge=merge, code=code, options=options, read=read)


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


__all__ = ["check_code", "event_calling", "instance_of", "module_of", "signature_of"]
