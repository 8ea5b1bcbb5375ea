"""Fingerprints of a user's code and values, equal in every process: a checkpoint continues only with the same code.

A user's own code is told from installed packages: workers cannot import it, and it changes from run to run.
"""

from __future__ import annotations

import datetime as dt
import dis
import hashlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle

from streamq.plan.function import NamedObject

STREAMQ = __name__.partition(".")[0]

INSTALLED = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in sysconfig.get_paths().values())
"""The folders of Python's library and of installed packages, with a separator at the end."""

_REFERENCES = (FunctionType, type, ModuleType)
"""The values by which a module refers to another: functions and classes know the module that defines them."""


def module_of_code(code: Any) -> str:
    """Return the name of the module that defines a function, a class, or the class of an object."""
    return str(getattr(code, "__module__", None) or type(code).__module__)


def package_of(module: str) -> str:
    """Return the top-level package of a module's name."""
    return module.partition(".")[0]


def is_own(module: str) -> bool:
    """True if a module, by its name, is a user's own: a script, a notebook, or a loaded file that is not installed."""
    package = package_of(module)
    if package == STREAMQ:
        return False
    if package == "__main__":
        return True
    if package not in sys.modules:
        return False
    return not all(map(_is_installed, _places(sys.modules[package])))


def own_packages(package: str) -> list[str]:
    """Return a package and the packages of a user's own that its modules import at their top, directly or not; itself first.

    ``__main__`` is never among the imported ones.
    """
    packages, waiting = [package], [package]
    while waiting:
        modules = set[str]().union(*map(_modules_read, _modules_of(waiting.pop())))
        used = set(map(package_of, modules))
        new = sorted(p for p in used if p not in packages and p != "__main__" and is_own(p))
        packages += new
        waiting += new
    return packages


_ANSWERS: dict[str, bool] = {}
"""The answers of :func:`_is_installed` so far; a function with a cache of Python's would not be sent to executors."""


def _is_installed(place: str) -> bool:
    """True if a path, followed to the file itself, is in a folder of INSTALLED."""
    if place not in _ANSWERS:
        _ANSWERS[place] = os.path.realpath(place).startswith(INSTALLED)
    return _ANSWERS[place]


def _places(package: ModuleType) -> list[str]:
    """Return the paths of a package's files; empty for a module built into Python."""
    file = getattr(package, "__file__", None)
    return [file] if file is not None else [f"{folder}/_" for folder in getattr(package, "__path__", [])]


def _modules_of(package: str) -> list[ModuleType]:
    """Return the loaded modules of a package, itself included."""
    below = f"{package}."
    modules = [m for name, m in list(sys.modules.items()) if name == package or name.startswith(below)]
    return [m for m in modules if isinstance(m, ModuleType)]


def _modules_read(module: ModuleType) -> set[str]:
    """Return the names of the modules that a module refers to, directly or by their functions and classes."""
    names = set[str]()
    for value in list(vars(module).values()):
        if isinstance(value, _REFERENCES):
            names.add(value.__name__ if isinstance(value, ModuleType) else str(value.__module__))
    return names


def fingerprint(code: Any) -> str:
    """Return a short text that differs if a user's code differs, in its instructions or in the values that it holds.

    Code holds defaults, closure variables, a class's attributes, and the global names that it reads. Functions and classes
    among these are compared by their code if they are the user's own, else by their name; values by themselves.
    """
    return hashlib.sha256(_CodeReader().text(code).encode()).hexdigest()[:16]


def text_of(value: Any) -> str:
    """Return a text that differs if a value differs: the repr of plain values and their containers, else a hash of the pickle."""
    return _plain_text(value, text_of) or _pickled(value)


def _plain_text(value: Any, text: Any) -> str:
    """Return the text of a plain value, or of a container whose items ``text`` turns into texts; "" for other values."""
    match value:
        case tuple() if type(value) is tuple:
            return f"({_joined(map(text, value))}{',' if len(value) == 1 else ''})"
        case list() if type(value) is list:
            return f"[{_joined(map(text, value))}]"
        case dict() if type(value) is dict:
            return f"{{{_joined(f'{text(key)}: {text(item)}' for key, item in value.items())}}}"
        case set() | frozenset():
            # it has another order in every process
            return f"{type(value).__name__}({_joined(sorted(map(text, value)))})"
    return repr(value) if type(value) in _PLAIN else ""


