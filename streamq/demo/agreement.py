"""Compare two answers as bags of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

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
