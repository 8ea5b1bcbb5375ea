"""Tables and charts as characters."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console, RenderableType

from streamq.demo.chart import chart, table


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
    assert "b" not in printed(table(rows, ["a"]))
    lines = printed(table(rows)).splitlines()
    assert max(map(len, lines)) == 80
    assert [line[0] for line in lines] == ["a", "─", *"01234"]
    assert printed(table([], ["a"])).endswith("(no rows)")
    assert printed(table([{"at": datetime(2024, 1, 1, 12, 30, 5, 250000, UTC)}])).endswith("12:30:05.25")
    assert "\x1b" not in printed(table([{"a": "\x1b[31m"}]))
    assert "[red]" in printed(table([{"a": "[red]"}]))


def test_bars_grow_to_the_greatest_value() -> None:
    text = printed(chart({"a": [(n, n) for n in range(9)], "b": [(0, 4)]}, height=1), 24)
    a, b, axis = text.splitlines()
    drawn = a.split("│")[1]
    assert "".join(sorted(set(drawn), key=drawn.index)) == " ▁▂▃▄▅▆▇█"
    assert a.endswith(" 8")
    assert b.split("│")[1].strip() == "▄▄"
    assert axis.split() == ["0", "9"]


def test_two_lines_carry_twice_the_levels() -> None:
    upper, lower, _ = printed(chart({"a": [(0, 1), (1, 2)]}, height=2), 40).splitlines()
    bars = [line.split("│")[1] for line in (upper, lower)]
    assert set(bars[0]) == {" ", "█"}
    assert bars[1] == "█" * len(bars[0])
    assert bars[0].count("█") == (len(bars[0]) + 1) // 2
    assert lower.startswith("a ")
    assert lower.endswith(" 2")


def test_ascii_alone_where_nothing_else_works() -> None:
    text = printed(chart({"a": [(0, 1.0), (1, 2.0)]}), 40, "ascii")
    assert text.isascii()
    assert "@" in text


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_chart_fits_its_width(encoding: str) -> None:
    began = datetime(2024, 1, 1, tzinfo=UTC)
    line = [(began + timedelta(milliseconds=500 * n), float(n % 7)) for n in range(333)]
    text = printed(chart({"a label for a stage of a job": line, "b": line[:5]}), 70, encoding)
    assert max(map(len, text.splitlines())) <= 70
    assert "00:00:00" in text.splitlines()[-1]
    assert "00:02:46.50" in text.splitlines()[-1]


def test_a_long_label_leaves_room_for_the_bars() -> None:
    text = printed(chart({"stage " * 20: [(0, 1)]}, height=1), 60)
    assert text.startswith("stage stage ")
    assert "█" * 20 in text
    assert "…" in text


def test_values_that_cannot_be_drawn_are_left_out() -> None:
    assert printed(chart({})) == "(nothing to draw)"
    assert printed(chart({"a": [(0, None), (1, float("nan"))]})) == "(nothing to draw)"
    assert "█" not in printed(chart({"a": [(0, 0), (1, None), (2, 0)]}))


def test_a_small_value_is_seen() -> None:
    assert "▁" in printed(chart({"a": [(0, 1000), (1, 1)]}, height=1), 40)
