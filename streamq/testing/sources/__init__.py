"""The kinds of sources for tests, a room each: its rows, the oracle's definition, the model of late items, and generators.

There is no list of rooms: importing the package imports each of its modules, which register their rooms.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
