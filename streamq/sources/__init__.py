"""The kinds of sources, a room each: the verb that reads a table as events, its node, and how its rows become items.

There is no list of rooms: importing the package imports each of its modules. ``streamq/__init__.pyi`` names their verbs.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
