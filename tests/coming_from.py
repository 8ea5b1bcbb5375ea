"""The rows of docs/coming_from.md, and the streams that its code is about."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import streamq as sq

PAGE = Path(__file__).parents[1] / "docs" / "coming_from.md"

TEN = dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC)

EVENTS = [(0, "a", 1), (5, "a", 2), (10, "a", 2), (30, "a", 2), (1, "b", 9), (6, "b", 4), (7, "c", 3), (70, "b", 5)]
"""Minutes after ten, a key, a value: with equal values, and neighbours exactly five, ten and twenty minutes apart."""

OTHERS = [(0, "a", 7), (5, "a", 8), (6, "b", 1), (11, "b", 2), (12, "c", 5), (90, "c", 6)]
"""Minutes after ten, a key, another value."""


def table(rows: Iterable[tuple[int, str, int]], value: str) -> pa.Table:
    times, keys, values = zip(*rows, strict=True)
    starts = pa.array([TEN + dt.timedelta(minutes=m) for m in times], pa.timestamp("us", "UTC"))
    return pa.table({"ts": starts, "k": list(keys), value: list(values)})


T, W = table(EVENTS, "v"), table(OTHERS, "w")
ZONES = pa.table({"k": ["a", "b", "d"], "city": ["Ulm", "Bonn", "Rome"]})


class PageRow(NamedTuple):
    """A row of a table: what the thing is called there, and what it is here."""

    theirs: str
    ours: str

    @property
    def their_code(self) -> str:
        """The first piece of code of the first column, "" if there is none."""
        return "".join(re.findall("`([^`]+)`", self.theirs)[:1])

    @property
    def codes(self) -> list[str]:
        """The code of the second column, piece by piece."""
        return re.findall("`([^`]+)`", self.ours)

    @property
    def result(self) -> Any:
        """The value of the first piece of code that makes a stream or windows."""
        return eval(next(code for code in self.codes if "(" in code), streams())


def page_rows() -> dict[str, PageRow]:
    """The rows of all tables of the page, by their first cell."""
    cells = re.findall(r"^\| (.*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    titles = ("---", "Flink SQL", "Structured Streaming", "StreamInsight, Trill")
    return {theirs: PageRow(theirs, ours) for theirs, ours in cells if theirs not in titles}


def streams() -> dict[str, Any]:
    """Return the streams and tables that the names on the page stand for."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"t": T, "zones": ZONES}
    exec(block.partition("\ns = ")[0], names)
    s, w = sq.points(T, time="ts", name="t"), sq.points(W, time="ts", name="w")
    lasting = [
        (0, 12, {"k": "a", "v": 1}),
        (3, 7, {"k": "b", "v": 2}),
        (9, 24, {"k": "a", "v": 3}),
        (26, 31, {"k": "b", "v": 4}),
    ]
    other = sq.events([(2, 5, {"k": "a"}), (10, 12, {"k": "a"}), (28, 29, {"k": "b"})], name="other")
    lengths = {"step": "10 minutes", "size": "1 hour", "slide": "15 minutes", "gap": "5 minutes"}
    return names | lengths | {
        "s": s, "a": s, "b": w, "orders": s, "prices": w, "lasting": sq.events(lasting, name="lasting"), "other": other,
    }  # fmt: skip


def values(rows: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of a table as rows, in order; NULLs come first."""
    unordered = [tuple(row[c] for c in columns) for row in rows.to_pylist()]
    return sorted(unordered, key=lambda row: [(value is not None, value) for value in row])


ON_SPARK = (
    '`F.window("ts", "1 hour", "15 minutes")`',
    '`F.session_window("ts", "10 minutes")`',
    '`df.groupBy("k", F.window("ts", "1 hour")).agg(F.count("*").alias("n"))`',
    'a stream-stream join: `F.expr("a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 MINUTES")`',
    "the same as a left outer join",
)
"""The rows whose first column Spark runs, in ``spark/test_coming_from.py``."""
