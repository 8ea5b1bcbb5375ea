"""The experiments of DataCell (Liarou et al., section 4.1), in-process: one slide of a window, against all of it.

    python -m benchmarks.datacell [--scale 1] [--only 4a ...] [--json FILE]

Q1: ``x1, sum(x2) where x1 > v group by x1`` over sliding windows, of time or (*rows*, as in the paper) of the last tuples, of
which some are selected; Q3: ``max(x1), sum(x2) where x1 > v`` from a landmark on. There is a tuple a tick, so that windows of
time are windows of numbers of tuples. ``x1`` is one of 5,000 numbers; v chooses how many are selected. Q2: ``max(s1.x1),
avg(s2.x1) where s1.x2 = s2.x2`` over two streams with windows alike, of time, or (*rows*) of the last tuples of each stream.

A slide brings the tuples of a basic window and the result of the window that they complete. *Incremental*: one micro-batch of the
kernels, which hold partial results of the basic windows before. *Anew*: the same kernels over all tuples of the window in one
micro-batch, without state. *Arrow*: filter, join and ``group_by`` of PyArrow, by hand, over the same; in figure 9, whose tuples
arrive as CSV text, DuckDB over tables that hold the window. All take turns; processor time in milliseconds, medians.
``--scale 0.1`` has a tenth of the tuples.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.time import INFINITY
from tests.laws.cost_operators import program

VALUES = 5_000
"""The distinct values of ``x1``."""

SLIDES = 5
"""The slides that are measured, after one that is not."""


@dataclass(frozen=True)
class Window:
    """A sliding window of ``n`` basic windows of ``basic`` tuples."""

    n: int
    basic: int

    @property
    def tuples(self) -> int:
        return self.n * self.basic


class Tuples:
    """A stream of tuples at random, in time order; ``x2`` is one of some ``values``."""

    def __init__(self, values: int = 1_000, seed: int = 7) -> None:
        self.rng, self.now, self.values = np.random.default_rng(seed), 0, values

    def take(self, number: int) -> pa.Table:
        """Return the next tuples."""
        at = np.arange(self.now, self.now + number)
        self.now += number
        x1, x2 = self.rng.integers(0, VALUES, number), self.rng.integers(0, self.values, number)
        return pa.table({"t": at, "x1": x1, "x2": x2})


Windowing = Callable[[Any], Any]


def stream(name: str) -> sq.Stream:
    """Return a stream of tuples."""
    return sq.points(t.table("t bigint, x1 bigint, x2 bigint", []), time="t", name=name)


def selection(selected: float) -> sq.Stream:
    """Return the part ``selected`` of the tuples of s, those with the greatest ``x1``."""
    return stream("s").where(sq.col("x1") >= int(VALUES * (1 - selected)))


def q1(selected: float, windows: Windowing) -> sq.Stream:
    """Return Q1 over the windows that ``windows`` makes of a grouped stream."""
    rows: sq.Stream = windows(selection(selected).group_by("x1")).select(total=sq.sum("x2"))
    return rows


def q1_over_rows(selected: float, size: int, step: int) -> sq.Stream:
    """Return Q1 over the last ``size`` tuples, every ``step`` tuples, whatever part of them is selected."""
    passing = stream("s").rows_window(size, step).where(sq.col("x1") >= int(VALUES * (1 - selected)))
    return passing.group_by("x1").select(total=sq.sum("x2"))


def q3(selected: float, windows: Windowing) -> sq.Stream:
    """Return Q3 over the windows that ``windows`` makes of a stream."""
    rows: sq.Stream = windows(selection(selected)).select(most=sq.max("x1"), total=sq.sum("x2"))
    return rows


def q2(size: int, hop: int) -> sq.Stream:
    """Return Q2 over windows of ``size`` tuples of each stream, one from each ``hop`` on."""
    pairs = stream("s1").windowed_join(stream("s2"), on="x2", size=size, hop=hop, suffixes=("", "_2"))
    return result_of_q2(pairs)


def q2_over_rows(size: int, step: int) -> sq.Stream:
    """Return Q2 over the last ``size`` tuples of each stream, renewed every ``step`` tuples, at whatever times they come."""
    return result_of_q2(stream("s1").windowed_join(stream("s2"), on="x2", rows=size, step=step, suffixes=("", "_2")))


def result_of_q2(pairs: sq.Stream) -> sq.Stream:
    """Return the result of Q2 of each window, or pair of windows, over its pairs."""
    return pairs.select(most=sq.max("x1"), total=sq.sum("x1_2"), mean=sq.avg("x1_2"))


def live(query: sq.Stream) -> LocalRun:
    """Return a query that runs in-process."""
    return LocalRun(program(lambda a, b: query))


def anew(query: sq.Stream, window: dict[str, pa.Table]) -> pa.Table:
    """Return the result of a window, all of whose tuples come at once, by stream; it begins at 0."""
    return live(query).batch(window, [(None, INFINITY)])


def pairs_by_hand(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the result of Q2 by PyArrow alone."""
    second = second.select(["x1", "x2"]).rename_columns(["y1", "x2"])
    pairs = first.join(second, "x2", join_type="inner", use_threads=False)
    result = pairs.group_by([], use_threads=False).aggregate([("x1", "max"), ("y1", "sum"), ("y1", "mean")])
    return result.rename_columns(["most", "x2_sum", "mean"])


