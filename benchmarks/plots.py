"""The pictures of docs/benchmarks.md, drawn from its tables: SVG files in docs/images.

    python -m benchmarks.plots

A line ``![...](images/NAME.svg)`` shows the table above it. Each row with a list of three or more values in its second column is
a chart, each column after that a line. A picture describes itself with the numbers that it shows, so that a test can tell whether
they are still those of the page. Needs Altair and vl-convert, of the extra ``benchmarks``.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

PICTURE = re.compile(r"!\[[^]]*\]\((images/\w+\.svg)\)")
ATTRIBUTE, FRACTION = re.compile(r'"[^"]*"'), re.compile(r"(\.\d)\d+")

LINES = (0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
"""The ratios with a line across the chart."""

NUMBER = re.compile(r"[\d.]+")


@dataclass(frozen=True)
class Chart:
    """A row of a table: values by ``of``, and lines with a value at each of them, by the titles of their columns."""

    title: str
    of: list[str]
    lines: dict[str, list[float]]


@dataclass(frozen=True)
class Picture:
    """The charts of a table, and the file that shows them."""

    file: Path
    charts: list[Chart]

    @property
    def description(self) -> str:
        """The element of the SVG file that has the numbers."""
        numbers = [[chart.title, chart.of, *chart.lines.values()] for chart in self.charts]
        return f"<desc>{html.escape(json.dumps(numbers), quote=False)}</desc>"


def pictures(page: Path = PAGE) -> Iterator[Picture]:
    """Yield the pictures of a page."""
    table: list[list[str]] = []
    for before, line in zip(["", *(lines := page.read_text(encoding="utf-8").splitlines())], lines, strict=False):
        picture = PICTURE.fullmatch(line)
        if line.startswith("|"):
            table = [*(table if before.startswith("|") else []), [cell.strip() for cell in line.strip("|").split("|")]]
        elif picture:
            yield Picture(page.parent / picture[1], list(charts(table)))


def charts(table: list[list[str]]) -> Iterator[Chart]:
    """Yield the charts of a table."""
    (_, _, *titles), _, *rows = table
    for title, of, *cells in rows:
        places = of.split(", ")
        if len(places) > 2:
            yield Chart(title, places, {name: values(cell) for name, cell in zip(titles, cells, strict=True)})


def values(cell: str) -> list[float]:
    """Return the numbers of a list; of a range, as ``1.6 to 1.7``, its middle."""
    ranges = ([float(number) for number in NUMBER.findall(part)] for part in cell.split(", "))
    return [sum(ends) / len(ends) for ends in ranges]


def drawn(chart: Chart) -> Any:
    """Return a chart of Altair's, with ratios by their logarithms."""
    import altair as alt

    rows = [
        {"of": of, "ratio": ratio, "line": line}
        for line, ratios in chart.lines.items()
        for of, ratio in zip(chart.of, ratios, strict=True)
    ]
    plot = alt.Chart(alt.Data(values=rows), title=alt.Title(chart.title, fontSize=11), width=200, height=140)
    return plot.mark_line(point=True).encode(
        x=alt.X("of:O", title=None, sort=None, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("ratio:Q", title=None, scale=alt.Scale(type="log"), axis=alt.Axis(values=LINES)),
        color=alt.Color("line:N", title=None, sort=None, legend=alt.Legend(orient="bottom")),
    )


def svg(picture: Picture) -> str:
    """Return the picture as an SVG file, with coordinates in tenths of a pixel."""
    import altair as alt

    text = io.StringIO()
    alt.concat(*map(drawn, picture.charts), columns=3).configure(aria=False).save(text, format="svg")
    rounded = ATTRIBUTE.sub(lambda quoted: FRACTION.sub(r"\1", quoted[0]), text.getvalue())
    return rounded.replace(">", f">{picture.description}", 1) + "\n"


def main() -> None:
    for picture in pictures():
        picture.file.parent.mkdir(exist_ok=True)
        picture.file.write_text(svg(picture), encoding="utf-8")
        print(picture.file)


if __name__ == "__main__":
    main()
