"""The kinds of windows for tests, a room each: the oracle's definition, the generator, the verbs, and the text in a program.

There is no list of rooms: importing the package imports each of its modules, which register their rooms.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
