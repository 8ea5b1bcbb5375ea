"""Tables, charts and a progress bar for a terminal, with nothing but the standard library."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self, TextIO

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
ASCII: Final = " .:-=+*#@"

Point = tuple[float | datetime, float | None]


def unicode_works(stream: TextIO | None = None) -> bool:
    """Whether a stream (default: standard output) can show block characters."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "ascii"
    try:
        BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    width: int | None = None,
) -> str:
    """Rows as aligned text: numbers to the right, None as ``-``, floats with one decimal, times of day in UTC.

    ``columns`` chooses and orders (default: those of the first row); ``limit`` rows are shown and the rest counted;
    cells are cut so that lines fit ``width`` characters (default: the terminal).
    """
    columns = list(columns if columns is not None else rows[0] if rows else ())
    shown = rows if limit is None else rows[:limit]
    cells = [[_cell(row.get(column)) for column in columns] for row in shown]
    right = [
        all(isinstance(row.get(column), int | float | None) for row in shown) and bool(shown) for column in columns
    ]
    widths = [max([_columns_of(name), *(_columns_of(line[n]) for line in cells)]) for n, name in enumerate(columns)]
    room = (width or _terminal_width()) - 2 * (len(columns) - 1)
    while sum(widths) > room and max(widths, default=0) > 8:
        widths[widths.index(max(widths))] -= 1
    rule = "─" if unicode_works() else "-"
    lines = [columns, [rule * w for w in widths], *cells]
    text = [
        "  ".join(_fit(cell, w, to_right) for cell, w, to_right in zip(line, widths, right, strict=True)).rstrip()
        for line in lines
    ]
    if not rows:
        text.append("(no rows)")
    elif len(shown) < len(rows):
        text.append(f"... and {len(rows) - len(shown):,} more")
    return "\n".join(text)


