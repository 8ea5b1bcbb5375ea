"""Plots of what the benchmarks wrote as JSON, as SVG files in docs/images.

    python -m benchmarks.plots [--datacell FILE] [--matrix FILE] [--engines FILE]

Needs Altair and vl-convert, of the extra ``benchmarks``. A file that is not there is left out, with a message.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"

Rows = list[dict[str, Any]]
Plot = tuple[str, Any]
"""The name of a file, and a chart."""


def chart(rows: Rows, title: str, x: tuple[str, str], y: tuple[str, str], color: tuple[str, str]) -> Any:
    """Return lines with points over ordinal ``x``, ``y`` by its logarithm; each is a column and the title of its axis."""
    import altair as alt

    lines = alt.Chart(alt.Data(values=rows), title=title, width=420, height=260).mark_line(point=True)
    return lines.encode(
        x=alt.X(f"{x[0]}:O", title=x[1], sort=None, axis=alt.Axis(labelAngle=0)),
        y=alt.Y(f"{y[0]}:Q", title=y[1], scale=alt.Scale(type="log")),
        color=alt.Color(f"{color[0]}:N", title=color[1], sort=None),
        shape=alt.Shape(f"{color[0]}:N", sort=None, legend=None),
    )


WAYS = {"incremental": "a slide", "anew": "anew", "arrow": "PyArrow"}
DATACELL = {
    "5a": ("Q1 by selectivity", "selected"),
    "6a": ("Q1 by the window's size, 512 hops", "tuples of the window"),
    "6b": ("Q3 since a landmark", "slide"),
    "7a": ("Q1 by the number of hops, 10.24 M tuples", "hops"),
    "7b": ("Q2 by the number of hops, 102,400 tuples", "hops"),
    "9": ("Q2 over tuples parsed from CSV, 64 hops", "tuples of the window"),
}
"""The title of a figure of the paper, and of what changes in it."""


def of_datacell(data: dict[str, Any]) -> Iterator[Plot]:
    """Yield a plot for each figure: the processor time of a slide by each way."""
    for name, (title, changes) in DATACELL.items():
        cells = [cell for cell in data["cells"] if cell["experiment"] == name]
        ways = WAYS | ({"arrow": "DuckDB"} if name == "9" else {})
        rows = [{"of": value(cell["of"]), "ms": cell[w], "way": shown} for cell in cells for w, shown in ways.items()]
        if rows:
            y = "processor time, ms"
            yield f"datacell_{name}", chart(rows, f"{name}: {title}", ("of", changes), ("ms", y), ("way", ""))


def value(of: str) -> str:
    """Return the part of a cell's title that changes from one to the next: ``n = 512, 20 %`` is ``20 %``."""
    last = of.removesuffix(", CSV").rpartition(", ")[2].rpartition("= ")[2]
    return last.removesuffix(" tuples").removeprefix("slide ")


def of_matrix(data: dict[str, Any]) -> Iterator[Plot]:
    """Yield the plot of the ratio to Spark's own windows by hops and density."""
    cells = [result for result in data["results"] if result["cell"]["name"].endswith("-matrix")]
    rows = [{"n": c["cell"]["n"], "density": str(c["cell"]["density"]), "ratio": c["ratio"]} for c in cells]
    title = "Hopping windows in batch against Spark's own"
    yield (
        "against_spark",
        chart(rows, title, ("n", "size / hop"), ("ratio", "Spark / streamq"), ("density", "events a key and hop")),
    )


def of_engines(data: dict[str, Any]) -> Iterator[Plot]:
    """Yield the plot of the ratio to other engines by hops."""
    rows = [{"n": c["n"], "engine": f"{c['against']} ({c['of']})", "ratio": c["ratio"]} for c in data["cells"]]
    title = "Hopping windows against other engines"
    yield "other_engines", chart(rows, title, ("n", "size / hop"), ("ratio", "other / streamq"), ("engine", ""))


PLOTS: dict[str, Callable[[dict[str, Any]], Iterator[Plot]]] = {
    "datacell": of_datacell,
    "matrix": of_matrix,
    "engines": of_engines,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--datacell", type=Path, default=Path("datacell.json"))
    parser.add_argument("--matrix", type=Path, default=Path("batch_hopping.json"))
    parser.add_argument("--engines", type=Path, default=Path("other_engines.json"))
    parser.add_argument("--into", type=Path, default=IMAGES)
    options = parser.parse_args(arguments)
    options.into.mkdir(parents=True, exist_ok=True)
    for name, plots in PLOTS.items():
        file: Path = getattr(options, name)
        if not file.exists():
            print(f"{file}: not there, left out")
            continue
        for title, plot in plots(json.loads(file.read_text())):
            plot.save(options.into / f"{title}.svg")
            print(options.into / f"{title}.svg")


if __name__ == "__main__":
    main()
