"""Tells a user's own code from what is installed beside Python: workers cannot import it, and it changes from run to run."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FunctionType, ModuleType
from typing import Any

STREAMQ = __name__.partition(".")[0]

INSTALLED = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in sysconfig.get_paths().values())
"""The beginnings of the paths of Python's own library and of installed packages."""


def module_of_code(code: Any) -> str:
    """The name of the module that a function, a class or an object's class is from."""
    return str(getattr(code, "__module__", None) or type(code).__module__)


def package_of(module: str) -> str:
    """The name of the package at the top of a module's name."""
    return module.partition(".")[0]


def is_own(module: str) -> bool:
    """Return whether a module, by its name, is a user's own: a script, a notebook, or a file that is not installed."""
    package = package_of(module)
    if package == STREAMQ:
        return False
    if package == "__main__":
        return True
    if package not in sys.modules:
        return False
    return not all(os.path.realpath(place).startswith(INSTALLED) for place in _places(sys.modules[package]))


def own_packages(package: str) -> list[str]:
    """The packages of a user's own that the modules of one import at their top, itself first."""
    packages, waiting = [package], [package]
    while waiting:
        used = {package_of(name) for module in _modules_of(waiting.pop()) for name in _modules_read(module)}
        new = sorted(p for p in used if p not in packages and p != "__main__" and is_own(p))
        packages += new
        waiting += new
    return packages


def _places(package: ModuleType) -> list[str]:
    """Return where the files of a package lie; nothing for what is built into Python."""
    file = getattr(package, "__file__", None)
    return [file] if file is not None else [f"{folder}/_" for folder in getattr(package, "__path__", [])]


def _modules_of(package: str) -> list[ModuleType]:
    below = f"{package}."
    modules = [m for name, m in list(sys.modules.items()) if name == package or name.startswith(below)]
    return [m for m in modules if isinstance(m, ModuleType)]


def _modules_read(module: ModuleType) -> set[str]:
    """The names of the modules whose functions and classes a module has names for, and of those it has names for."""
    values = list(vars(module).values())
    names = {v.__name__ for v in values if isinstance(v, ModuleType)}
    return names | {str(v.__module__) for v in values if isinstance(v, FunctionType | type)}
