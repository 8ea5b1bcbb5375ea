"""Tables of the demo, printed by rich, with values over time as strips of characters; and two answers compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
ASCII: Final = " .:-=+*#@"
WIDTH: Final = 40
"""The number of characters of a strip."""


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows as a table: numbers aligned to the right, None as ``-``, floats with one decimal, times of day in UTC."""
    columns = list(rows[0]) if rows else []
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        is_number = bool(rows) and all(isinstance(row.get(column), int | float | None) for row in rows)
        drawn.add_column(column, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        drawn.add_row(*(Text(_cell(row.get(column)), no_wrap=True, overflow="ellipsis") for column in columns))
    if not rows:
        drawn.add_row("(no rows)")
    return drawn


Step = tuple[datetime, datetime, float]
"""A value with the start and the end of its window."""


def strip(steps: Sequence[Step], low: datetime, high: datetime, top: float, glyphs: str = BLOCKS) -> str:
    """Return values over the time from ``low`` to ``high`` as WIDTH characters, each as high as the greatest value in it.

    A value of ``top`` fills its character; even a small one is seen.
    """
    heights = [0.0] * WIDTH
    for start, end, value in steps:
        first, last = ((at - low) / (high - low) * WIDTH for at in (start, end))
        for place in range(min(int(first), WIDTH - 1), min(math.ceil(last - 1e-9), WIDTH)):
            heights[place] = max(value, heights[place])
    return "".join(glyphs[math.ceil(height / top * (len(glyphs) - 1)) if height > 0 else 0] for height in heights)


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell: None and NaN as ``-``, a truth value as yes or no, a number with separators.

    A float has one decimal, a datetime is a time of day; anything else is its text.
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return "-" if math.isnan(value) else f"{value:,.1f}"
        case datetime():
            return _clock(value)
    return "".join(c if c.isprintable() else " " for c in str(value))


def _clock(value: datetime) -> str:
    """Return a time of day in UTC, to hundredths of a second; whole seconds without a fraction."""
    value = value.astimezone(UTC) if value.tzinfo else value
    return value.strftime("%H:%M:%S.%f")[:-4].removesuffix(".00")


AnswerRow = tuple[Any, ...]


@dataclass(frozen=True)
class Agreement:
    """The number of rows that both answers have, and the surplus rows of each, with their counts."""

    columns: tuple[str, ...]
    common: int
    only_left: Counter[AnswerRow]
    only_right: Counter[AnswerRow]

    def __bool__(self) -> bool:
        return not self.only_left and not self.only_right

    def differences(self, left: str, right: str, limit: int = 10) -> list[str]:
        """Return a line for each of the first ``limit`` differing rows, in order, with the answer that has it.

        ``left`` and ``right`` are the names of the answers. If there are more rows, a last line counts them.
        """
        rows = [(left, row) for row in self.only_left.elements()] + [(right, row) for row in self.only_right.elements()]
        rows.sort(key=lambda sided_row: (repr(sided_row[1]), sided_row[0]))
        lines = [
            f"only in {side}: " + ", ".join(f"{c}={v}" for c, v in zip(self.columns, row, strict=True))
            for side, row in rows[:limit]
        ]
        return lines + ([f"... and {len(rows) - limit:,} more"] if len(rows) > limit else [])


def compare_answers(
    left: Iterable[Mapping[str, Any]], right: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> Agreement:
    """Compare two bags of rows by these columns: floats and decimals to nine significant digits, instants in UTC."""
    a, b = (Counter(tuple(_plain(row[column]) for column in columns) for row in rows) for rows in (left, right))
    return Agreement(tuple(columns), (a & b).total(), a - b, b - a)


def _plain(value: Any) -> Any:
    """Return a value in the form in which answers are compared: a float or decimal as text of nine digits, an instant in UTC.

    Any other value, an integer too, is returned unchanged.
    """
    match value:
        case float() | Decimal():
            return f"{value + 0:.9g}"
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return value