class _CodeReader:
    """Turns code into text; ``_seen``: the functions, classes and objects read so far, because they may refer to each other."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def text(self, value: Any) -> str:
        """Return the text of code, or of a value that code holds; a number for code that this reader has read before.

        Code that is not the user's is its name.
        """
        if isinstance(value, (staticmethod, classmethod)):
            return self.text(value.__func__)
        if isinstance(value, property):
            return f"property({_joined(map(self.text, (value.fget, value.fset)))})"
        if inspect.ismethod(value):
            return f"method({self.text(value.__func__)}, {self.text(value.__self__)})"
        if not (inspect.isfunction(value) or inspect.isclass(value)):
            return _plain_text(value, self.text) or self._text_of_object(value)
        if not _is_read(value):
            return f"{value.__module__}.{value.__qualname__}"
        if id(value) in self._seen:
            return f"again {self._seen[id(value)]}"
        self._seen[id(value)] = len(self._seen)
        return self._text_of_function(value) if inspect.isfunction(value) else self._text_of_class(value)

    def _text_of_function(self, function: FunctionType) -> str:
        """Return the text of a function: its instructions, closure variables and defaults, and the globals that it reads."""
        closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        outer = {name: cell.cell_contents for name, cell in closure if not _is_empty(cell)}
        held = {"outer": outer, "defaults": function.__defaults__, "keywords": function.__kwdefaults__}
        instructions = _instructions(function.__code__)
        return f"function({instructions}, {self.text(held)}, {_joined(self._globals(function))})"

    def _globals(self, function: FunctionType) -> Iterator[str]:
        """Yield the global names that a function reads, with their values; of the user's own modules also the attributes read.

        Built-in names, and names without a value, are left out.
        """
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name not in function.__globals__:
                continue
            value = function.__globals__[name]
            if not isinstance(value, ModuleType):
                yield f"{name} = {self._text_of_global(value)}"
                continue
            yield f"{name} = module {value.__name__}"
            if is_own(value.__name__):
                read = [n for n in names if n in vars(value) and not isinstance(vars(value)[n], ModuleType)]
                yield from (f"{name}.{n} = {self._text_of_global(vars(value)[n])}" for n in read)

    def _text_of_global(self, value: Any) -> str:
        """Return the text of the value of a global name; only its type if it has none, as a lock or a session."""
        try:
            return self.text(value)
        except Exception:
            # such as a lock or a session: only its type can be compared
            return f"a {type(value).__module__}.{type(value).__qualname__}"

    def _text_of_class(self, cls: type) -> str:
        """Return the text of a class: it and its bases, each with its attributes if it is read, else by name."""
        owners = []
        for owner in cls.__mro__:
            if not _is_read(owner):
                owners.append(f"{owner.__module__}.{owner.__qualname__}")
                continue
            attributes = {name: v for name, v in sorted(vars(owner).items()) if _is_read_of_class(name, v)}
            owners.append(f"{owner.__qualname__}({self.text(attributes)})")
        return f"class({_joined(owners)})"

    def _text_of_object(self, value: Any) -> str:
        """Return the text of a value that is neither a function, a class nor plain.

        An object of a user's class is its class and attributes, a ``partial`` its function and arguments, a named object its
        identity; a module or a function written in C is its name; anything else is a hash of its pickle.
        """
        if isinstance(value, NamedObject):
            return value.identity
        if isinstance(value, partial):
            return f"partial({self.text(value.func)}, {self.text(value.args)}, {self.text(value.keywords)})"
        module, name = module_of_code(value), getattr(value, "__name__", None)
        if name is not None and not isinstance(value, ModuleType):
            # a function written in C: only its name can be compared
            return f"{module}.{name}"
        if isinstance(value, ModuleType):
            return f"module {value.__name__}"
        if not is_own(type(value).__module__) or not hasattr(value, "__dict__"):
            return _pickled(value)
        if id(value) in self._seen:
            return f"again {self._seen[id(value)]}"
        self._seen[id(value)] = len(self._seen)
        return f"object({self.text(type(value))}, {self.text(dict(vars(value)))})"


def _is_read(code: Any) -> bool:
    """True if a function or class is compared by its code.

    It is so if it is the user's own, is made inside a function, or is pickled by value and not streamq's.
    """
    module = module_of_code(code)
    by_value = cloudpickle.list_registry_pickle_by_value()
    parts = module.split(".")
    is_registered = any(".".join(parts[:n]) in by_value for n in range(1, len(parts) + 1))
    return is_own(module) or (is_registered and parts[0] != STREAMQ) or "<locals>" in code.__qualname__


def _is_read_of_class(name: str, value: Any) -> bool:
    """True if an attribute of a class is compared: code, and values whose name is not one of Python's own."""
    is_code = isinstance(value, (FunctionType, staticmethod, classmethod, property))
    return is_code or not name.startswith(("__", "_abc_"))


def _is_empty(cell: Any) -> bool:
    """True if a closure variable has no value yet."""
    try:
        cell.cell_contents  # noqa: B018  which raises for one that has no value yet
    except ValueError:
        return True
    return False


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that code and the code nested in it read; a name may come twice."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _instructions(code: CodeType) -> list[tuple[str, object]]:
    """Return the instructions of a function with the values that they load; none of them loads its docstring."""
    return [
        (step.opname, _constant(step.argval) if step.opcode in dis.hasconst else step.argval)
        for step in dis.get_instructions(code)
    ]


def _constant(value: Any) -> object:
    """Return a constant of a function in a form that is equal in every process: nested code as instructions, else the repr."""
    if isinstance(value, CodeType):
        return _instructions(value)
    # a set has another order in every process
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _pickled(value: Any) -> str:
    # the repr of an array may show its ends only, that of an object its address
    return f"{type(value).__qualname__}:{hashlib.sha256(cloudpickle.dumps(value)).hexdigest()}"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(texts)


_PLAIN = (type(None), bool, int, float, complex, str, bytes, Decimal, dt.date, dt.time, dt.datetime, dt.timedelta)
