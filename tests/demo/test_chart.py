"""Tables and values over time as characters."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console, RenderableType

from streamq.demo.chart import ASCII, BLOCKS, WIDTH, strip, table


def printed(shape: RenderableType, width: int = 80, encoding: str = "utf-8") -> str:
    """What stands on an output of this width and encoding."""
    output = io.TextIOWrapper(io.BytesIO(), encoding)
    Console(file=output, width=width, highlight=False).print(shape)
    output.seek(0)
    return output.read().rstrip("\n")


def test_a_table_is_aligned() -> None:
    rows = [
        {"stage": "0 trips", "n": 1234, "mean": 1.25, "late": None},
        {"stage": "1", "n": 5, "mean": None, "late": True},
    ]
    lines = printed(table(rows)).splitlines()
    assert lines[0] == "stage        n  mean  late"
    assert lines[2:] == ["0 trips  1,234   1.2     -", "1            5     -   yes"]


def test_a_table_chooses_columns_and_fits() -> None:
    rows = [{"a": n, "b": "x" * 200} for n in range(5)]
    lines = printed(table(rows)).splitlines()
    assert max(map(len, lines)) == 80
    assert [line[0] for line in lines] == ["a", "─", *"01234"]
    assert printed(table([{"at": datetime(2024, 1, 1, 12, 30, 5, 250000, UTC)}])).endswith("12:30:05.25")
    assert "\x1b" not in printed(table([{"a": "\x1b[31m"}]))
    assert "[red]" in printed(table([{"a": "[red]"}]))


BEGAN = datetime(2024, 1, 1, tzinfo=UTC)


def drawn(*values: float, top: float, glyphs: str = BLOCKS) -> str:
    seconds = [BEGAN + timedelta(seconds=n) for n in range(len(values) + 1)]
    return strip(list(zip(seconds, seconds[1:], values, strict=False)), BEGAN, seconds[-1], top, glyphs)


def test_a_strip_grows_to_the_greatest_value_and_shows_a_small_one() -> None:
    text = drawn(*range(9), top=8)
    assert len(text) == WIDTH and "".join(sorted(set(text), key=text.index)) == " ▁▂▃▄▅▆▇█"
    assert drawn(1000, 0, 1, 500, top=1000) == "█" * 10 + " " * 10 + "▁" * 10 + "▄" * 10
    assert drawn(1, 2, top=2, glyphs=ASCII) == "=" * 20 + "@" * 20
    assert set(drawn(*[5.0] * 333, top=5)) == {"█"}, "more values than characters"
