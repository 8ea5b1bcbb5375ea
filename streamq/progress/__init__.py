"""Progress policies, a room each: how a source generates CTIs, and the verb that a user writes for it.

A room is in no list: plans hold its object, and ``streamq/__init__.pyi`` names its verb.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from streamq.runtime.time.progress_policy import ProgressPolicy

_ROOMS = [import_module(f"{__name__}.{room.name}") for room in iter_modules(__path__)]


def verbs() -> list[str]:
    """Return the verbs that choose a policy: the names of the policies in the rooms."""
    rooms = f"{__name__}."
    return sorted(p.name for p in ProgressPolicy.__subclasses__() if p.__module__.startswith(rooms))


__all__ = ["verbs"]
