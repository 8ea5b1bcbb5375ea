"""The forms of user code, and the calls that hosts make of each: functions, classes or objects with states, steps."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructField

from streamq.errors import PlanError, sentence
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.user_code.calls import ModuleStates
from streamq.runtime.user_code.code_values import RowShape, as_frame, series_of
from streamq.user_code.signature import (
    AGGREGATOR,
    INCREMENTAL,
    STEPWISE,
    check_method,
    check_methods,
    check_options,
    has_states,
    signature_without_self,
)

S = TypeVar("S", bound=RowShape)

_METHODS = ("initial", "result", "zero", "reduce", "finish")
"""The methods that distinguish a class with states from a type that is called like a function."""


def module_states(
    code: Any,
    verb: str,
    *,
    name: str = "",
    options: Mapping[str, Any] | None = None,
    time_sensitive: bool = False,
    order_insensitive: bool = False,
) -> ModuleStates:
    """Return the states of a user's aggregating code, by its methods; raises PlanError, at ``verb``, for code of no known form.

    The code is a class, made with the ``options``, or an object with ``initial()``, ``add(state, values)``, ``result(state)`` and
    optionally ``remove(state, values)`` and ``merge(a, b)``; a class in the shape of Spark's Aggregator, with ``zero()``,
    ``reduce(buffer, value)``, ``merge(a, b)`` and ``finish(buffer)``; or a function of all values and the ``options``, which
    depends on their order unless it is ``order_insensitive``. Values are a pandas Series per argument, for an Aggregator one
    event at a time. ``time_sensitive`` code gets a DataFrame instead, and functions and ``result`` also take the window.
    """
    name, options = name or getattr(code, "__name__", type(code).__name__), dict(options or {})
    is_type = inspect.isclass(code) and not any(hasattr(code, method) for method in _METHODS)
    module = code if is_type else object_of(name, code, options, verb)
    read: Any = as_frame if time_sensitive else series_of
    if _has(module, INCREMENTAL):
        remove, merge = getattr(module, "remove", None), getattr(module, "merge", None)
        states = (module.initial, module.add, module.result, remove, merge)
        if not time_sensitive:
            states = (module.initial, _spread(module.add), module.result, remove and _spread(remove), merge)
        return ModuleStates(name, *states, code=code, options=options, sensitive=time_sensitive, read=read)
    if _has(module, AGGREGATOR):
        if time_sensitive:
            hint = "Give initial(), add(state, events) and result(state, window)."
            raise PlanError(sentence(verb, "Spark's Aggregator does not know time", f"found {name}", hint))
        return _aggregator(name, code, module, options)
    # a type such as list, which converts values, is called like a function
    if callable(module) and (is_type or not inspect.isclass(code)):
        return ModuleStates(
            name,
            lambda: None,
            lambda _, events: events,
            _of_function(code, options, time_sensitive),
            in_parts=False,
            any_order=order_insensitive,
            code=code,
            options=options,
            sensitive=time_sensitive,
            read=read,
        )
    methods = "initial(), add(state, values), result(state)"
    hint = f"Give an aggregate, a function of Series, or what has {methods}, or zero, reduce, merge and finish."
    raise PlanError(sentence(verb, "not a module", f"found {code!r}", hint))


def object_of(name: str, code: Any, options: Mapping[str, Any], verb: str = "") -> Any:
    """Return an object of a class, made with the options; return code that is no class unchanged.

    Raises PlanError if the class does not take these options, and for an object with options, because only classes and
    functions take them.
    """
    if not inspect.isclass(code):
        if options and not inspect.isroutine(code):
            hint = "Give the class, which is made with them, or a function."
            raise PlanError(
                sentence(verb or name, "an object takes no parameters", f"found {', '.join(options)}", hint)
            )
        return code
    signature = signature_without_self(code)
    if signature is not None:
        check_options(name, signature, options, f"It is {name}{signature}.")
    try:
        return code(**options)
    except TypeError as error:
        raise PlanError(
            sentence(name, "it cannot be made", str(error), f"It is {name}{signature_of(code)}.")
        ) from error


def signature_of(code: Any) -> str:
    """Return the signature of code as text; ``(...)`` if Python knows none."""
    try:
        return str(inspect.signature(code))
    except (TypeError, ValueError):
        return "(...)"


def _has(module: Any, methods: Mapping[str, str]) -> bool:
    """True if the module has an attribute, other than None, for each of the methods (the keys; the values are arguments)."""
    return all(getattr(module, method, None) is not None for method in methods)


def _of_function(function: Callable[..., Any], options: Mapping[str, Any], sensitive: bool) -> Callable[..., Any]:
    """Return ``result`` for a function of all members at once, whose state is the events so far."""
    if sensitive:
        return lambda events, window: function(events, window, **options)
    return lambda values: function(*values, **options)


def _spread(method: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a method that takes all arguments as one value, for one that takes a Series per argument."""
    return lambda state, values: method(state, *values)


