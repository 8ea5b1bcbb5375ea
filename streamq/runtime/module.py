"""What code of a user's that aggregates looks like to streamq, in whatever shape it was written: states and what is done to them.

It is the contract that hosts call and ``check_module`` checks. It travels to executors with what calls it.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq.errors import PlanError, sentence
from streamq.plan.named import Named

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class States:
    """The states of an aggregation, and what may be done to them: a method gives a new state, and leaves those it is given.

    remove, merge: None where there is none; in_parts: whether events may come in parts; any_order: and in any order.
    """

    name: str
    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    remove: Callable[[Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    in_parts: bool = True
    any_order: bool = True


@dataclass(frozen=True, kw_only=True)
class Module(States, Named):
    """A user's ``code``; ``read`` makes events, as ``add`` takes them, of an Arrow array an argument."""

    code: Any
    fingerprint: str = field(init=False)
    read: Callable[[Sequence[pa.Array]], Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", fingerprint(self.code))

    @property
    def identity(self) -> str:
        """Its name, and what tells its code from other code of that name."""
        return f"{self.name}:{self.fingerprint}"

    def state(self, columns: Sequence[pa.Array]) -> Any:
        """The state over events that came at once."""
        return self.add(self.initial(), self.read(columns))


def fingerprint(code: Any) -> str:
    """Return a short text that tells a user's code from other code, the same in every process."""
    return hashlib.sha256(repr(_told_by(code)).encode()).hexdigest()[:16]


def _told_by(code: Any) -> tuple[object, ...]:
    """What tells a function, a class or an object from others: its text, instructions and constants, and the values it holds.

    It is the same in every process, so that a checkpoint goes on.
    """
    if inspect.isfunction(code):
        values = [cell.cell_contents for cell in code.__closure__ or ()]
        return ("function", _instructions(code.__code__, code.__doc__), _pickled([values, code.__defaults__]))
    if hasattr(code, "__name__") and not inspect.isclass(code):
        # a function of C's: what can be told is what it is called
        return ("name", getattr(code, "__module__", None) or type(code).__module__, code.__name__)
    cls = code if inspect.isclass(code) else type(code)
    methods = [
        (owner.__qualname__, name, _instructions(method.__code__))
        for owner in cls.__mro__
        for name, method in sorted(vars(owner).items())
        if inspect.isfunction(method)
    ]
    return ("object", methods, b"" if inspect.isclass(code) else _pickled(getattr(code, "__dict__", None)))


def _instructions(code: CodeType, doc: str | None = None) -> tuple[object, ...]:
    """What a function does, without what its docstring says."""
    constants = [value for i, value in enumerate(code.co_consts) if i or doc is None or value != doc]
    return (code.co_code, code.co_names, [_constant(value) for value in constants])


def _constant(value: Any) -> object:
    if isinstance(value, CodeType):
        return _instructions(value)
    # a set has another order in every process
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _pickled(values: Any) -> bytes:
    from pyspark import cloudpickle

    return cloudpickle.dumps(values)


def module_of(code: Any, verb: str, *, order_insensitive: bool = False) -> Module:
    """A user's code as a module, by the methods it has; raises PlanError, at ``verb``, for what is none.

    It is a class without parameters or an object with ``initial()``, ``add(state, values)``, ``result(state)`` and maybe
    ``remove(state, values)`` and ``merge(a, b)``; one in the shape of Spark's Aggregator, with ``zero()``, ``reduce(buffer,
    value)``, ``merge(a, b)`` and ``finish(buffer)``; or a function of all values, which goes by their order unless it is
    ``order_insensitive``. Values are a pandas Series an argument, to an Aggregator one event's at a time.
    """
    name = getattr(code, "__name__", type(code).__name__)
    module: Any = code() if inspect.isclass(code) else code

    def has(*methods: str) -> bool:
        return all(getattr(module, method, None) is not None for method in methods)

    if has("initial", "add", "result"):
        return Module(
            name,
            module.initial,
            lambda state, values: module.add(state, *values),
            module.result,
            (lambda state, values: module.remove(state, *values)) if has("remove") else None,
            module.merge if has("merge") else None,
            code=code,
            read=as_series,
        )
    if has("zero", "reduce", "merge", "finish"):
        return _aggregator(name, code, module)
    if callable(module) and not inspect.isclass(code):
        return _function(name, code, order_insensitive)
    methods = "initial(), add(state, values), result(state)"
    hint = f"Give an aggregate, a function of Series, or what has {methods}, or zero, reduce, merge and finish."
    raise PlanError(sentence(verb, "not a module", f"found {code!r}", hint))


def _function(name: str, function: Callable[..., Any], any_order: bool) -> Module:
    """All members at once: what has come is the state."""
    return Module(
        name,
        lambda: None,
        lambda _, values: values,
        lambda values: function(*values),
        in_parts=False,
        any_order=any_order,
        code=function,
        read=as_series,
    )


def _aggregator(name: str, code: Any, module: Any) -> Module:
    """Spark's Aggregator: a value at a time (a tuple of several), into a buffer that its methods may change and return."""

    def read(columns: Sequence[pa.Array]) -> list[Any]:
        values = [column.to_pylist() for column in columns]
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

    return Module(name, zero, reduce, finish, merge=merge, code=code, read=read)


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