def by_hand(selected: float, window: pa.Table, *, grouped: bool) -> pa.Table:
    """Return the result of a window by PyArrow alone."""
    rows = window.filter(pc.greater_equal(window.column("x1"), int(VALUES * (1 - selected))))
    if grouped:
        return rows.group_by("x1", use_threads=False).aggregate([("x2", "sum")])
    result = rows.group_by([], use_threads=False).aggregate([("x1", "max"), ("x2", "sum")])
    return result.rename_columns(["most", "x2_sum"])


Times = tuple[float, float, float, float]
"""The milliseconds of a slide, of its kernels, of computing anew, and of PyArrow."""


def milliseconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of an action, and its result."""
    before = time.process_time()
    result = action()
    return 1_000 * (time.process_time() - before), result


def kernels_milliseconds(run: LocalRun) -> float:
    """Return the processor time of the kernels in the last micro-batch."""
    return sum(kernel.cpu_us_now or 0 for kernel in run.readings.of_kernels.values()) / 1_000


@dataclass(frozen=True)
class Cell:
    """The processor time of a slide in milliseconds, by each way.

    ``merging`` is the part of ``incremental`` that the kernels take: holding, reading and merging partial results; before them
    the new tuples are filtered, aggregated and sent.
    """

    experiment: str
    of: str
    incremental: float
    merging: float
    anew: float
    arrow: float
    state_rows: int

    @property
    def shown(self) -> str:
        ratios = f"{self.anew / self.incremental:>9.1f} {self.arrow / self.incremental:>9.2f}"
        times = f"{self.incremental:>11.1f} {self.merging:>9.1f} {self.anew:>9.0f} {self.arrow:>9.0f}"
        return f"{self.experiment:<4} {self.of:<24} {times} {ratios} {self.state_rows:>10,}"


def state_rows(run: LocalRun) -> int:
    """Return the rows that the kernels hold after the last micro-batch."""
    return sum(kernel.state_rows or 0 for kernel in run.readings.of_kernels.values())


def forms_of_q1(experiment: str, of: str, window: Window, selected: float, slides: int = SLIDES) -> Iterator[Cell]:
    """Yield slides of Q1 over windows of time, and of rows."""
    for by_rows in (False, True):
        shown = f"{of}{', rows' if by_rows else ''}"
        yield slides_of_q1(experiment, shown, window, selected, slides, by_rows=by_rows)


def slides_of_q1(
    experiment: str, of: str, window: Window, selected: float, slides: int = SLIDES, *, by_rows: bool = False
) -> Cell:
    """Measure slides of Q1, once a window is full."""
    size, hop = window.tuples, window.basic
    tuples = Tuples()
    over_time = q1(selected, lambda groups: groups.hopping_window(size, hop))
    run = live(q1_over_rows(selected, size, hop) if by_rows else over_time)
    whole = q1(selected, lambda groups: groups.tumbling_window(size))
    # the first window in chunks: they are merged by basic window, whatever comes together
    content = []
    for _ in range(min(window.n, 32)):
        content.append(tuples.take(size // min(window.n, 32)))
        run.batch({"s": content[-1]}, [(None, tuples.now)])
    times: list[Times] = []
    for number in range(slides + 1):
        new = tuples.take(hop)
        content = [pa.concat_tables([*content, new]).slice(hop).combine_chunks()]
        whole_window = content[0].set_column(0, "t", pa.array(np.arange(size)))
        hand = partial(by_hand, selected, whole_window, grouped=True)
        slide = measured(run, {"s": new}, tuples.now, partial(anew, whole, {"s": whole_window}), hand, ("x1", "total"))
        if number:
            times.append(slide)
    return Cell(experiment, of, *medians(times), state_rows(run))


def forms_of_q2(experiment: str, of: str, window: Window, values: int) -> Iterator[Cell]:
    """Yield slides of Q2 over windows of time, and of rows."""
    for by_rows in (False, True):
        yield slides_of_q2(experiment, f"{of}{', rows' if by_rows else ''}", window, values, by_rows=by_rows)


def slides_of_q2(experiment: str, of: str, window: Window, values: int, *, by_rows: bool = False) -> Cell:
    """Measure slides of Q2, once the windows are full; ``x2`` is one of some ``values``.

    By rows, a result is final as soon as the next windows are complete: a slide brings that of the windows before.
    """
    size, hop = window.tuples, window.basic
    streams = {"s1": Tuples(values, seed=1), "s2": Tuples(values, seed=2)}
    run, whole = live((q2_over_rows if by_rows else q2)(size, hop)), q2(size, size)
    content = {name: tuples.take(size) for name, tuples in streams.items()}
    run.batch(content, [(None, size)])
    times: list[Times] = []
    for number in range(SLIDES + 1):
        new = {name: tuples.take(hop) for name, tuples in streams.items()}
        before = content
        content = {name: pa.concat_tables([content[name], new[name]]).slice(hop).combine_chunks() for name in streams}
        due = before if by_rows else content
        windows = {name: table.set_column(0, "t", pa.array(np.arange(size))) for name, table in due.items()}
        hand = partial(pairs_by_hand, windows["s1"], windows["s2"])
        slide = measured(run, new, size + hop * (number + 1), partial(anew, whole, windows), hand, ("most", "total"))
        if number:
            times.append(slide)
    return Cell(experiment, of, *medians(times), state_rows(run))


QUERY_2 = "select max(s1.x1), sum(s2.x1), avg(s2.x1) from s1 join s2 using (x2)"


def text(table: pa.Table) -> bytes:
    """Return tuples as the CSV text in which they arrive."""
    sink = io.BytesIO()
    csv.write_csv(table, sink)
    return sink.getvalue()


def parsed(lines: dict[str, bytes]) -> dict[str, pa.Table]:
    """Return the tuples of CSV texts, by stream."""
    return {name: csv.read_csv(io.BytesIO(each)) for name, each in lines.items()}


class InDuckDB:
    """Q2 over tables of DuckDB that hold the tuples of the windows: a slide adds tuples, drops the oldest, and joins anew."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.connection = folder, duckdb.connect(config={"threads": 1})
        for name in ("s1", "s2"):
            self.connection.execute(f"create table {name} (t bigint, x1 bigint, x2 bigint)")

    def slide(self, new: dict[str, bytes], since: int) -> pa.Table:
        """Parse and add the new tuples, drop those before ``since``, and return the result of the window."""
        for name, each in new.items():
            file = self.folder / f"{name}.csv"
            file.write_bytes(each)
            self.connection.execute(f"insert into {name} from read_csv('{file}')")
            self.connection.execute(f"delete from {name} where t < {since}")
        return self.connection.sql(QUERY_2).to_arrow_table().rename_columns(["most", "x2_sum", "mean"])


