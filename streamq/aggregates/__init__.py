"""The built-in aggregates: a room for each family, with the aggregate's object and the function that a user calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from streamq.plan.aggregate import AggregateFunction


@cache
def built_in() -> Mapping[str, AggregateFunction]:
    """Return the built-in aggregates by name: every aggregate that is a value of a module of this package."""
    rooms = [import_module(f"{__name__}.{room.name}") for room in iter_modules(__path__)]
    functions = [value for room in rooms for value in vars(room).values() if isinstance(value, AggregateFunction)]
    return {function.name: function for function in functions}
