"""Mistakes about aggregates: what counts as a value, how partial results merge, what a retraction takes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.aggregates import distinct
from streamq.plan.partial import COUNT, Partial
from streamq.runtime import partial
from streamq.runtime.columnar import group, ints, with_column
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.partial import PartialCount, PartialMax, PartialMoments, PartialSum
from streamq.runtime.partials import grouped, merged
from streamq.runtime.values import sortable
from tests.mutation.mutant import Mutant, wrapped

NAN_LEAST = -(2**63) + 1


def floats_are_exact(_: PartialSum) -> bool:
    return True


def retracted_values_stay(kernel: WindowAggregateKernel, table: pa.Table, by: list[str]) -> pa.Table:
    if kernel.merges:
        return merged(table, by, kernel.partials)
    values = [one.name for one in kernel.partials if not one.exact]
    return group(table, [*by, *values], grouped([one for one in kernel.partials if one.exact]))


def greatest_whatever_the_weight(right: Any, one: PartialMax, table: pa.Table) -> pa.Table:
    whole = right(one, with_column(table, COUNT, np.ones(table.num_rows, np.int64)))
    return with_column(whole, COUNT, table.column(COUNT))


def nulls_counted(right: Any, one: Partial, table: pa.Table) -> Any:
    counted = one.many if isinstance(one, PartialSum) else one.name
    return {name: table.column(COUNT) if name == counted else values for name, values in right(one, table).items()}


def nan_least(values: Any) -> pa.Array:
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    made = np.where(np.isnan(floats), NAN_LEAST, sortable(values).fill_null(0).to_numpy())
    return pa.array(made, mask=values.is_null().to_numpy())


def nan_from_least(right: Any, values: Any, kind: Any) -> pa.Array:
    return pc.if_else(pc.equal(values, NAN_LEAST), pa.scalar(float("nan"), kind), right(values, kind))


def means_of_means(right: Any, one: PartialMoments, table: pa.Table, number: Any, at: Any) -> Any:
    n = one.part("n")
    once = with_column(table, n, np.minimum(ints(table, n), 1))
    return {**right(one, once, number, at), n: right(one, table, number, at)[n]}


def each_stretch_counted(of: Any, low: Any, high: Any) -> Any:
    return of, low, high


MUTANTS = (
    Mutant(
        "float subtracted",
        "a retracted float is subtracted from a running sum",
        "hopping",
        ((PartialSum, "exact", property(floats_are_exact)),),
    ),
    Mutant(
        "greatest value not given up",
        "a maximum stays when its event is retracted",
        "hopping",
        (
            (WindowAggregateKernel, "_merge", retracted_values_stay),
            wrapped(PartialMax, "from_weighted", greatest_whatever_the_weight),
        ),
    ),
    Mutant(
        "NULLs counted",
        "count(v), and the count that a mean divides by, count NULLs as well",
        "tumbling",
        (wrapped(PartialCount, "of_events", nulls_counted), wrapped(PartialSum, "of_events", nulls_counted)),
    ),
    Mutant(
        "NaN the least",
        "NaN is the least of all floats, not the greatest",
        "tumbling",
        ((partial, "sortable", nan_least), wrapped(partial, "unsortable", nan_from_least)),
    ),
    Mutant(
        "means of means",
        "the means of partial results are merged without their counts",
        "spread",
        (wrapped(PartialMoments, "merged", means_of_means),),
    ),
    Mutant(
        "distinct values counted twice",
        "a value that two members of a window share counts twice",
        "count_distinct",
        ((distinct, "covered", each_stretch_counted),),
    ),
)
