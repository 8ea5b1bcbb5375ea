"""The operators of patterns in tests: a room each, with its rule, its set definition, its draws and its verb.

The rooms need no list: each module of this package is imported with it, and registers what it says of its operator.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
