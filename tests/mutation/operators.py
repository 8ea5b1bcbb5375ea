"""Mistakes about operators over one stream or two: who meets whom, what is left of a lifetime, how many remain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, ints
from streamq.runtime.evaluators import joins, spans
from streamq.runtime.evaluators.joins import ExceptEvaluator, JoinEvaluator
from streamq.runtime.evaluators.spans import DistinctIdsEvaluator, SignalEvaluator
from streamq.runtime.event import LE, RE
from streamq.runtime.groups import GROUP_NUMBER
from tests.mutation.mutant import Edit, Mutant, wrapped

CLIP = "streamq/runtime/kernels/clip.py"
LAST_ROWS = "streamq/runtime/evaluators/last_rows.py"


def not_at_one_instant(right: Any, one: Any, one_le: Any, one_re: Any, other: Any, other_le: Any, other_re: Any) -> Any:
    at, of = right(one, one_le, one_re, other, other_le, other_re)
    apart = one_le[at] != other_le[of]
    return at[apart], of[apart]


def null_equals_null(table: pa.Table, keys: Any) -> Any:
    return ints(table, GROUP_NUMBER)


def filtered_afterwards(right: Any, evaluator: JoinEvaluator, *given: Any) -> pa.Table:
    if evaluator.how != "left" or evaluator.where is None:
        return right(evaluator, *given)
    made = right(replace(evaluator, where=None), *given)
    return made.filter(pa.array(evaluator.where.holds(made)))


def last_piece_forgotten(right: Any, le: Any, re: Any, of: Any, start: Any, end: Any) -> Any:
    owner, begin, until = right(le, re, of, start, end)
    kept = (until < re[owner]) | (begin == le[owner])
    return owner[kept], begin[kept], until[kept]


def one_takes_all(right: Any, evaluator: ExceptEvaluator, inputs: Any, *given: Any) -> pa.Table:
    left, other = inputs
    return right(evaluator, [left, concat([other] * max(left.num_rows, 1))], *given)


def cut_where_it_starts(right: Any, group: Any, le: Any, other: Any, other_le: Any) -> Any:
    return right(group, le - 1, other, other_le)


def one_sample_an_instant(right: Any, evaluator: SignalEvaluator, inputs: Any, *given: Any) -> pa.Table:
    table = inputs[0]
    place = np.stack([ints(table, GROUP_NUMBER), ints(table, LE)])
    _, first = np.unique(place, axis=1, return_index=True)
    return right(evaluator, [table.take(pa.array(np.sort(first)))], *given)


def reach_too_short(right: Any, evaluator: DistinctIdsEvaluator, *given: Any) -> pa.Table:
    return right(replace(evaluator, within=evaluator.within - 1), *given)


def piece_behind_the_end(right: Any, cells: Any, table: pa.Table, since: int, upto: int) -> Any:
    low, high = right(cells, table, since, upto)
    re = ints(table, RE)
    on_grid = (re < upto) & ((re - cells.offset) % cells.hop == 0)
    return low, np.where(on_grid, high + 1, high)


MUTANTS = (
    Mutant(
        "no pair of equal starts",
        "events that start at one instant do not meet",
        "join",
        (wrapped(joins, "overlapping_pairs", not_at_one_instant),),
    ),
    Mutant(
        "NULL keys match",
        "events whose keys are NULL meet",
        "anti join",
        ((joins, "matching_groups", null_equals_null),),
    ),
    Mutant(
        "left join filtered afterwards",
        "the condition of a left join is a filter over its result",
        "left join",
        (wrapped(JoinEvaluator, "rows", filtered_afterwards),),
    ),
    Mutant(
        "late left piece forgotten",
        "what is left of a lifetime behind the last match is forgotten",
        "anti join",
        (wrapped(joins, "remaining_pieces", last_piece_forgotten),),
    ),
    Mutant(
        "one takes all",
        "one event on the right takes every equal one on the left away",
        "except_",
        (wrapped(ExceptEvaluator, "rows", one_takes_all),),
    ),
    Mutant(
        "clipped by an equal start",
        "a start at an event's own start clips it to nothing",
        "clip",
        (wrapped(joins, "next_after", cut_where_it_starts),),
    ),
    Mutant(
        "clipped by a start taken back",
        "an event stays clipped by a start that has been taken back",
        "clip",
        edits=(Edit(CLIP, "(lost <= end)", "(lost < end)"),),
    ),
    Mutant(
        "start forgotten before the end",
        "a start is forgotten once c has passed it, though the end of an event that it clips may still move",
        "clip",
        edits=(Edit(CLIP, "past = starts.slice(0, 0) if self.ends_move else", "past ="),),
    ),
    Mutant(
        "one sample an instant",
        "of samples of one key and instant a single one lives",
        "to_signal",
        (wrapped(SignalEvaluator, "rows", one_sample_an_instant),),
    ),
    Mutant(
        "last rows a step longer",
        "a row stays among the last rows until the second window without it",
        "last_rows",
        edits=(Edit(LAST_ROWS, "rows.place // self.step + 1", "rows.place // self.step + 2"),),
    ),
    Mutant(
        "last rows forgotten with their windows",
        "rows of windows before the latest are forgotten, by which it is told when those that still live began to",
        "last_rows",
        edits=(Edit(LAST_ROWS, "np.maximum(latest - (self.n - 1) // self.step, 0)", "np.maximum(latest, 0)"),),
    ),
    Mutant(
        "last rows forgotten one by one",
        "rows are forgotten by numbers that are no whole steps, so that later windows begin elsewhere",
        "pairs of last rows",
        edits=(Edit(LAST_ROWS, "ordered.place >= first * self.step", "ordered.place > first * self.step"),),
    ),
    Mutant(
        "last rows of windows to come",
        "rows live before as many as a window has are there",
        "last_rows",
        edits=(Edit(LAST_ROWS, "last = window * self.step + self.n - 1", "last = window * self.step"),),
    ),
    Mutant(
        "reach a tick short",
        "an equal id at just the greatest distance is not seen",
        "distinct_ids",
        (wrapped(DistinctIdsEvaluator, "rows", reach_too_short),),
    ),
    Mutant(
        "piece behind the border",
        "an event that ends on a grid point has an empty piece behind it",
        "chop",
        (wrapped(spans, "grid_range", piece_behind_the_end),),
    ),
)
