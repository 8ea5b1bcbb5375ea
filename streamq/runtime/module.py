"""What code of a user's that aggregates looks like to streamq, in whatever shape it was written: states and what is done to them.

It is the contract that hosts call and ``check_module`` checks. It travels to executors with what calls it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq.errors import PlanError, sentence
from streamq.plan.fingerprint import fingerprint
from streamq.plan.named import Named
from streamq.plan.user_code import check_options, signature_without_self

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class States:
    """The states of an aggregation, and what may be done to them: a method gives a new state, and leaves those it is given.

    remove, merge: None where there is none; in_parts: whether events may come in parts; any_order: and in any order. The result
    of a time-sensitive module is asked for with the window, ``result(state, window)``.
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
class Module(States, Named):
    """A user's ``code`` with its ``options``; ``read`` makes events, as ``add`` takes them, of the arguments by name.

    sensitive: the code reads lifetimes and the window. Its events are a pandas DataFrame: the arguments by name, ``start`` and
    ``end``.
    """

    code: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    sensitive: bool = False
    read: Callable[[Mapping[str, pa.Array]], Any]

    @property
    def identity(self) -> str:
        """Its name, and what tells its code and options from others of that name."""
        options = f":{sorted(self.options.items())!r}" if self.options else ""
        return f"{self.name}:{fingerprint(self.code)}{options}:{self.sensitive}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Module) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def merges(self) -> bool:
        """Whether states of parts of a window may be merged: then basic windows are computed once."""
        return self.merge is not None and self.in_parts and self.any_order and not self.sensitive


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
            read=as_frame if time_sensitive else _series_of,
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
        read=as_frame if sensitive else _series_of,
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


def _series_of(columns: Mapping[str, pa.Array]) -> tuple[pd.Series, ...]:
    return as_series([*columns.values()])


def as_frame(columns: Mapping[str, pa.Array]) -> pd.DataFrame:
    """Columns as a DataFrame, each as :func:`as_series` has it."""
    import pandas as pd

    return pd.DataFrame({name: _series(column) for name, column in columns.items()}, copy=False)


def as_series(columns: Sequence[pa.Array]) -> tuple[pd.Series, ...]:
    """Columns as pandas has them after ``to_pandas``: integers and booleans with NULLs are nullable, NULL among floats is NaN."""
    return tuple(_series(column) for column in columns)


def _series(array: pa.Array) -> pd.Series:
    import pandas as pd

    plain = pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
    if plain and array.null_count:
        dtype = "boolean" if pa.types.is_boolean(array.type) else f"Int{array.type.bit_width}"
        return pd.Series(array.to_pylist(), dtype=dtype)
    # a copy: what Arrow lends cannot be written to, and a module that writes to it is to be found
    return array.to_pandas(date_as_object=False).copy()
