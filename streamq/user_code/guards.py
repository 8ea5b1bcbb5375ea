"""The arguments of decorators that say how a module's calls are guarded, and which version of the code it is."""

from __future__ import annotations

from typing import Any

from streamq.choices import ErrorPolicy, choose_word
from streamq.errors import PlanError, sentence


def guards_of(verb: str, *, time_limit: Any, checked: bool, on_error: Any) -> dict[str, Any]:
    """Return the arguments of a decorator as fields of its module, by name; raises PlanError for invalid ones.

    ``time_limit`` is a number above 0 or None, ``on_error`` a word of ErrorPolicy; ``verb`` is the decorator, for errors.
    """
    is_number = isinstance(time_limit, int | float) and not isinstance(time_limit, bool)
    if time_limit is not None and not (is_number and time_limit > 0):
        raise PlanError(sentence(verb, "time_limit is a number of seconds above 0", f"found {time_limit!r}"))
    return {
        "time_limit": time_limit,
        "checked": checked,
        "on_error": choose_word(ErrorPolicy, on_error, "on_error", verb),
    }


def versions_of(verb: str, *, version: Any, compatible_with: Any) -> dict[str, Any]:
    """Return the versions of a decorator as fields of its module, by name; raises PlanError, in the name of ``verb``.

    ``version`` is a whole number of at least 1, ``compatible_with`` an earlier one or None.
    """
    if not _is_version(version):
        raise PlanError(sentence(verb, "version is a whole number of at least 1", f"found {version!r}"))
    if compatible_with is not None and not (_is_version(compatible_with) and compatible_with < version):
        wrong = "compatible_with is an earlier version"
        hint = "Say version=2, compatible_with=1: the state of version 1 goes on with this code."
        raise PlanError(sentence(verb, wrong, f"found {compatible_with!r}, version={version}", hint))
    return {"version": version, "compatible_with": compatible_with}


def _is_version(value: Any) -> bool:
    """True if a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


__all__ = ["guards_of", "versions_of"]