def slide_from_text(run: LocalRun, new: dict[str, bytes], now: int) -> pa.Table:
    """Return the rows of a micro-batch of tuples that arrive as CSV."""
    return run.batch(parsed(new), [(None, now)])


def moved(content: dict[str, pa.Table], new: dict[str, bytes]) -> dict[str, pa.Table]:
    """Return the tuples of the windows once new ones have come as CSV, and as many of the oldest have gone."""
    tables = {name: (content[name], table) for name, table in parsed(new).items()}
    return {name: pa.concat_tables(both).slice(both[1].num_rows).combine_chunks() for name, both in tables.items()}


def anew_from_text(whole: sq.Stream, content: dict[str, pa.Table], new: dict[str, bytes]) -> pa.Table:
    """Return the result of the window whose last tuples arrive as CSV, computed anew."""
    windows = moved(content, new)
    return anew(whole, {n: each.set_column(0, "t", pa.array(np.arange(each.num_rows))) for n, each in windows.items()})


def slides_from_text(experiment: str, of: str, window: Window, values: int, folder: Path) -> Cell:
    """Measure slides of Q2 over tuples that arrive as CSV, parsing included; by hand it is DuckDB's."""
    size, hop = window.tuples, window.basic
    streams = {"s1": Tuples(values, seed=1), "s2": Tuples(values, seed=2)}
    run, whole, duck = live(q2(size, hop)), q2(size, size), InDuckDB(folder)
    content = {name: tuples.take(size) for name, tuples in streams.items()}
    run.batch(content, [(None, size)])
    duck.slide({name: text(table) for name, table in content.items()}, 0)
    times: list[Times] = []
    for number in range(SLIDES + 1):
        new, since = {name: text(tuples.take(hop)) for name, tuples in streams.items()}, hop * (number + 1)
        mine, result = milliseconds(partial(slide_from_text, run, new, size + since))
        merging = kernels_milliseconds(run)
        theirs, result_anew = milliseconds(partial(anew_from_text, whole, content, new))
        hand, result_by_hand = milliseconds(partial(duck.slide, new, since))
        check(("most", "total"), result, result_anew, result_by_hand)
        content = moved(content, new)
        if number:
            times.append((mine, merging, theirs, hand))
    return Cell(experiment, of, *medians(times), state_rows(run))


