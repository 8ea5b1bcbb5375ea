"""Compare levels of consistency over recorded input, as tables, in words and as a picture.

A query is measured at each, in-process: how long its rows wait, what it writes, keeps and gets right.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq import html
from streamq.choices import CountReason, LevelName, OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results, choose_egress
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.errors import PlanError, check_keywords, counted, kind_of
from streamq.pictures.picture import LIGHT, Picture, check_title
from streamq.plan.node import Verbs, not_a_stream, number_sources
from streamq.policies import MIDDLE, Consistency, Level, written_level
from streamq.run.batch.passed_batches import ArrivingRows, passed_batches
from streamq.runtime.arrow.columnar import codes, concat, ints
from streamq.runtime.arrow.values import Ints
from streamq.runtime.deltas import INSERT, WEIGHT
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.screens import ProgressBar
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, instant_ticks, show_duration

if TYPE_CHECKING:
    import pandas as pd


HEADINGS = (
    "level",
    "a row waits: mean",
    "most",
    "micro-batches: mean",
    "most",
    "rows written: inserts",
    "retractions",
    "rows of state: mean",
    "most",
    "right",
)

LEVEL_NAMES = (LevelName.STRONG, LevelName.MIDDLE)


@dataclass(frozen=True, kw_only=True, repr=False)
class LevelComparison:
    """The costs of a query at several levels of consistency, as :func:`compare_levels` returns them.

    A notebook shows them as a table; printed they are text. Both say how many rows came late, if any did, and if all
    rows came together, so that no level could differ. ``count`` rows were read in ``batches`` micro-batches; ``late`` ones of
    these are cut or left out at middle.
    """

    costs: tuple[LevelCosts, ...]
    axis: str
    late: int
    count: int
    batches: int

    def to_arrow(self) -> pa.Table:
        """The costs as an Arrow table, a row for each level; on a timestamp axis waits are durations, else ticks."""
        table = pa.Table.from_pylist([asdict(cost) for cost in self.costs])
        if self.axis != TIMESTAMP:
            return table
        waits = {
            name: pa.array([round(wait) for wait in table.column(name).to_pylist()]).cast(pa.duration("us"))
            for name in ("wait_mean", "wait_most")
        }
        return pa.table({name: waits.get(name, table.column(name)) for name in table.column_names})

    def to_pandas(self) -> pd.DataFrame:
        """The costs as a pandas frame, a row for each level."""
        return self.to_arrow().to_pandas()

    def plot(self, title: str | None = "Levels of consistency") -> Picture:
        """Return a chart of the costs: bars for each level. It needs the extra ``charts``, as :meth:`Stream.chart` does."""
        check_title(title, "plot")
        wait = partial(show_wait, axis=self.axis)

        kinds: list[tuple[str, str, Callable[[LevelCosts], tuple[str, list[float], float]]]] = [
            (
                "A row waits", "mean; line to the most",
                lambda c: (f"{wait(c.wait_mean)}; most {wait(c.wait_most)}", [c.wait_mean], c.wait_most),
            ),
            (
                "Rows written", "inserts, then retractions",
                lambda c: (f"{c.inserts:,} + {c.retractions:,}", [c.inserts, c.retractions], 0),
            ),
            (
                "Rows of state", "mean; line to the most",
                lambda c: (f"{c.state_mean:,.0f}; most {c.state_most:,}", [c.state_mean], c.state_most),
            ),
            ("Right", "part of the answer; line to all", lambda c: (f"{c.right:.1%}", [c.right], 1.0)),
        ]  # fmt: skip
        panels = [
            _cost_panel(name, legend, [(cost.level, *shown(cost)) for cost in self.costs], has_names=not number)
            for number, (name, legend, shown) in enumerate(kinds)
        ]
        sentences = [
            f"{cost.level}: a row waits {wait(cost.wait_mean)} on average, {wait(cost.wait_most)} at most; inserts: "
            f"{cost.inserts:,}; retractions: {cost.retractions:,}; rows of state: {cost.state_mean:,.0f} on average, "
            f"{cost.state_most:,} at most; right: {cost.right:.1%}."
            for cost in self.costs
        ]
        drawn = {"title": title or "", "hconcat": panels}
        return Picture(title or "", [*sentences, *self._notes()], drawn, self.table())

    def _notes(self) -> list[str]:
        """Return a sentence on the rows that came late, if any did, and one if all rows came in one micro-batch."""
        late = f"{self.late:,} of {counted(self.count, 'row')} came late, behind a CTI"
        notes = [f"{late}; of sq.generate(delay) a longer delay lets them in."] * bool(self.late)
        together = "All rows came in one micro-batch, in which levels hardly differ; those of a table come one by one."
        return [*notes, *[together] * (self.batches == 1 and self.count > 1)]

    def rows(self) -> list[list[Any]]:
        """Return the costs as they are shown, a list for each level."""
        return [
            [
                cost.level,
                show_wait(cost.wait_mean, self.axis),
                show_wait(cost.wait_most, self.axis),
                round(cost.batches_mean, 1),
                cost.batches_most,
                cost.inserts,
                cost.retractions,
                round(cost.state_mean),
                cost.state_most,
                f"{cost.right:.1%}",
            ]
            for cost in self.costs
        ]

    def table(self) -> str:
        """Return the costs as a table of HTML."""
        return html.tabulated(HEADINGS, self.rows(), named=True)

    def __repr__(self) -> str:
        lines = [HEADINGS, *([str(value) for value in row] for row in self.rows())]
        return "\n".join([*html.aligned_lines(lines, left=1), *self._notes()])

    def _repr_html_(self) -> str:
        return html.fragment(self.table(), *map(html.lines, self._notes()))


def _cost_panel(
    name: str, legend: str, costs: Sequence[tuple[str, str, list[float], float]], *, has_names: bool
) -> dict[str, Any]:
    """Return the panel of a kind of costs: of each level its name, a text, the parts of a bar, and the end of a line behind.

    ``has_names``: the names of the levels stand at its left.
    """
    names = {"ticks": False, "domain": False} if has_names else None
    y = {"field": "level", "type": "nominal", "sort": None, "title": None, "axis": names}
    x = {"type": "quantitative", "axis": None}
    rows = [
        {"level": level, "shown": text, "part": number, "value": value, "sum": sum(parts), "most": most}
        for level, text, parts, most in costs
        for number, value in enumerate(parts)
    ]
    colours = {"scale": {"domain": [0, 1], "range": [LIGHT.keys[0][1], LIGHT.keys[5][1]]}, "legend": None}
    bars = {
        "mark": {"type": "bar", "height": 12, "yOffset": 8},
        "encoding": {"y": y, "x": {"field": "value", **x}, "color": {"field": "part", "type": "nominal", **colours}},
    }
    lines = {
        "transform": [{"filter": "datum.most > datum.sum"}],
        "mark": {"type": "rule", "yOffset": 8, "color": LIGHT.faint},
        "encoding": {"y": y, "x": {"field": "sum", **x}, "x2": {"field": "most"}},
    }
    texts = {
        "transform": [{"filter": "datum.part == 0"}],
        "mark": {"type": "text", "align": "left", "dy": -8, "color": LIGHT.text},
        "encoding": {"y": y, "x": {"datum": 0, **x}, "text": {"field": "shown", "type": "nominal"}},
    }
    head = {"text": name, "subtitle": legend, "anchor": "start", "subtitleColor": LIGHT.faint}
    return {
        "title": head,
        "width": 180,
        "height": {"step": 36},
        "data": {"values": rows},
        "layer": [bars, lines, texts],
    }


def show_wait(wait: float, axis: str) -> str:
    """Return a mean or a whole number of ticks as text; a time of more than twenty of a unit is rounded to it.

    >>> show_wait(98_765_432.1, "timestamp"), show_wait(7.25, "integer")
    ('99 seconds', '7.2')
    """
    if axis != TIMESTAMP:
        return f"{wait:,}" if isinstance(wait, int) else f"{wait:,.1f}"
    units = (3_600_000_000, 60_000_000, 1_000_000, 1_000, 1)
    unit = next((unit for unit in units if wait >= 20 * unit), 1)
    return show_duration(round(wait / unit) * unit, axis)


@check_keywords
def compare_levels(
    query: Verbs,
    rows: Any = None,
    *,
    levels: Sequence[str | Consistency] = LEVEL_NAMES,
    until: int | dt.datetime | None = None,
) -> LevelComparison:
    """Return what a query costs at several levels of consistency over recorded input: what it blocks, writes and keeps.

    The query runs in-process as a stream, once for each level; its result is a changelog. ``rows`` are its input: None for
    its own tables; a table (Arrow, pandas, or a batch DataFrame, which is read into memory), or for several sources tables by
    name; or a list of micro-batches, each a mapping of names to tables, as :meth:`Run.sample` records them. The rows of tables
    arrive one by one, of several tables by their times; of more than 200 rows several arrive at once. ``levels``:
    those of :meth:`Stream.run`, by default strong and middle. ``until``: that of :meth:`Stream.to_df`.

    A row of the answer waits from the micro-batch in which middle writes it for good, which is as soon as its input is there,
    to the one in which the level does: as application time, by which the greatest start has grown in between, and in
    micro-batches. State is counted in rows after each micro-batch, with those that the level holds back. *Right*: of the rows
    in the result at the end or in the answer over the same input with nothing late, the part that is in both. CTIs are those
    that the sources' ``progress`` makes of the rows; there is no clock. Raises PlanError, UnknownColumn, and the query's own
    errors. (docs/consistency.md; CEDR's table of levels.)

    >>> import streamq as sq
    >>> cars = sq.events([(t, t + 1, {}) for t in (1, 12, 4, 31, 17, 60)], name="cars", progress=sq.generate(20))
    >>> costs = sq.compare_levels(cars.tumbling_window(10).select(n=sq.count())).to_pandas()
    >>> print(costs[["level", "wait_most", "inserts", "retractions"]].to_string(index=False))
     level  wait_most  inserts  retractions
    strong         29        4            0
    middle          0        6            2
    """
    verb = "compare_levels"
    if not isinstance(query, Verbs):
        not_a_stream(verb, query)
    if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
        hint = "Give a list: levels=['strong', 'middle', sq.weak(...)]."
        observed = "an empty list" if isinstance(levels, list) else kind_of(levels)
        raise PlanError(verb, "levels is a list of levels", f"found {observed}", hint)
    axis = query.plan.schema.axis
    written = [written_level(level, verb) for level in levels]
    names = [level.name for level in written]
    if len(set(names)) < len(names):
        raise PlanError(verb, "two levels are one", f"found {', '.join(names)}", "Give each of them once.")
    bound = instant_ticks(until, axis, verb)
    choose_egress(query.plan, OutputForm.CHANGELOG, verb=verb)
    plan, sources = number_sources(Results((query.plan,)))
    own = {sources[name]: table for name, table in query.tables.items() if name in sources}
    passed = passed_batches(plan, own, rows, verb=verb)
    recorded = RecordedInput(plan, passed.all_rows(), passed.batches, bound)
    return recorded.compared({level.name: level.level(axis) for level in written})


@dataclass(frozen=True, kw_only=True)
class LevelCosts:
    """The costs of a query at a level of consistency.

    A row of the answer waits from the micro-batch in which middle writes it for good to the one in which the level does: in
    ticks, by which the greatest start has grown, and in micro-batches. ``inserts`` and ``retractions`` are the changelog's,
    ``state`` are the rows in state after a micro-batch, with those that the level holds back. ``right``: of the rows in the
    answer or in the result at the end, the part that is in both.
    """

    level: str
    wait_mean: float
    wait_most: int
    batches_mean: float
    batches_most: int
    inserts: int
    retractions: int
    state_mean: float
    state_most: int
    right: float


@dataclass(frozen=True)
class LevelRun:
    """A run at a level: the deltas of each micro-batch, the rows in state after it, and the number of late rows."""

    deltas: Sequence[pa.Table]
    state: Sequence[int]
    late: int


@dataclass(frozen=True)
class RecordedInput:
    """A plan and its recorded input: all rows of its sources and static tables, and those of the sources in micro-batches.

    ``until``, in ticks, bounds windows over endless lifetimes. The last micro-batch ends the input.
    """

    plan: Results
    tables: ArrivingRows
    batches: Sequence[ArrivingRows]
    until: int | None

    def compared(self, levels: Mapping[str, Level]) -> LevelComparison:
        """Return the costs of each level, by its name. The answer is that of a run whose input all comes at once."""
        names = {MIDDLE: LevelName.MIDDLE} | {level: name for name, level in levels.items()}
        count = len(self.batches)
        # the answer's run has one micro-batch with all the rows: it counts as if it had as many as the others
        steps = count * (len(names) + 1)
        with ProgressBar("compare_levels") as bar:

            def show_step(run: int, name: str, number: int) -> None:
                bar.update(count * run + number - 1, steps, f"{name}: micro-batch {number:,} of {count:,}")

            runs = {
                level: self.run(level, self.batches, partial(show_step, run, name))
                for run, (level, name) in enumerate(names.items())
            }
            bar.update(steps - count, steps, "the answer, with nothing late")
            at_once = self.run(MIDDLE, [self.tables])
            bar.update(steps, steps)
        rows = _WrittenRows.of_runs([at_once, *runs.values()])
        answer, standing = rows[0], dict(zip(runs, rows[1:], strict=True))
        reached = self.greatest_starts()
        costs = (
            _costs(name, runs[level], reached, rows=standing[level], at_middle=standing[MIDDLE], answer=answer)
            for name, level in levels.items()
        )
        return LevelComparison(
            costs=tuple(costs),
            axis=self.plan.schema.axis,
            late=runs[MIDDLE].late,
            count=sum(table.num_rows for batch in self.batches for table in batch.values()),
            batches=count,
        )

    def run(
        self, level: Level, batches: Sequence[ArrivingRows], begin: Callable[[int], None] = lambda number: None
    ) -> LevelRun:
        """Return a run of the plan as a stream over some micro-batches; ``begin`` is called with the number of each."""
        live = LocalRun(self._program(level), static=self.tables)
        deltas, state = [], []
        for number, batch in enumerate(batches, 1):
            begin(number)
            is_last = number == len(batches)
            deltas.append(live.batch(batch, [(None, INFINITY)] * is_last, self.until if is_last else None))
            state.append(sum(kernel.state_rows or 0 for kernel in live.readings.of_kernels.values()))
        late = sum(
            count
            for totals in live.totals.values()
            for key, count in totals.items()
            if key.rpartition("|")[2] in (CountReason.DROPPED, CountReason.ADJUSTED)
        )
        return LevelRun(deltas, state, late)

    def greatest_starts(self) -> list[int]:
        """Return the greatest start of all rows up to each micro-batch."""
        program, starts = self._program(MIDDLE), [MINUS_INFINITY]
        for batch in self.batches:
            greatest = starts[-1]
            for relation in program.sources:
                assert relation.source is not None
                if relation.source.table in batch:
                    rows = relation.source.rows_in_arrow(batch[relation.source.table], True)
                    _, message, _ = program.packer([relation]).read_source([rows])
                    greatest = greatest if message is None else max(greatest, message.w)
            starts.append(greatest)
        return starts[1:]

    def _program(self, level: Level) -> StagedPlan:
        options = Options(egresses=(Egress(OutputForm.CHANGELOG),), buckets=1, level=level)
        return compile_stages(self.plan, options)


@dataclass(frozen=True)
class _WrittenRows:
    """The rows of a result at the end by number, and for each of their copies the micro-batch that wrote it for good."""

    batches: Mapping[int, list[int]]

    @classmethod
    def of_runs(cls, runs: Sequence[LevelRun]) -> list[_WrittenRows]:
        """Return the rows of several runs; equal rows have equal numbers."""
        deltas = concat([table for run in runs for table in run.deltas])
        numbers, _ = codes(deltas, [name for name in deltas.column_names if name != WEIGHT])
        results, first = [], 0
        for run in runs:
            counts = [table.num_rows for table in run.deltas]
            own = slice(first, first + sum(counts))
            batches = np.repeat(np.arange(len(counts)), counts)
            results.append(cls.of_deltas(numbers[own], ints(deltas, WEIGHT)[own], batches))
            first = own.stop
        return results

    @classmethod
    def of_deltas(cls, numbers: Ints, weights: Ints, batches: Ints) -> _WrittenRows:
        """Return the rows that deltas leave; within a micro-batch, their order does not count."""
        net = Counter[tuple[int, int]]()
        for batch, number, weight in zip(batches.tolist(), numbers.tolist(), weights.tolist(), strict=True):
            net[batch, number] += weight
        rows: dict[int, list[int]] = {}
        for (batch, number), weight in net.items():
            copies = rows.setdefault(number, [])
            if weight < 0:
                del copies[weight:]
            copies += [batch] * weight
        return cls(rows)

    @property
    def count(self) -> int:
        return sum(map(len, self.batches.values()))


def _costs(
    name: str,
    run: LevelRun,
    reached: Sequence[int],
    *,
    rows: _WrittenRows,
    at_middle: _WrittenRows,
    answer: _WrittenRows,
) -> LevelCosts:
    """Return the costs of a level.

    ``reached``: the greatest start after each micro-batch. ``rows``, ``at_middle``, ``answer``: the rows at that level,
    at middle, and of the answer.
    """
    right = 0
    ticks, batches = [0], [0]
    for number, copies in answer.batches.items():
        written = rows.batches.get(number, [])[: len(copies)]
        right += len(written)
        # a level that forgets may be early: it drops an item, and later what takes the item back
        for since, until in zip(at_middle.batches.get(number, []), written, strict=False):
            ticks.append(reached[max(since, until)] - reached[since])
            batches.append(max(0, until - since))
    kinds = Counter(kind for table in run.deltas for kind in changelog_rows(table).column("kind").to_pylist())
    return LevelCosts(
        level=name,
        wait_mean=statistics.fmean(ticks[1:] or ticks),
        wait_most=max(ticks),
        batches_mean=statistics.fmean(batches[1:] or batches),
        batches_most=max(batches),
        inserts=kinds[INSERT],
        retractions=kinds.total() - kinds[INSERT],
        state_mean=statistics.fmean(run.state),
        state_most=max(run.state),
        right=right / (answer.count + rows.count - right) if answer.count + rows.count else 1.0,
    )
