"""Compare levels of consistency over recorded input, as tables, in words and as a picture."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streamq import html
from streamq.choices import LevelName, OutputForm
from streamq.errors import PlanError, counted, kind_of, sentence
from streamq.keywords import check_keywords
from streamq.plan.verbs import Verbs, not_a_stream
from streamq.policies import Consistency, written_level
from streamq.time import TIMESTAMP, instant_ticks, show_duration

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from streamq.levels.level_costs import MeasuredLevels, RecordedInput
    from streamq.pictures.level_bars import LevelBars

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


class LevelComparison:
    """The costs of a query at several levels of consistency, as :func:`compare_levels` returns them.

    A notebook shows them as a table; printed they are text. Both say how many rows came late, if any did, and if all
    rows came together, so that no level could differ.
    """

    def __init__(self, measured: MeasuredLevels, axis: str):
        self.costs, self.axis = tuple(measured.costs), axis
        self._measured = measured

    def to_arrow(self) -> pa.Table:
        """The costs as an Arrow table, a row for each level; on a timestamp axis waits are durations, else ticks."""
        import pyarrow as pa

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

    def plot(self, title: str | None = "Levels of consistency") -> LevelBars:
        """Return a picture of the costs: bars for each level."""
        from streamq.pictures.level_bars import LevelBars
        from streamq.pictures.svg_picture import check_title

        check_title(title, "plot")
        return LevelBars(
            title or "",
            self.costs,
            self.table(),
            lambda wait: show_wait(wait, self.axis),
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        """Return a sentence on the rows that came late, if any did, and one if all rows came in one micro-batch."""
        late, rows = self._measured.late, counted(self._measured.rows, "row")
        notes = [
            f"{late:,} of {rows} came late, behind a CTI; of sq.generate(delay) a longer delay lets them in."
        ] * bool(late)
        together = "All rows came in one micro-batch, in which levels hardly differ; those of a table come one by one."
        return [*notes, *[together] * (self._measured.batches == 1 and self._measured.rows > 1)]

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
        lines = [list(HEADINGS), *([str(value) for value in row] for row in self.rows())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        first, *others = widths
        table = [
            "  ".join([line[0].ljust(first), *(cell.rjust(w) for cell, w in zip(line[1:], others, strict=True))])
            for line in lines
        ]
        return "\n".join([*table, *self._notes()])

    def _repr_html_(self) -> str:
        return html.fragment(self.table(), *map(html.lines, self._notes()))


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
        raise PlanError(sentence(verb, "levels is a list of levels", f"found {observed}", hint))
    axis = query.plan.schema.axis
    written = [written_level(level, verb) for level in levels]
    names = [level.name for level in written]
    if len(set(names)) < len(names):
        raise PlanError(sentence(verb, "two levels are one", f"found {', '.join(names)}", "Give each of them once."))
    recorded = _recorded(query, rows, instant_ticks(until, axis, verb), verb)
    return LevelComparison(recorded.measured({level.name: level.level(axis) for level in written}), axis)


def _recorded(query: Verbs, rows: Any, until: int | None, verb: str) -> RecordedInput:
    """Return the input of a query in micro-batches; its errors are worded for ``verb``."""
    from streamq.compiler.egress import choose_egress
    from streamq.compiler.results import Results
    from streamq.levels.level_costs import RecordedInput
    from streamq.plan.node import number_sources
    from streamq.run.passed_batches import passed_batches

    choose_egress(query.plan, OutputForm.CHANGELOG, verb=verb)
    plan, names = number_sources(Results((query.plan,)))
    own = {names[name]: table for name, table in query.tables.items() if name in names}
    passed = passed_batches(plan, own, rows, verb=verb)
    return RecordedInput(plan, passed.all_rows(), passed.batches, until)


__all__ = ["LevelComparison", "compare_levels"]
