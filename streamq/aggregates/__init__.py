"""The built-in aggregates: a room an aggregate or family, with the object that says all of it and the function a user calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from streamq.plan.aggregate import AggregateFunction


@cache
def built_in() -> Mapping[str, AggregateFunction]:
    """The aggregates of the rooms of this package by name: each that is a value of a module here is built in."""
    rooms = [import_module(f"{__name__}.{room.name}") for room in iter_modules(__path__)]
    functions = [value for room in rooms for value in vars(room).values() if isinstance(value, AggregateFunction)]
    return {function.name: function for function in functions}