def _aggregator(name: str, code: Any, module: Any, options: Mapping[str, Any]) -> ModuleStates:
    """Return the states of a Spark Aggregator, which reduces one value (a tuple of several) at a time into a buffer.

    Its methods may change and return the buffer, so they get copies.
    """

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

    return ModuleStates(name, zero, reduce, finish, merge=merge, code=code, options=options, read=read)


@dataclass(frozen=True)
class StatefulCode:
    """Code that goes from event to event: ``initial`` makes the first state, ``step`` returns the next state and rows.

    own: the function or method as written; method: the name of the method, if it is one; options: keyword arguments of the
    function.
    """

    initial: Callable[[], Any]
    step: Callable[..., Any]
    own: Callable[..., Any]
    method: str
    options: Mapping[str, Any]


def steps_of(name: str, code: Any, initial: Any, options: Mapping[str, Any]) -> StatefulCode:
    """Return stateful user code in the form in which it is called; raises PlanError for a generator.

    The code is a class, made with the options, or an object with ``initial()`` and ``step(state, *values)``; or, if ``initial``
    is a state and not ``...``, a function ``f(state, *values)`` with the options.
    """
    if initial is ...:
        module = object_of(name, code, options)
        steps = StatefulCode(module.initial, module.step, module.step, "step", {})
    else:
        # copied, so that a step that changes the first state affects only its group
        start = lambda: copy.deepcopy(initial)  # noqa: E731
        called = (lambda *arguments: code(*arguments, **options)) if options else code
        steps = StatefulCode(start, called, code, "", options)
    if inspect.isgeneratorfunction(steps.own):
        hint = "Return the state, and a list of rows."
        raise PlanError(sentence(name, "a step gives (state, rows)", "this one is a generator", hint))
    return steps


def check_steps(name: str, code: Any, initial: Any, *, sensitive: bool) -> None:
    """Raise PlanError unless code is an object or class with ``initial()`` and ``step``, or a function with an ``initial`` state.

    Raises it also if there are two initial states, or if a method does not take its arguments. A ``sensitive`` step takes the
    start of the event, before the values.
    """
    if initial is ... and has_states(code):
        check_methods(name, code, STEPWISE)
        check_method(name, code, "initial", "")
        check_method(name, code, "step", "state, start, *values" if sensitive else "state, *values")
    has_methods = all(callable(getattr(code, method, None)) for method in STEPWISE)
    if has_methods and initial is not ...:
        both = "the code has initial(), and initial= is given"
        raise PlanError(sentence("udso", "two initial states", both, "Say it in one of them."))
    if not has_methods and (initial is ... or not inspect.isroutine(code)):
        hint = "Give a class with initial() and step(state, *values), or say initial= and give a function."
        raise PlanError(sentence("udso", "no code that goes from event to event", f"found {code!r}", hint))


def row_shape(
    fields: Sequence[StructField],
    shape: type[S],
    *,
    timed: bool = False,
    keeps_lifetimes: bool = False,
    single: bool = False,
) -> S:
    """Return an object of the class ``shape`` that describes the rows which user code returns, with these columns.

    timed: rows may have lifetimes of their own; keeps_lifetimes: these lifetimes are part of the result; single: the code
    returns exactly one row.
    """
    return shape(
        names=tuple(field.name for field in fields),
        types=tuple(arrow_type(field.dataType) for field in fields),
        shown_types=tuple(field.dataType.simpleString() for field in fields),
        timed=timed,
        keeps_lifetimes=keeps_lifetimes,
        single=single,
    )


__all__ = ["StatefulCode", "check_steps", "module_states", "object_of", "row_shape", "signature_of", "steps_of"]
