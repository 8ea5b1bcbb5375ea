"""Progress policies as tests know them: a room each, which says once more what CTIs they make, and how they are written.

The rooms need no list: each module of this package is imported with it, and registers what it says of its policy.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for _room in iter_modules(__path__):
    import_module(f"{__name__}.{_room.name}")