def chart(
    series: Mapping[str, Sequence[Point]],
    width: int | None = None,
    height: int = 2,
    ascii: bool | None = None,
    unit: str = "",
) -> str:
    """A strip of bars for every series, over one x axis and on one scale; the strip's maximum stands at its right.

    ``x`` is a number or a datetime, ``y`` a number at least 0; where several points fall into one character the
    greatest is drawn; a value stands for the least distance of two x. ``width`` is in characters and covers labels and
    figures (default: the terminal), ``height`` in lines a series. ``ascii`` chooses plain characters (default: where
    standard output's encoding has no others).
    """
    points = {
        label: [(_number(x), y) for x, y in line if y is not None and math.isfinite(y)]
        for label, line in series.items()
    }
    everything = [point for line in points.values() for point in line]
    if not everything:
        return "(nothing to draw)"
    plain = not unicode_works() if ascii is None else ascii
    glyphs = ASCII if plain else BLOCKS
    top = max(max(y for _, y in everything), 0)
    figures = {label: f"{max((y for _, y in line), default=0):,.4g}{unit}" for label, line in points.items()}
    labels = max(map(_columns_of, points))
    tail = max(len("max"), *map(len, figures.values()))
    width = max((width or _terminal_width()) - 1, 24)
    labels = min(labels, width // 3)
    room = max(width - labels - tail - 4, 8)
    gap = _gap(points)
    low, high = min(x for x, _ in everything), max(x for x, _ in everything) + gap
    left, right = ("|", "|") if plain else ("│", "│")
    text = []
    for label, line in points.items():
        bars = _bars(line, low, high, gap, room)
        for level in reversed(range(height)):
            strip = "".join(_glyph(y, top, level, height, glyphs) for y in bars)
            name, figure = (label, figures[label]) if level == 0 else ("", "")
            text.append(f"{_fit(name, labels, False)} {left}{strip}{right} {figure:>{tail}}".rstrip())
    begin, end = _axis(series, low), _axis(series, high)
    text.append(f"{'':{labels}}  {begin}{end:>{max(room - len(begin), len(end) + 1)}}")
    return "\n".join(text)


class ProgressBar:
    """A bar on standard error: redrawn in place on a terminal, elsewhere a plain line for every tenth part done.

    ``total`` None, or 0: the whole is unknown, and a count and the time passed are shown. A context manager; closed at
    the end, also by an error.
    """

    def __init__(self, total: int | None, label: str = "", stream: TextIO | None = None, width: int = 30) -> None:
        self.total = total
        self.label = label
        self.done = 0
        self._stream = stream or sys.stderr
        self._width = width
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._full, self._empty = "█░" if unicode_works(self._stream) else "#."
        self._began = time.monotonic()
        self._written: Any = None
        self._closed = False

    def update(self, done: int, note: str = "") -> None:
        """Show that ``done`` of ``total`` parts are done."""
        self.done = max(done, 0)
        passed = time.monotonic() - self._began
        if self._live:
            self._stream.write(f"\r\x1b[2K{self._line(passed, note)}")
            self._stream.flush()
        elif (step := self._step(passed)) != self._written:
            self._written = step
            print(self._line(passed, note), file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the bar as it is and go to the next line."""
        if self._live and not self._closed:
            self._stream.write("\n")
            self._stream.flush()
        self._closed = True

    def __enter__(self) -> Self:
        self.update(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _step(self, passed: float) -> int:
        return min(self.done, self.total) * 10 // self.total if self.total else int(passed / 5)

    def _line(self, passed: float, note: str) -> str:
        if not self.total:
            bar, count = "", f"{self.done:,}" if self.done else ""
        else:
            share = min(self.done / self.total, 1)
            full = int(share * self._width)
            bar = f"[{self._full * full}{self._empty * (self._width - full)}] {share:4.0%}"
            count = f"{self.done:,}/{self.total:,}"
        line = " ".join(filter(None, [self.label, bar, count, f"{passed:.0f} s", note]))
        return _fit(line, _terminal_width() - 1, False).rstrip() if self._live else line


def _terminal_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _columns_of(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fit(text: str, width: int, to_right: bool) -> str:
    if _columns_of(text) > width:
        mark = "…" if unicode_works() else "~"
        while text and _columns_of(text) >= width:
            text = text[:-1]
        text += mark
    pad = " " * (width - _columns_of(text))
    return pad + text if to_right else text + pad


def _cell(value: Any) -> str:
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
    value = value.astimezone(UTC) if value.tzinfo else value
    return value.strftime("%H:%M:%S.%f")[:-4].removesuffix(".00")


def _number(x: float | datetime) -> float:
    if isinstance(x, datetime):
        return (x if x.tzinfo else x.replace(tzinfo=UTC)).timestamp()
    return float(x)


def _axis(series: Mapping[str, Sequence[Point]], x: float) -> str:
    if any(isinstance(at, datetime) for line in series.values() for at, _ in line):
        return _clock(datetime.fromtimestamp(x, UTC))
    return f"{x:g}"


def _gap(points: Mapping[str, Sequence[tuple[float, float]]]) -> float:
    """The least distance of two x: how long a value stands."""
    xs = sorted({x for line in points.values() for x, _ in line})
    return min((b - a for a, b in pairwise(xs)), default=1.0)


def _bars(line: Sequence[tuple[float, float]], low: float, high: float, gap: float, room: int) -> list[float | None]:
    """The greatest value over each of ``room`` characters from ``low`` to ``high``, where each stands for ``gap``."""
    bars: list[float | None] = [None] * room
    for x, y in line:
        begin, end = (math.floor((at - low) / (high - low) * room + 1e-9) for at in (x, x + gap))
        for place in range(begin, min(max(end, begin + 1), room)):
            bars[place] = max(y, bars[place] or 0)
    return bars


def _glyph(y: float | None, top: float, level: int, height: int, glyphs: str) -> str:
    if y is None or y <= 0 or top <= 0:
        return glyphs[0]
    steps = len(glyphs) - 1
    filled = max(math.ceil(y / top * height * steps - 1e-9), 1) - level * steps
    return glyphs[min(max(filled, 0), steps)]