def medians(times: Sequence[Times]) -> Times:
    """Return the median of each way, and of the kernels' part."""
    mine, merging, theirs, arrow = (statistics.median(side) for side in zip(*times, strict=True))
    return mine, merging, theirs, arrow


Way = Callable[[], pa.Table]


def measured(run: LocalRun, new: dict[str, pa.Table], now: int, again: Way, hand: Way, names: tuple[str, str]) -> Times:
    """Return the milliseconds of a slide by each way; raise AssertionError unless they have the same results.

    ``names`` are the columns of ``run``'s results that are compared; the second is ``x2_sum`` where it is computed by hand.
    """
    mine, result = milliseconds(partial(run.batch, new, [(None, now)]))
    merging = kernels_milliseconds(run)
    theirs, result_anew = milliseconds(again)
    arrow, result_by_hand = milliseconds(hand)
    check(names, result, result_anew, result_by_hand)
    return mine, merging, theirs, arrow


def check(names: tuple[str, str], result: pa.Table, result_anew: pa.Table, result_by_hand: pa.Table) -> None:
    """Raise AssertionError unless the results are the same in two columns; by hand the second is ``x2_sum``."""

    def rows(table: pa.Table, *columns: str) -> list[Any]:
        return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))

    assert rows(result, *names) == rows(result_anew, *names) == rows(result_by_hand, names[0], "x2_sum")


def figure_4a(scale: float) -> Iterator[Cell]:
    """Yield Q1 of 512 basic windows, of which a fifth of the tuples is selected: windows 2 to 20."""
    yield from forms_of_q1("4a", "n = 512, 20 %", Window(512, int(20_000 * scale)), 0.2, slides=19)


PAIRED = 102_400
"""The tuples of a window of Q2."""


