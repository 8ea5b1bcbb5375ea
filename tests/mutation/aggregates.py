"""Mistakes about aggregates: what counts as a value, how partial results merge, what a retraction takes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.aggregates import holistic
from streamq.plan.partial import COUNT, Partial
from streamq.runtime import arrow_casts, built_in_partials, values
from streamq.runtime.arrow_types import BITS
from streamq.runtime.built_in_partials import PartialCount, PartialMax, PartialSum
from streamq.runtime.columnar import group, ints, with_column
from streamq.runtime.deviation_partials import PartialMoments
from streamq.runtime.event import LE, RE
from streamq.runtime.grid_ranges import HI, LO
from streamq.runtime.groups import HASH
from streamq.runtime.kernels import window_aggregate
from streamq.runtime.range_partials import merge_aggregations, merge_partial_rows
from streamq.runtime.state.window_bins import PartialsBasket
from streamq.runtime.values import sortable
from tests.mutation.mutant import Mutant, wrapped

NAN_LEAST = -(2**63) + 1


def floats_are_exact(_: PartialSum) -> bool:
    return True


def values_once(right: Any, windows: Any, values: pa.Table, *rest: Any) -> Any:
    return right(windows, with_column(values, COUNT, np.sign(ints(values, COUNT))), *rest)


def values_of_all_windows(right: Any, windows: Any, values: pa.Table, first: Any, last: Any, *rest: Any) -> Any:
    return right(windows, values, first, np.maximum(first, last), *rest)


def retracted_values_stay(basket: PartialsBasket, table: pa.Table) -> pa.Table:
    hashed = [HASH] if HASH in table.column_names else []
    by = [*basket.keys, LO, HI, *((LE, RE) if basket.reads_end else ()), *hashed]
    if basket.merges:
        return merge_partial_rows(table, by, basket.partials)
    values = [one.name for one in basket.partials if not one.exact]
    return group(table, [*by, *values], merge_aggregations([one for one in basket.partials if one.exact]))


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


def squares_of_sums(right: Any, one: PartialMoments, of: str, table: pa.Table) -> Any:
    n = one.part("n")
    return right(one, of, with_column(table, n, np.minimum(ints(table, n), 1)))


def each_stretch_counted(of: Any, low: Any, high: Any) -> Any:
    return of, low, high


def nan_by_its_bits(right: Any, array: Any, zeros_equal: bool = False) -> Any:
    numbers = right(array, zeros_equal)
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if not pa.types.is_floating(whole.type):
        return numbers
    floats = whole.to_numpy(zero_copy_only=False).astype(float)
    negative = pa.array(np.isnan(floats) & np.signbit(floats))
    return pc.if_else(pc.fill_null(negative, False), pc.add(numbers, 1), numbers)


def not_truncated_first(right: Any, array: Any, kind: Any, to: Any) -> Any:
    values, limit = np.asarray(array.to_numpy(zero_copy_only=False), float), 2.0 ** (BITS[type(to)] - 1) - 1
    cast, faults = right(array, kind, to)
    beyond = (np.abs(values) > limit) & (np.abs(values) < limit + 1)
    return (cast, arrow_casts.fault_list(beyond, "[CAST_OVERFLOW]")) if beyond.any() else (cast, faults)


MUTANTS = (
    Mutant(
        "NaN told by its bits",
        "results and values that are NaN are equal only if all their bits are",
        "except of greatest values",
        (wrapped(values, "sortable", nan_by_its_bits),),
    ),
    Mutant(
        "cast compared before it truncates",
        "a float whose fraction lies beyond the greatest integer fails as an overflow",
        "cast",
        (wrapped(arrow_casts, "_truncate", not_truncated_first),),
    ),
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
            (PartialsBasket, "merged", retracted_values_stay),
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
        ((built_in_partials, "sortable", nan_least), wrapped(built_in_partials, "unsortable", nan_from_least)),
    ),
    Mutant(
        "squares of sums",
        "a merged partial result counts as one more value among those that squares are summed of",
        "spread",
        (wrapped(PartialMoments, "_sums_of_products", squares_of_sums),),
    ),
    Mutant(
        "distinct values counted twice",
        "a value that two members of a window share counts twice",
        "count_distinct",
        ((holistic, "union_of_pieces", each_stretch_counted),),
    ),
    Mutant(
        "counted values once each",
        "of equal values in the same windows one counts in a median",
        "median",
        (wrapped(window_aggregate, "reduced_windows", values_once),),
    ),
    Mutant(
        "values of windows that are not asked for",
        "a median has the values of its group in all windows that are reported with it",
        "median",
        (wrapped(window_aggregate, "reduced_windows", values_of_all_windows),),
    ),
)
