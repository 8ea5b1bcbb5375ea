"""The operators of the pattern language, a room each: its arguments, checks, joins and scans, its picture, and its verb.

There is no list of rooms: every operator that a module of this package defines is in the language.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from streamq.patterns.pattern_operator import PatternOperator


@cache
def rooms() -> tuple[ModuleType, ...]:
    """Return the modules of the rooms."""
    return tuple(import_module(f"{__name__}.{room.name}") for room in iter_modules(__path__))


@cache
def operators() -> Mapping[str, type[PatternOperator]]:
    """Return the operators by their keywords, in alphabetical order."""
    classes = [value for room in rooms() for value in vars(room).values() if isinstance(value, type)]
    kinds = {kind for kind in classes if issubclass(kind, PatternOperator) and hasattr(kind, "keyword")}
    return {kind.keyword: kind for kind in sorted(kinds, key=lambda kind: kind.keyword)}


__all__ = ["operators", "rooms"]
