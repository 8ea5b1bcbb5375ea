"""Compare two histories as bags of rows, floats within a tolerance, and draw their difference along the time axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq import html
from streamq.html import shortened_value, with_escapes
from streamq.keywords import check_keywords
from streamq.testing.arrival import Row, comparable, keys, table_rows
from streamq.testing.history import Axis, answer_table, history
from streamq.time import INTEGER

if TYPE_CHECKING:
    from streamq.testing.history import History

SHOWN = 20
"""The greatest number of missing, and of extra, rows that a Difference prints."""


@dataclass(frozen=True)
class Difference:
    """The difference of two histories: rows missing from the actual one, extra rows in it, or differing columns."""

    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    names: tuple[str, ...] = ()
    columns: str = ""
    axis: str = INTEGER

    def __repr__(self) -> str:
        """Return the columns that differ or, for missing and extra rows, their number and the first SHOWN as timelines."""
        if self.columns:
            return f"the histories have different columns: {with_escapes(self.columns)}"
        axis = Axis([row for part in (self.missing, self.extra) for row in sorted(part, key=_order)[:SHOWN]], self.axis)
        lines: list[str] = []
        sides = (
            ("missing (only in the expected history)", self.missing),
            ("extra (only in the one found)", self.extra),
        )
        for title, rows in sides:
            if rows:
                lines.append(f"{title}: {len(rows)} row{'s' if len(rows) > 1 else ''}")
                lines += [f"  {self._line(row, axis)}" for row in sorted(rows, key=_order)[:SHOWN]]
                if len(rows) > SHOWN:
                    lines.append(f"  ... and {len(rows) - SHOWN} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self.columns:
            return html.fragment(html.lines(str(self)))
        axis = Axis([], self.axis)
        rows = [
            (part, axis.label(row[0], row[1]), *row[2:])
            for part, some in (("missing", self.missing), ("extra", self.extra))
            for row in sorted(some, key=_order)
        ]
        counts = f"{len(self.missing)} missing (only in the expected history), {len(self.extra)} extra (only in the one found)"
        return html.fragment(html.tabulated(("", "lifetime", *self.names[2:]), rows, counts, named=True))

    def _line(self, row: Row, axis: Axis) -> str:
        named = zip(map(with_escapes, self.names[2:]), row[2:], strict=True)
        payload = ", ".join(f"{name}={_quoted(value)}" for name, value in named)
        return f"{axis.draw(row[0], row[1])} {axis.label(row[0], row[1])}  {payload}".rstrip()


@check_keywords
def same_history(actual: History, expected: History, tolerance: float = 1e-9) -> Difference | None:
    """Return None if two histories are equal as bags of rows, else their difference.

    Columns match by name, in any order. Floats are equal within ``tolerance`` times the greater of them and 1; NaN
    equals NaN, -0.0 equals 0.0, NULL equals NULL. Between two Arrow tables, or two pandas frames, the kinds of column types
    (integer, float, decimal of a scale, ...) must agree too. Both arguments are converted by :func:`history`, so a user's answers
    can be compared. Raises SourceError for what is no table.
    """
    a, b = (history(answer_table(answer, "same_history")) for answer in (actual, expected))
    names = tuple(b.column_names)
    if sorted(a.column_names) != sorted(names):
        return Difference(columns=f"found {', '.join(a.column_names)}; expected {', '.join(names)}")
    a = a.select(list(names))
    if type(actual) is type(expected) and (wrong := _kinds_differ(a, b)):
        return Difference(columns=wrong)
    return _bag_difference(a, b, names, tolerance)


@check_keywords
def assert_same_history(actual: History, expected: History, tolerance: float = 1e-9) -> None:
    """Raise AssertionError with the printed :class:`Difference` if :func:`same_history` returns one."""
    difference = same_history(actual, expected, tolerance)
    if difference is not None:
        raise AssertionError(f"not the expected history\n{difference}")


def _kinds_differ(a: pa.Table, b: pa.Table) -> str:
    """Return the columns whose kinds of types differ, as text; empty if none do."""
    # pyarrow gives a column of only NULLs the type null, which matches any kind
    pairs = [(x, y) for x, y in zip(a.schema, b.schema, strict=True) if "null" not in (_kind(x.type), _kind(y.type))]
    return "; ".join(f"{x.name} is {x.type}, expected {y.type}" for x, y in pairs if _kind(x.type) != _kind(y.type))


def _kind(kind: pa.DataType) -> str:
    """Return the name of a type's kind; types of one kind, such as int32 and int64, may be compared.

    Kinds of lists and structs do not tell their parts' types, those of timestamps neither unit nor zone.
    """
    if pa.types.is_decimal(kind):
        return f"decimal of scale {kind.scale}"
    for name in ("integer", "floating", "timestamp", "list", "struct", "boolean", "date", "null"):
        if getattr(pa.types, f"is_{name}")(kind):
            return name
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    return "binary" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else str(kind)


def _bag_difference(
    actual: pa.Table, expected: pa.Table, names: tuple[str, ...], tolerance: float
) -> Difference | None:
    """Return the rows of two tables that have no partner in the other; None if there are none.

    Equal rows cancel out first. The rest are paired, within the tolerance, among rows that differ in floats only.
    """
    actual_counts, expected_counts = Counter(keys(actual)), Counter(keys(expected))
    if actual_counts == expected_counts:
        return None
    extra, missing = (
        _surplus(actual, actual_counts, expected_counts),
        _surplus(expected, expected_counts, actual_counts),
    )
    unpaired: list[Row] = []
    close = _by_exact_columns(extra)
    for key, wanted in _by_exact_columns(missing).items():
        unpaired += _unmatched(wanted, close.get(key, []), tolerance)
    extra = [row for rows in close.values() for row in rows]
    return Difference(tuple(unpaired), tuple(extra), names) if unpaired or extra else None


def _surplus(table: pa.Table, own: Counter[Row], other: Counter[Row]) -> list[Row]:
    """Return the rows of a table beyond those of the other table: a row as many times as its count is greater here.

    ``own`` and ``other`` count rows by key.
    """
    over = own - other
    chosen = []
    for i, key in enumerate(keys(table)):
        if over[key] > 0:
            over[key] -= 1
            chosen.append(i)
    return table_rows(table.take(chosen)) if chosen else []


def _by_exact_columns(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Group rows by their values that are not floats."""
    grouped: dict[Row, list[Row]] = {}
    for row in rows:
        key = tuple("float" if isinstance(v, float) else comparable(v) for v in row)
        grouped.setdefault(key, []).append(row)
    return grouped


