"""The kinds of sources as tests know them: a room each, with rows, events for the oracle, a model of what is late, and draws.

The rooms need no list: each module of this package is imported with it, and registers what it says of its kind.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
