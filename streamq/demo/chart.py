"""Tables and charts of the demo, printed by rich on a terminal, into a file, or in plain ASCII; and two answers compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
ASCII: Final = " .:-=+*#@"
LABEL: Final = 30
"""The greatest number of characters of a series' label in a chart."""

Point = tuple[float | datetime, float | None]


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Table:
    """Return rows as a table: numbers aligned to the right, None as ``-``, floats with one decimal, times of day in UTC.

    ``columns`` are the columns in order (default: those of the first row).
    """
    columns = list(columns if columns is not None else rows[0] if rows else ())
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        is_number = bool(rows) and all(isinstance(row.get(column), int | float | None) for row in rows)
        drawn.add_column(column, justify="right" if is_number else "left", no_wrap=is_number)
    for row in rows:
        drawn.add_row(*(Text(_cell(row.get(column)), no_wrap=True, overflow="ellipsis") for column in columns))
    if not rows:
        drawn.add_row("(no rows)")
    return drawn


def chart(series: Mapping[str, Sequence[Point]], height: int = 2, unit: str = "") -> Table | str:
    """Return a strip of bars for each series, over one x axis and on one scale, with the strip's maximum at its right.

    ``x`` is a number or a datetime, ``y`` a number of at least 0; points without a finite ``y`` are left out, and without any
    point the result is a text. If several points fall on one character, the greatest is drawn. A bar is as wide as the least
    distance between two x. ``height`` is the number of lines for each series, ``unit`` the text
    behind each maximum.
    """
    points = {
        label: [(_number(x), y) for x, y in line if y is not None and math.isfinite(y)]
        for label, line in series.items()
    }
    everything = [point for line in points.values() for point in line]
    if not everything:
        return "(nothing to draw)"
    scale = _Scale(points, max(y for _, y in everything), height)
    drawn = Table.grid(
        Column(overflow="ellipsis", no_wrap=True, max_width=LABEL),
        Column(ratio=1, no_wrap=True),
        Column(justify="right", no_wrap=True),
        padding=(0, 1, 0, 0),
        expand=True,
    )
    for label, line in points.items():
        greatest = f"{max((y for _, y in line), default=0):,.4g}{unit}"
        for lines_below in reversed(range(height)):
            is_lowest = lines_below == 0
            strip = _FullWidth(partial(scale.strip, line, lines_below))
            drawn.add_row(Text(label if is_lowest else ""), strip, greatest if is_lowest else "")
    drawn.add_row("", _FullWidth(partial(_ends, _axis(series, scale.low), _axis(series, scale.high))))
    return drawn


@dataclass
class _FullWidth:
    """A line of text that ``draw(width, ascii_only)`` draws for the available width."""

    draw: Callable[[int, bool], str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.draw(options.max_width, options.ascii_only), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)


class _Scale:
    """The scale that all strips of a chart share: the ends of the x axis, the width of a bar, the greatest value, the height."""

    def __init__(self, points: Mapping[str, Sequence[tuple[float, float]]], top: float, height: int) -> None:
        xs = sorted({x for line in points.values() for x, _ in line})
        self.gap = min((b - a for a, b in pairwise(xs)), default=1.0)
        self.low, self.high = xs[0], xs[-1] + self.gap
        self.top = top
        self.height = height

    def strip(self, line: Sequence[tuple[float, float]], lines_below: int, width: int, ascii: bool) -> str:
        """Return the line of a series' strip that has ``lines_below`` lines below it, between two rules."""
        rule, glyphs = ("|", ASCII) if ascii else ("│", BLOCKS)
        return rule + "".join(self._glyph(y, lines_below, glyphs) for y in self._bars(line, max(width - 2, 1))) + rule

    def _bars(self, line: Sequence[tuple[float, float]], room: int) -> list[float]:
        """Return the greatest value over each of ``room`` characters; each value covers the width of a bar."""
        bars = [0.0] * room
        for x, y in line:
            ends = ((at - self.low) / (self.high - self.low) * room for at in (x, x + self.gap))
            begin, end = (math.floor(end + 1e-9) for end in ends)
            for place in range(begin, min(max(end, begin + 1), room)):
                bars[place] = max(y, bars[place])
        return bars

    def _glyph(self, y: float, lines_below: int, glyphs: str) -> str:
        """Return the character for a value's part on a line; even a small value gets a visible one."""
        if y <= 0:
            return glyphs[0]
        steps = len(glyphs) - 1
        filled = max(math.ceil(y / self.top * self.height * steps - 1e-9), 1) - lines_below * steps
        return glyphs[min(max(filled, 0), steps)]


def _ends(begin: str, end: str, width: int, ascii: bool) -> str:
    """Return the last line of a chart, the two ends of the x axis, at the width of its strips."""
    return f" {begin}{end:>{max(width - len(begin) - 2, len(end) + 1)}}"


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell: None and NaN as ``-``, a truth value as yes or no, a number with separators.

    A float has one decimal, a datetime is a time of day, a timedelta is in seconds; anything else is its text.
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
        case timedelta():
            return f"{value.total_seconds():,.3f} s"
    return "".join(c if c.isprintable() else " " for c in str(value))


def _clock(value: datetime) -> str:
    """Return a time of day in UTC, to hundredths of a second; whole seconds without a fraction."""
    value = value.astimezone(UTC) if value.tzinfo else value
    return value.strftime("%H:%M:%S.%f")[:-4].removesuffix(".00")


def _number(x: float | datetime) -> float:
    """Return an x as a number: of a datetime the seconds since 1970."""
    if isinstance(x, datetime):
        return (x if x.tzinfo else x.replace(tzinfo=UTC)).timestamp()
    return float(x)


def _axis(series: Mapping[str, Sequence[Point]], x: float) -> str:
    """Return an end of the x axis as text: a time of day if the series are over datetimes, else the number."""
    if any(isinstance(at, datetime) for line in series.values() for at, _ in line):
        return _clock(datetime.fromtimestamp(x, UTC))
    return f"{x:g}"


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
