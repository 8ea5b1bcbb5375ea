"""The operators for tests, a room each: the oracle's definition, the generator, and the lengths and grids of its parameters.

There is no list of rooms: importing the package imports each of its modules, which register their functions by decorators.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
