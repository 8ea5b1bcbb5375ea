"""Mistakes about aggregates: what counts as a value, how partial results merge, what a retraction takes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.compiler.operators.partial_aggregate import Slot
from streamq.runtime import partials
from streamq.runtime.columnar import group, ints, with_column
from streamq.runtime.evaluators import reductions
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.partials import COUNT, SlotSpec, exact_sums, merged
from streamq.runtime.values import sortable
from tests.mutation.mutant import Mutant, wrapped

NAN_LEAST = -(2**63) + 1


def floats_are_exact(slot: Slot) -> bool:
    return slot.kind in ("count", "sum")


def retracted_values_stay(kernel: WindowAggregateKernel, table: pa.Table, by: list[str]) -> pa.Table:
    if kernel.merges:
        return merged(table, by, kernel.slots)
    return group(table, [*by, *(s.name for s in kernel.slots if not s.exact)], exact_sums(kernel.slots))


def greatest_whatever_the_weight(right: Any, slot: SlotSpec, table: pa.Table) -> pa.Table:
    if slot.kind != "max":
        return right(slot, table)
    return with_column(right(slot, with_column(table, COUNT, pc.abs(table.column(COUNT)))), COUNT, table.column(COUNT))


def nulls_counted(right: Any, slot: SlotSpec, table: pa.Table, merges: bool = True) -> Any:
    made = right(slot, table, merges)
    counted = slot.name if slot.kind == "count" else f"{slot.name}__n"
    return {name: table.column(COUNT) if name == counted else values for name, values in made.items()}


def nan_least(values: Any) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return sortable(values)
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    made = np.where(np.isnan(floats), NAN_LEAST, sortable(values).fill_null(0).to_numpy())
    return pa.array(made, mask=values.is_null().to_numpy())


def nan_from_least(right: Any, values: Any, kind: Any) -> pa.Array:
    return pc.if_else(pc.equal(values, NAN_LEAST), pa.scalar(float("nan"), kind), right(values, kind))


def means_of_means(right: Any, slot: SlotSpec, table: pa.Table, number: Any, at: Any) -> Any:
    n = f"{slot.name}__n"
    once = with_column(table, n, np.minimum(ints(table, n), 1))
    return {**right(slot, once, number, at), n: right(slot, table, number, at)[n]}


def each_stretch_counted(of: Any, low: Any, high: Any) -> Any:
    return of, low, high


MUTANTS = (
    Mutant(
        "float subtracted",
        "a retracted float is subtracted from a running sum",
        "hopping",
        ((Slot, "exact", property(floats_are_exact)),),
    ),
    Mutant(
        "greatest value not given up",
        "a maximum stays when its event is retracted",
        "hopping",
        (
            (WindowAggregateKernel, "_merge", retracted_values_stay),
            wrapped(SlotSpec, "weighted", greatest_whatever_the_weight),
        ),
    ),
    Mutant(
        "NULLs counted",
        "count(v), and the count that a mean divides by, count NULLs as well",
        "tumbling",
        (wrapped(SlotSpec, "of_events", nulls_counted),),
    ),
    Mutant(
        "NaN the least",
        "NaN is the least of all floats, not the greatest",
        "tumbling",
        ((partials, "sortable", nan_least), wrapped(partials, "unsortable", nan_from_least)),
    ),
    Mutant(
        "means of means",
        "the means of partial results are merged without their counts",
        "spread",
        (wrapped(partials, "_merged_moments", means_of_means),),
    ),
    Mutant(
        "distinct values counted twice",
        "a value that two members of a window share counts twice",
        "count_distinct",
        ((reductions, "covered", each_stretch_counted),),
    ),
)
