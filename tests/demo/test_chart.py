"""Tables, charts and progress bars as characters."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from streamq.demo.chart import ProgressBar, chart, table, unicode_works


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def test_a_table_is_aligned() -> None:
    rows = [
        {"stage": "0 trips", "n": 1234, "mean": 1.25, "late": None},
        {"stage": "1", "n": 5, "mean": None, "late": True},
    ]
    lines = table(rows).splitlines()
    assert lines[0] == "stage        n  mean  late"
    assert lines[2:] == ["0 trips  1,234   1.2     -", "1            5     -   yes"]


def test_a_table_chooses_columns_limits_rows_and_fits() -> None:
    rows = [{"a": n, "b": "x" * 200} for n in range(5)]
    assert "b" not in table(rows, ["a"])
    assert table(rows, ["a"], limit=2).endswith("... and 3 more")
    assert max(map(len, table(rows).splitlines())) == 80
    assert table([], ["a"]).endswith("(no rows)")
    assert table([{"at": datetime(2024, 1, 1, 12, 30, 5, 250000, UTC)}]).endswith("12:30:05.25")
    assert "\x1b" not in table([{"a": "\x1b[31m"}])


def test_bars_grow_to_the_greatest_value() -> None:
    text = chart({"a": [(n, n) for n in range(9)], "b": [(0, 4)]}, width=24, height=1, ascii=False)
    a, b, axis = text.splitlines()
    drawn = a.split("│")[1]
    assert "".join(sorted(set(drawn), key=drawn.index)) == " ▁▂▃▄▅▆▇█"
    assert a.endswith(" 8")
    assert b.split("│")[1].strip() == "▄"
    assert axis.split() == ["0", "9"]


def test_two_lines_carry_twice_the_levels() -> None:
    upper, lower, _ = chart({"a": [(0, 1), (1, 2)]}, width=40, height=2, ascii=False).splitlines()
    bars = [line.split("│")[1] for line in (upper, lower)]
    assert set(bars[0]) == {" ", "█"}
    assert bars[1] == "█" * len(bars[0])
    assert bars[0].count("█") == (len(bars[0]) + 1) // 2
    assert lower.startswith("a ")
    assert lower.endswith(" 2")


def test_ascii_alone_where_nothing_else_works() -> None:
    text = chart({"a": [(0, 1.0), (1, 2.0)]}, width=40, ascii=True)
    assert text.isascii()
    assert "@" in text
    assert not unicode_works(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert unicode_works(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


@pytest.mark.parametrize("ascii", [True, False])
def test_a_chart_fits_its_width(ascii: bool) -> None:
    began = datetime(2024, 1, 1, tzinfo=UTC)
    line = [(began + timedelta(milliseconds=500 * n), float(n % 7)) for n in range(333)]
    text = chart({"a rather long label for a stage of a job": line, "b": line[:5]}, width=70, ascii=ascii)
    assert max(map(len, text.splitlines())) <= 70
    assert "00:00:00" in text.splitlines()[-1]
    assert "00:02:46.50" in text.splitlines()[-1]


def test_values_that_cannot_be_drawn_are_left_out() -> None:
    assert chart({}) == "(nothing to draw)"
    assert chart({"a": [(0, None), (1, float("nan"))]}) == "(nothing to draw)"
    assert "█" not in chart({"a": [(0, 0), (1, None), (2, 0)]}, ascii=False)


def test_a_small_value_is_seen() -> None:
    assert "▁" in chart({"a": [(0, 1000), (1, 1)]}, width=40, height=1, ascii=False)


def test_a_bar_on_a_terminal_is_redrawn_in_place() -> None:
    stream = Terminal()
    with ProgressBar(4, "replay", stream) as bar:
        bar.update(2, "note")
        bar.update(9)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert " 50% 2/4" in text
    assert "note" in text
    assert "100% 9/4" in text


def test_elsewhere_a_bar_is_a_few_plain_lines() -> None:
    stream = io.StringIO()
    with ProgressBar(1000, "replay", stream) as bar:
        for n in range(1001):
            bar.update(n)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert "\r" not in stream.getvalue()
    assert "100% 1,000/1,000" in lines[-1]


def test_a_bar_without_a_total_shows_what_is_done() -> None:
    stream = Terminal()
    with ProgressBar(None, "job", stream) as bar:
        bar.update(0, "12 kB")
    assert "job 0 s 12 kB" in stream.getvalue()
    with ProgressBar(0, "nothing", stream):
        pass
