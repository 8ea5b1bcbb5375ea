"""User code in queries: the decorators, the module that each of them makes (``module``), and the repository."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def decorator_rooms() -> tuple[ModuleType, ...]:
    """Return the modules of the rooms, among them every decorator's."""
    return tuple(import_module(f"{__name__}.{room.name}") for room in iter_modules(__path__))


__all__ = ["decorator_rooms"]
