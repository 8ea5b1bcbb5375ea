"""Tell a user's own code from installed packages: workers cannot import it, and it changes from run to run."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FunctionType, ModuleType
from typing import Any

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
