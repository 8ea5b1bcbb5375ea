"""Functions that Spark sends to its Python workers with every task: packed on the driver, unpacked once in each worker.

streamq's own functions and classes are sent without docstrings, annotations and the like: a quarter less to load.
"""

from __future__ import annotations

import gc
import hashlib
import io
import pickle
import sys
import zlib
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, ParamSpec, TypeVar

from pyspark.cloudpickle import CloudPickler, cloudpickle

from streamq.plan.fingerprint import STREAMQ, is_own, module_of_code, own_packages, package_of
from streamq.plan.function import CallableModule

P = ParamSpec("P")
T = TypeVar("T")

WORKER_MEMORY = "streamq_unpacked"
"""The name in ``sys.modules`` of a worker's functions; a module pickled by value would be new in every task."""

KEPT = 64
"""The number of functions that a worker keeps; then it forgets the one called longest ago."""


def ship_module_of(code: Any, registered_in: str) -> None:
    """Make Spark send a user's code by value, with the code in its files, because workers cannot import the user's files.

    That holds for a package that decorates code of its own, ``registered_in`` one of its modules, as it may be installed on the
    driver only; and for the user's own files that it imports, or ``__main__``, which Spark sends in any case. Other
    installed code is imported on the worker. Of code in streamq itself only the module is sent.
    """
    from pyspark import cloudpickle

    module = module_of_code(code)
    package = package_of(module)
    if package == STREAMQ:
        # streamq's own goes without the rest of streamq
        cloudpickle.register_pickle_by_value(sys.modules[module])
        return
    if package not in sys.modules:
        return
    decorates_itself = package_of(registered_in) == package
    if decorates_itself or is_own(package):
        for own in own_packages(package):
            if own != "__main__":
                cloudpickle.register_pickle_by_value(sys.modules[own])