def _unmatched(wanted: list[Row], offered: list[Row], tolerance: float) -> list[Row]:
    """Return the wanted rows that a maximum matching leaves without a partner; remove the matched rows from ``offered``."""
    near = [[j for j, other in enumerate(offered) if _near(row, other, tolerance)] for row in wanted]
    match_of: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        """True if wanted row ``i`` gets a partner that is not in ``seen``, if need be by giving other rows another one."""
        for j in near[i]:
            if j not in seen:
                seen.add(j)
                if j not in match_of or place(match_of[j], seen):
                    match_of[j] = i
                    return True
        return False

    left = [row for i, row in enumerate(wanted) if not place(i, set())]
    offered[:] = [row for j, row in enumerate(offered) if j not in match_of]
    return left


def _near(a: Row, b: Row, tolerance: float) -> bool:
    """True if all floats of two rows are equal within the tolerance, and infinities exactly; other values are not compared."""
    for x, y in zip(a, b, strict=True):
        if isinstance(x, float) and comparable(x) != comparable(y):
            if not abs(x - y) <= tolerance * max(1.0, abs(x), abs(y)) or math.isinf(x) or math.isinf(y):
                return False
    return True


def _quoted(value: Any) -> str:
    """Return a value as Python writes it, shortened as in a table."""
    return shortened_value(value, repr) if isinstance(value, str) else shortened_value(repr(value))


def _order(row: Row) -> tuple[Any, ...]:
    return (row[0], row[1], *((value is not None, type(value).__name__, _sortable(value)) for value in row[2:]))


def _sortable(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value if isinstance(value, int | str | bytes | Decimal) else repr(value)
