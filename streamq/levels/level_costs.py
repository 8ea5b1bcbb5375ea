"""Measure a query at levels of consistency, in-process: how long its rows wait, what it writes, keeps and gets right."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from streamq.choices import CountReason, LevelName, OutputForm
from streamq.compiler.egress import Egress
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results, rewritten
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.policies import MIDDLE, Level
from streamq.progress_bar import ProgressBar
from streamq.run.passed_batches import ArrivingRows
from streamq.runtime.columnar import concat, ints
from streamq.runtime.event import INSERT, WEIGHT
from streamq.runtime.result_rows import changelog_rows
from streamq.runtime.values import Ints, combine_numbers, number_values
from streamq.time import INFINITY, MINUS_INFINITY


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
class MeasuredLevels:
    """The costs of levels over so many ``batches`` of ``rows``; ``late`` ones of these are cut or left out at middle."""

    costs: Sequence[LevelCosts]
    late: int
    rows: int
    batches: int


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

    def measured(self, levels: Mapping[str, Level]) -> MeasuredLevels:
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
        costs = [
            _costs(name, runs[level], reached, rows=standing[level], at_middle=standing[MIDDLE], answer=answer)
            for name, level in levels.items()
        ]
        rows_read = sum(table.num_rows for batch in self.batches for table in batch.values())
        return MeasuredLevels(costs, runs[MIDDLE].late, rows_read, count)

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
        return LevelRun(deltas, state, _late_count(live))

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
        return compile_stages(rewritten(self.plan), options, self.plan)


def _late_count(run: LocalRun) -> int:
    """Return the number of rows that sources left out or cut so far, because they came behind the CTI."""
    reasons = (CountReason.DROPPED, CountReason.ADJUSTED)
    counts = (item for totals in run.totals.values() for item in totals.items())
    return sum(count for key, count in counts if key.rpartition("|")[2] in reasons)


@dataclass(frozen=True)
class _WrittenRows:
    """The rows of a result at the end by number, and for each of their copies the micro-batch that wrote it for good."""

    batches: Mapping[int, list[int]]

    @classmethod
    def of_runs(cls, runs: Sequence[LevelRun]) -> list[_WrittenRows]:
        """Return the rows of several runs; equal rows have equal numbers."""
        deltas = concat([table for run in runs for table in run.deltas])
        numbers, _ = combine_numbers([number_values(c) for c in deltas.drop_columns([WEIGHT]).columns])
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


__all__ = ["LevelCosts", "MeasuredLevels", "RecordedInput"]