def figure_4b(scale: float) -> Iterator[Cell]:
    """Yield Q2 of 64 basic windows, where a tuple meets one of the other stream."""
    yield from forms_of_q2("4b", "n = 64, 1e-3 %", Window(64, int(PAIRED * scale) // 64), 100_000)


def figure_5b(scale: float) -> Iterator[Cell]:
    """Yield Q2 by the part of all pairs that meet."""
    for values in (10_000_000, 1_000_000, 10_000):
        yield from forms_of_q2("5b", f"n = 64, {1 / values:.0e}", Window(64, int(PAIRED * scale) // 64), values)


def figure_7b(scale: float) -> Iterator[Cell]:
    """Yield Q2 by the number of basic windows of one window."""
    for n in (2, 8, 64, 512):
        yield from forms_of_q2("7b", f"n = {n}", Window(n, int(PAIRED * scale) // n), 100_000)


def figure_5a(scale: float) -> Iterator[Cell]:
    """Yield Q1 by selectivity."""
    for selected in (0.1, 0.5, 0.9):
        yield from forms_of_q1("5a", f"n = 512, {selected:.0%}", Window(512, int(20_000 * scale)), selected)


def figure_6a(scale: float) -> Iterator[Cell]:
    """Yield Q1 by the size of the window, which always has 512 basic windows."""
    for basic in (2_000, 8_000, 20_000):
        window = Window(512, int(basic * scale))
        yield from forms_of_q1("6a", f"{window.tuples:,} tuples", window, 0.2)


def figure_7a(scale: float) -> Iterator[Cell]:
    """Yield Q1 by the number of basic windows of one window."""
    for n in (2, 8, 32, 128, 512, 2_048):
        yield from forms_of_q1("7a", f"n = {n:,}", Window(n, int(10_240_000 * scale) // n), 0.2)


def figure_6b(scale: float) -> Iterator[Cell]:
    """Yield the slides of a landmark window, each of which brings as many tuples; anew only at some, as it takes ever longer."""
    hop, selected = int(2_500_000 * scale), 0.2
    tuples = Tuples()
    run = live(q3(selected, lambda source: source.landmark_window(hop, start=0)))
    content: list[pa.Table] = []
    for number in range(1, 41):
        content.append(tuples.take(hop))
        if number not in (1, 2, 5, 10, 20, 40):
            run.batch({"s": content[-1]}, [(None, tuples.now)])
            continue
        whole = q3(selected, methodcaller("tumbling_window", tuples.now))
        every = pa.concat_tables(content).combine_chunks()
        hand = partial(by_hand, selected, every, grouped=False)
        again = partial(anew, whole, {"s": every})
        slide = measured(run, {"s": content[-1]}, tuples.now, again, hand, ("most", "total"))
        yield Cell("6b", f"landmark, slide {number}", *slide, state_rows(run))


def figure_9(scale: float) -> Iterator[Cell]:
    """Yield Q2 with 64 basic windows over tuples that are parsed from CSV, by the window's size."""
    with tempfile.TemporaryDirectory() as folder:
        for tuples in (1_024, 10_240, 102_400):
            window = Window(64, int(tuples * scale) // 64)
            yield slides_from_text("9", f"{window.tuples:,} tuples, CSV", window, 10_000, Path(folder))


FIGURES = {
    "4a": figure_4a,
    "4b": figure_4b,
    "5a": figure_5a,
    "5b": figure_5b,
    "6a": figure_6a,
    "6b": figure_6b,
    "7a": figure_7a,
    "7b": figure_7b,
    "9": figure_9,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--json", type=Path, default=Path("datacell.json"))
    options = parser.parse_args(arguments)
    ways = ("incremental", "merging", "anew", "Arrow", "anew/inc", "Arrow/inc", "state rows")
    print(" ".join([" " * 29, *(f"{way:>{max(9, len(way))}}" for way in ways)]))
    cells = []
    for name in options.only:
        for cell in FIGURES[name](options.scale):
            print(cell.shown, flush=True)
            cells.append(vars(cell))
    options.json.write_text(json.dumps({"scale": options.scale, "cells": cells}, indent=2))


if __name__ == "__main__":
    main()
