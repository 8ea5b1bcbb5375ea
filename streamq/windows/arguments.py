"""Numbers that window verbs take."""

from __future__ import annotations

from typing import Any

from streamq.errors import PlanError, sentence


def whole_number(verb: str, name: str, number: Any) -> None:
    """Raise PlanError for an argument that is no whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise PlanError(sentence(verb, f"{name} is a whole number of at least 1", f"found {number!r}"))


__all__ = ["whole_number"]
