"""Functions that Spark sends to its Python workers with every task: packed on the driver, unpacked once in each worker."""

from __future__ import annotations

import gc
import hashlib
import pickle
import sys
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from streamq.plan.fingerprint import STREAMQ, is_own, module_of_code, own_packages, package_of

P = ParamSpec("P")
T = TypeVar("T")

WORKER_MEMORY = "streamq_unpacked"
"""The name in ``sys.modules`` of a worker's functions; a module pickled by value would be new in every task."""

KEPT = 64
"""The number of functions that a worker keeps; then it forgets the one called longest ago."""


def ship_module_of(code: Any, registered_in: str) -> None:
    """Make Spark send a user's code by value, with the code in its files, because workers cannot import the user's files.

    That holds for a package that decorates code of its own, ``registered_in`` one of its modules, as it may be installed on the
    driver only; and for the user's own files that it imports. Other installed code is imported on the worker. Of code in streamq
    itself only the module is sent; for code in ``__main__`` nothing is to be done.
    """
    from pyspark import cloudpickle

    module = module_of_code(code)
    package = package_of(module)
    if package == STREAMQ:
        # streamq's own goes without the rest of streamq
        cloudpickle.register_pickle_by_value(sys.modules[module])
        return
    if package not in sys.modules or package == "__main__":
        return
    decorates_itself = package_of(registered_in) == package
    if decorates_itself or is_own(package):
        for own in own_packages(package):
            cloudpickle.register_pickle_by_value(sys.modules[own])


def packed(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does the same, pickled as a few kilobytes of code and the compressed pickle of ``function``.

    A worker reads that pickle at the first call and keeps the function for later tasks, so ``function`` must keep no state
    between calls. Reading it takes milliseconds, which would be a good part of a small micro-batch.
    """
    # the import of PySpark is left to callers that send functions to Spark
    from streamq.runtime.bare_code import dumps

    code = zlib.compress(dumps(function))
    digest = hashlib.sha256(code).hexdigest()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        result: T = unpacked(digest, code)(*args, **kwargs)
        return result

    return call


def unpacked(digest: str, code: bytes) -> Any:
    """Return the function in ``code``, from this process's memory if it has been called here before.

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