def packed(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does the same, pickled as a few kilobytes of code and the compressed pickle of ``function``.

    A worker reads that pickle at the first call and keeps the function for later tasks, so ``function`` must keep no state
    between calls. Reading it takes milliseconds, which would be a good part of a small micro-batch.
    """
    return packed_together([function])[0]


def packed_together(functions: Sequence[Callable[P, T]]) -> list[Callable[P, T]]:
    """Return functions that do the same, pickled as in ``packed``; each brings all, which are little more than one.

    Most of a pickle is streamq's code, which they have in common: a hundred take 40 ms, one by one 2.5 s.
    """
    code = zlib.compress(dumps(tuple(functions)))
    digest = hashlib.sha256(code).hexdigest()

    def caller(number: int) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            result: T = unpacked(digest, code)[number](*args, **kwargs)
            return result

        return call

    return [caller(number) for number in range(len(functions))]


def unpacked(digest: str, code: bytes) -> tuple[Any, ...]:
    """Return the functions in ``code``, from this process's memory if it has been called here before.

    The memory keeps the KEPT functions that were called last. PySpark collects garbage after each task, which takes 30 ms where
    pandas and Arrow are imported. So a function's second call freezes the objects that the first has left, and the collector
    passes over them from then on. When a function is forgotten, all objects are unfrozen once, so that it can be collected.
    """
    memory = sys.modules.setdefault(WORKER_MEMORY, ModuleType(WORKER_MEMORY))
    functions: dict[str, Any] = vars(memory).setdefault("functions", {})
    frozen: set[str] = vars(memory).setdefault("frozen", set())
    if digest not in functions:
        function = pickle.loads(zlib.decompress(code))
    else:
        function = functions.pop(digest)
        if digest not in frozen:
            frozen.add(digest)
            gc.freeze()
    functions[digest] = function
    if len(functions) > KEPT:
        del functions[next(iter(functions))]
        # a function is garbage in cycles, which would stay for good if it were frozen
        gc.unfreeze()
        frozen.clear()
        gc.collect()
    return function


PACKAGE = __name__.partition(".")[0]


def dumps(value: Any) -> bytes:
    """Return the pickle of a value; streamq's own code in it has no docstrings, annotations and abstract methods.

    In the copy, frozen dataclasses can be assigned to, and dataclasses have the ``repr`` of an object. Other code, such as a
    user's aggregates, is pickled unchanged, except for the names of streamq's in a user's file that is pickled by value.
    """
    with io.BytesIO() as file:
        _BareCodePickler(file).dump(value)
        return file.getvalue()


class _BareCodePickler(CloudPickler):
    """A pickler that strips cloudpickle's reductions of functions and classes.

    A reduction is ``(make, arguments, (fields, more fields), ...)``.
    """

    def reducer_override(self, obj: Any) -> Any:
        """Return the reduction of an object: cloudpickle's, but without streamq's parts for readers.

        A module by value, a user's file, is reduced without streamq among its names, and with the plain code of user modules.
        """
        if isinstance(obj, ModuleType):
            reduction: Any = self.dispatch_table[ModuleType](obj)
            make, (name, *held) = reduction
            # a module that workers import is pickled as its name only
            return make, (name, *map(_without_streamq, held))
        reduced = super().reducer_override(obj)
        if not isinstance(reduced, tuple) or isinstance(obj, FunctionType) or not _is_of_streamq(obj):
            return reduced
        make, arguments, (fields, more), *rest = reduced
        return make, arguments, ({name: v for name, v in fields.items() if not _is_for_readers(name, v)}, more), *rest

    def _dynamic_function_reduce(self, func: FunctionType) -> Any:
        """Return the reduction of a function that is pickled by value; streamq's own have no parts for readers.

        Nor are all loaded modules searched for submodules that the function may mean, which is two thirds of cloudpickle's time:
        streamq's code reads no submodule that its package does not import.
        """
        if not _is_of_streamq(func):
            return super()._dynamic_function_reduce(func)
        _, bound, *arguments = self._function_getnewargs(func)
        code, names = _without_docstring(func), cloudpickle._extract_code_globals(func.__code__)
        more = _fields_of_its_own(func, code) | {
            "__globals__": {name: func.__globals__[name] for name in names if name in func.__globals__},
            "__closure__": func.__closure__,
            "_cloudpickle_submodules": [],
        }
        setstate = cloudpickle._function_setstate
        return cloudpickle._make_function, (code, bound, *arguments), (dict(vars(func)), more), None, None, setstate


def _is_of_streamq(obj: Any) -> bool:
    """Return True for streamq's own functions and classes."""
    return str(getattr(obj, "__module__", "")).partition(".")[0] == PACKAGE


def _without_streamq(names: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a user's file without streamq itself, and with decorated modules replaced by their plain code.

    A decorated module of streamq belongs to this process alone, and workers need not have streamq.
    """
    held = {name: v for name, v in names.items() if not (isinstance(v, ModuleType) and v.__name__ == PACKAGE)}
    return {name: SimpleNamespace(code=v.code) if isinstance(v, CallableModule) else v for name, v in held.items()}


def _without_docstring(function: FunctionType) -> Any:
    """Return a function's code with None in the place of the docstring; the code itself if there is none."""
    code = function.__code__
    if function.__doc__ is None or code.co_consts[:1] != (function.__doc__,):
        return code
    return code.replace(co_consts=(None, *code.co_consts[1:]))


def _fields_of_its_own(function: FunctionType, code: Any) -> dict[str, Any]:
    """Return a function's fields that do not follow from its code, without docstring and annotations."""
    defaults = {
        "__name__": code.co_name,
        "__qualname__": code.co_qualname,
        "__module__": function.__globals__.get("__name__"),
        "__defaults__": None,
        "__kwdefaults__": None,
    }
    return {name: value for name, implied in defaults.items() if (value := getattr(function, name)) != implied}


def _is_for_readers(name: str, value: Any) -> bool:
    """Return True if a class works without a field: docstring, annotations, abstract method, a dataclass's own ``repr``.

    So it does without the rule of progress and the algebras of SQL, which the driver reads, and the methods by which a frozen
    dataclass refuses assignments.
    """
    if name in ("__doc__", "__annotations__", "progress_rule", "algebras") or getattr(
        value, "__isabstractmethod__", False
    ):
        return True
    if name not in ("__repr__", "__setattr__", "__delattr__"):
        return False
    function = getattr(value, "__wrapped__", value)
    # dataclasses compile what they generate
    return isinstance(function, FunctionType) and function.__code__.co_filename == "<string>"
