"""Promises by the author of a module, which let streamq do more (docs/modules.md, "Properties")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamq.errors import PlanError, sentence
from streamq.keywords import check_keywords


@dataclass(frozen=True)
class Property:
    """A promise about a module. streamq never assumes one that was not made; tests can refute it."""

    name: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.fields)})" if self.fields else self.name

    __repr__ = __str__


mergeable = Property("mergeable")
"""Merged states of parts of a window are the state of the whole, so each basic window is computed once."""

order_insensitive = Property("order_insensitive")
"""The result does not depend on the order of events: they need not be sorted, nor their other columns read."""

time_bound = Property("time_bound")
"""Input from an instant on changes no result before it: results and progress are sent as input comes."""

one_output_per_group = Property("one_output_per_group")
"""An operator returns one row per window and group, so its result can be written as an upsert."""


@check_keywords
def filters_on(*fields: str) -> Property:
    """Promise that an operator's rows depend only on events equal to them in ``fields``, columns of the result and arguments.

    Without such an event there is no such row. A filter on those columns may then be moved below the operator.

    >>> import streamq as sq
    >>> sq.filters_on("symbol")
    filters_on(symbol)
    """
    if not fields or not all(isinstance(field, str) for field in fields):
        raise PlanError(sentence("filters_on", "no names of columns", f"found {fields!r}", 'Write filters_on("k").'))
    return Property("filters_on", fields)


def check_properties(properties: Iterable[Any], verb: str) -> tuple[Property, ...]:
    """Return declared properties; raise PlanError for a value that is not a property."""
    if isinstance(properties, Property | str):
        properties = (properties,)
    checked = []
    for one in properties:
        if not isinstance(one, Property):
            names = ", ".join(f"sq.{p}" for p in _ALL)
            hint = f'Give some of {names}, sq.filters_on("k").'
            raise PlanError(sentence(verb, "not a property of modules", f"found {one!r}", hint))
        checked.append(one)
    return tuple(dict.fromkeys(checked))


OF_OPERATORS = ("time_bound", "one_output_per_group", "filters_on")
"""The names of the properties that only operators can have."""

_ALL = (mergeable, order_insensitive, time_bound, one_output_per_group)

__all__ = [
    "OF_OPERATORS", "Property", "check_properties", "filters_on", "mergeable", "one_output_per_group",
    "order_insensitive", "time_bound",
]  # fmt: skip
