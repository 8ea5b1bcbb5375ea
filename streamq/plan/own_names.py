"""Names of the columns that streamq adds to plans, and how messages and explain show them to users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_OF_PATTERNS = re.compile(r"(?P<variable>[^@]+)\.@(?:\.(?P<own>[^~]+))?(?P<other>~?)", re.DOTALL)
_OF_CONTENT = re.compile(r"_([0-9a-f]{3})[0-9a-f]{5}(?![0-9a-f])")
_OF_GROUPS = re.compile(r"__g\d+_(?P<kind>[vn])_(?P<key>.*)", re.DOTALL)


def group_depth(depth: int) -> str:
    """Return the prefix of the columns that carry the keys of a group; ``depth`` numbers groups within groups."""
    return f"__g{depth}_"


def group_value(depth: int, key: str) -> str:
    """Return the name of the column that carries the values of a group's key."""
    return f"{group_depth(depth)}v_{key}"


def group_flag(depth: int, key: str) -> str:
    """Return the name of the column that is true where a group's key is NULL."""
    return f"{group_depth(depth)}n_{key}"


def carried_key(name: str) -> str | None:
    """Return the group's key that a column made by ``group_value`` or ``group_flag`` belongs to; None for another column."""
    carried = _OF_GROUPS.fullmatch(name)
    return None if carried is None else carried["key"]


def shown_name(name: str) -> str:
    """Return a column as explain shows it: a group's key as ``group.key``, a pattern's as in its text, others without ``__``.

    ``__n`` is ``count``, a further ``__`` becomes ``_``, of the digest in a partial result's name three digits are left, and the
    key ``@.k`` of a pattern is ``k``.

    >>> shown_name("zone"), shown_name("__g0_v_zone"), shown_name("__g0_n_zone"), shown_name("__rows"), shown_name("x.@")
    ('zone', 'group.zone', 'group.zone is null', 'rows', 'x.Vs')
    """
    if carried := _OF_GROUPS.fullmatch(name):
        return f"group.{carried['key']}{' is null' * (carried['kind'] == 'n')}"
    if of_pattern := _OF_PATTERNS.fullmatch(name):
        return f"{of_pattern['variable']}.{of_pattern['own'] or 'Vs'}{of_pattern['other']}"
    if name == "__n":
        return "count"
    if name.startswith("__"):
        return _OF_CONTENT.sub(r"_\1", name[2:]).replace("__", "_")
    return name.lstrip("@.") if name.startswith("@") else name


def unnamed_argument(number: int) -> str:
    """Return the name for the ``number``-th argument, from 0, of a parameter without a name."""
    return f"__{number}"


def show_argument(name: str, value: str) -> str:
    """Return an argument as messages show it: ``name = value``, or the value alone where its parameter has no name."""
    return value if name.startswith("__") else f"{name} = {value}"


def show_equality(left: str, right: str) -> str:
    """Return a pair of key columns as explain shows it: one name if they are equal, else ``left = right``."""
    return shown_name(left) if left == right else f"{shown_name(left)} = {shown_name(right)}"


def show_keys(keys: Iterable[str]) -> str:
    """Return `` by zone, kind``, the keys of groups as explain shows them, or nothing where there are none."""
    shown = ", ".join(map(shown_name, keys))
    return f" by {shown}" if shown else ""


def shown_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a group's keys by the names that users know; ``group`` has them by the names of columns.

    A key whose flag is true is None.
    """
    values: dict[str, Any] = {}
    for name, value in group.items():
        carried = _OF_GROUPS.fullmatch(name)
        if carried is None:
            values[name] = value
        elif carried["kind"] == "v":
            values[carried["key"]] = value
        elif value:
            values[carried["key"]] = None
    return values
