"""Mistakes about progress and state: CTIs that promise too much, rows final too early, events forgotten or mixed up."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamq.compiler.stages import _Compiler
from streamq.runtime import joined_events, packer, range_partials
from streamq.runtime.columnar import concat, ints
from streamq.runtime.evaluators.joins import ExceptEvaluator, JoinEvaluator
from streamq.runtime.evaluators.spans import ChopEvaluator
from streamq.runtime.evaluators.windowed_join import WindowedJoinEvaluator
from streamq.runtime.event import RE, WEIGHT
from streamq.runtime.groups import Holds, no_holds
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.progress import PACE, LevelProgress, Message, RelationClock
from streamq.runtime.release import Release
from streamq.runtime.state.baskets import Baskets
from streamq.runtime.state.bins import bin_starts
from streamq.runtime.state.waiting import OpenStarts
from streamq.runtime.state.window_bins import PartialsBasket
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows.session import SessionAssigner
from tests.mutation.mutant import (
    BREACHED,
    ENDLESS,
    FINAL_TAKEN_BACK,
    NEVER_WAS,
    UNDEFINED,
    Edit,
    Mutant,
    wrapped,
)


def nothing_held(assigner: Any, g: Any, table: Any, rows: Any, c: int) -> Holds:
    return no_holds()


def end_of_the_last_closed(kernel: WindowAggregateKernel, least: int, c: int) -> int:
    return least if least in (INFINITY, MINUS_INFINITY) else kernel.window.end(least - 1)


def c_for_pairs(evaluator: WindowedJoinEvaluator, progress: Any, held: int) -> int:
    return min(progress)


def whatever_was_said_last(right: Any, clock: RelationClock, message: Message) -> None:
    right(clock, message)
    if clock.policy is not None and message.c != MINUS_INFINITY:
        clock.held["c"] = message.c


def never_quite(right: Any, evaluator: JoinEvaluator, progress: Any, held: int) -> int:
    return min(right(evaluator, progress, held), INFINITY - 1)


def nobody_left(right: Any, starts: OpenStarts, events: Any, c: int) -> int:
    right(starts, events, c)
    return INFINITY


def settled_at_c(rule: Any, evaluator: Any) -> Any:
    return replace(rule.fget(evaluator), final=Release.AT_END)


def not_told(right: Any, compiler: _Compiler, path: Any) -> Any:
    port = next((p for p in compiler.ports if p.name == path.relation), None)
    made = right(compiler, path)
    if port is not None and made is not path:
        port.kernel = replace(port.kernel, final=False)
    return made


def greatest_over_buckets(right: Any, clock: RelationClock, message: Message) -> None:
    right(clock, message)
    if clock.senders is not None and message.sender is not None and message.sender >= 0:
        clock.held["c"] = max(clock.held["c"], message.c)


# state


def ends_at_c_dropped(evaluator: ChopEvaluator, inputs: Any, rows: Any, c: int) -> Any:
    return [ints(inputs[0], RE) > c]


def settled_matches_dropped(evaluator: JoinEvaluator, inputs: Any, rows: Any, c: int) -> Any:
    return [ints(table, RE) >= c for table in inputs]


def one_window_too_many(right: Any, kernel: WindowAggregateKernel, state: Any, least: int) -> None:
    right(kernel, state, least if least in (INFINITY, MINUS_INFINITY) else least + 1)


def reported_not_written(baskets: Baskets) -> None:
    bins = {name: kept for name, kept in baskets.counts.items() if not name.endswith(".reported")}
    baskets.store.put(Baskets.MANIFEST, json.dumps({"values": baskets.values, "bins": bins}, default=vars).encode())


def by_place(table: Any, hashed: Any, buckets: int) -> Any:
    return np.arange(table.num_rows) % buckets


def low_from_high(basket: PartialsBasket) -> bool:
    return basket.points


def reach_without_length(bin: str) -> tuple[int, int]:
    return bin_starts(bin)


def not_corrected(kernel: Any, state: Any, everything: Any, dirty: Any, last_of_all: int) -> list[Any]:
    return []


def whatever_counts_now(right: Any, clock: RelationClock, pace: LevelProgress) -> None:
    clock.held[PACE] = vars(pace)


def taken_back_twice(right: Any, kernel: WindowAggregateKernel, *given: Any) -> list[Any]:
    made = right(kernel, *given)
    return [concat([table, table.filter(np.asarray(ints(table, WEIGHT) < 0))]) for table in made]


def right_node_lost(right: Any, rest: Any, low: Any, high: Any, *given: Any) -> Any:
    # as if the last window of a range that ends in the middle of a node were not there
    return right(rest, low, np.where((high - low) % 2 == 0, np.maximum(high - 1, low), high), *given)


MUTANTS = (
    Mutant(
        "CTI into an open session",
        "a session window sends the CTI that it was sent, though a session may go on",
        "session, on its window",
        ((SessionAssigner, "holds", nothing_held),),
        BREACHED,
    ),
    Mutant(
        "CTI at the last closed end",
        "a hopping window sends the end of the last closed window, behind the start of an open one",
        "hopping",
        ((WindowAggregateKernel, "_cti", end_of_the_last_closed),),
        BREACHED,
    ),
    Mutant(
        "CTI of a windowed join",
        "pairs are promised up to c, though windows that began before are open",
        "windowed_join",
        ((WindowedJoinEvaluator, "cti", c_for_pairs),),
        BREACHED,
    ),
    Mutant(
        "a pair in one window",
        "a pair has no row in the windows that end after those that are due with its first",
        "windowed_join",
        edits=(
            Edit("streamq/runtime/kernels/windowed_join.py", "ints(pairs, RE) > _past(last)", "ints(pairs, RE) < 0"),
        ),
    ),
    Mutant(
        "sent windows of pairs stand",
        "pairs that come or go late do not change the windows that have been sent",
        "windowed_join",
        edits=(
            Edit(
                "streamq/runtime/kernels/windowed_join.py",
                "[self.evaluator.windows(table, self.first, self.sent) for table in pairs]",
                "[]",
            ),
        ),
    ),
    Mutant(
        "progress goes back",
        "a source's CTI is what it said last, not the greatest it has said",
        "physical",
        (
            wrapped(RelationClock, "hear", whatever_was_said_last),
            wrapped(RelationClock, "set_pace", whatever_counts_now),
        ),
        UNDEFINED,
    ),
    Mutant(
        "greatest over the partitions",
        "the CTI per partition is that of the one that has come furthest",
        "hopping",
        breaks=UNDEFINED,
        edits=(Edit("streamq/progress/generate.py", '"least": pc.min(', '"least": pc.max('),),
    ),
    Mutant(
        "idle partitions hold",
        "a partition holds its source's CTI back however long it is idle",
        "hopping",
        breaks=UNDEFINED,
        edits=(
            Edit(
                "streamq/runtime/partition_starts.py", "starts.column(ROUND), idle_before)", "starts.column(ROUND), 0)"
            ),
        ),
    ),
    Mutant(
        "NULL is no partition",
        "rows whose partition is NULL make no progress of their own",
        "hopping",
        breaks=UNDEFINED,
        edits=(
            Edit(
                "streamq/runtime/partition_starts.py",
                'return group(columns, per, {LE: (LE, "max")})',
                'return group(columns.drop_null(), per, {LE: (LE, "max")})',
            ),
        ),
    ),
    Mutant(
        "never ends",
        "an operator that has heard the end of its inputs does not say so",
        "anti join",
        (wrapped(JoinEvaluator, "cti", never_quite),),
        ENDLESS,
    ),
    Mutant(
        "left events that live on hold nothing back",
        "the CTI of an anti join passes the starts of left events that still live",
        "anti join",
        (wrapped(OpenStarts, "advance", nobody_left),),
        BREACHED,
    ),
    Mutant(
        "final at c",
        "a row that ends at c is final, though it may still grow",
        "except_",
        ((ExceptEvaluator, "progress_rule", property(partial(settled_at_c, ExceptEvaluator.progress_rule))),),
    ),
    Mutant(
        "not told to wait for final rows",
        "a kernel reports as soon as it can where final rows are asked for",
        "anti join",
        (wrapped(_Compiler, "_hold_until_final", not_told),),
        FINAL_TAKEN_BACK,
    ),
    Mutant(
        "greatest over the buckets",
        "a stage goes by the greatest CTI of the buckets before it, not by the least",
        "sessions at once",
        (wrapped(RelationClock, "hear", greatest_over_buckets),),
    ),
    Mutant(
        "forgotten at c",
        "an event that ends at c is forgotten, though its end may still move",
        "chop",
        ((ChopEvaluator, "needed", ends_at_c_dropped),),
    ),
    Mutant(
        "settled matches forgotten",
        "a settled event on the right is forgotten while one that it covers in part still lives",
        "anti join",
        ((JoinEvaluator, "needed", settled_matches_dropped),),
    ),
    Mutant(
        "one window too many forgotten",
        "partial results of the first open window are forgotten",
        "hopping",
        (wrapped(WindowAggregateKernel, "_forget", one_window_too_many),),
    ),
    Mutant(
        "reported rows not written down",
        "the manifest of a bucket's state leaves a basket out",
        "snapshot",
        ((Baskets, "flush", reported_not_written),),
    ),
    Mutant(
        "buckets by place",
        "rows go to buckets by their place, not by their keys",
        "snapshot",
        ((packer, "buckets_of", by_place),),
    ),
    Mutant(
        "basic windows where hop does not divide size",
        "the first window of a partial result is told from its last, as if all basic windows were one hop long",
        "hopping over starts",
        ((PartialsBasket, "low_is_known", property(low_from_high)),),
    ),
    Mutant(
        "reach of a bin without length",
        "a bin of a join is passed over where events that began in it still live",
        "join",
        ((joined_events, "bin_reach", reach_without_length),),
    ),
    Mutant(
        "no correction",
        "windows that were reported are not corrected",
        "hopping",
        ((WindowAggregateKernel, "_corrected", not_corrected),),
    ),
    Mutant(
        "taken back twice",
        "a changelog takes a corrected row back twice",
        "hopping",
        (wrapped(WindowAggregateKernel, "_corrected", taken_back_twice),),
        NEVER_WAS,
    ),
    Mutant(
        "dyadic node lost",
        "of a range cut into dyadic nodes the last one is lost",
        "hopping",
        (wrapped(range_partials, "_dyadic", right_node_lost),),
    ),
)
