"""The law of values: equal ones have equal numbers, one rank and one bucket, in every layout, whatever stands beside them."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamq.runtime.arrow.columnar import codes, concat, group
from streamq.runtime.arrow.values import EQUAL, ORDER, SAME, column_ranks, number_values
from streamq.runtime.deltas import net_deltas
from streamq.runtime.groups import buckets_of, hashes

NAN = float("nan")
LONG = 2**63

INTERVAL = pa.month_day_nano_interval()
"""Has no order in Spark."""
FLOATS = st.sampled_from([0.0, -0.0, NAN, -NAN, math.inf, -math.inf, 5e-324, 1.5, -1.5, 3.0])
TEXTS = st.sampled_from(["", "\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "é€𝄞", "x" * 40])
TICKS = st.sampled_from([0, 1, -1, 7, LONG - 1, -LONG, 253_402_300_800_000_000, -62_135_596_800_000_001])
FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    **{
        kind: st.sampled_from([0, 1, -1, 2 ** (kind.bit_width - 1) - 1, -(2 ** (kind.bit_width - 1))])
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    pa.float32(): FLOATS.filter(lambda x: x != 5e-324),
    pa.float64(): FLOATS,
    pa.decimal128(38, 2): st.sampled_from([Decimal(f"{sign}{'9' * 36}.99") for sign in ("", "-")] + [Decimal("0.00")]),
    pa.decimal128(3, 1): st.sampled_from([Decimal("1.0"), Decimal("-1.0"), Decimal("99.9")]),
    pa.string(): TEXTS,
    pa.binary(): TEXTS.map(str.encode),
    **dict.fromkeys((pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.time64("ns"), pa.duration("us")), TICKS),
    pa.date32(): st.sampled_from([0, -1, 2**31 - 1, -(2**31)]),
    INTERVAL: st.tuples(*[st.sampled_from([0, 1, -1])] * 3),
}


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    def struct(kinds: list[pa.DataType]) -> pa.DataType:
        return pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])

    lists = st.builds(lambda make, kind: make(kind), st.sampled_from([pa.list_, pa.large_list]), inner)
    structs = st.lists(inner, min_size=1, max_size=3).map(struct)
    keys = inner.filter(lambda kind: not pa.types.is_null(kind))
    return lists | structs | st.builds(pa.map_, keys, inner)


KINDS = st.recursive(st.sampled_from(list(FLAT)), nested, max_leaves=4)


def values(kind: pa.DataType, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Python values that Arrow takes for the type; times as their ticks, whatever the year."""
    if pa.types.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: values(f.type) for f in kind})
    elif pa.types.is_map(kind):
        entries = st.tuples(values(kind.key_type, nulls=False), values(kind.item_type))
        some = st.lists(entries, max_size=3, unique_by=lambda entry: place(entry[0], kind.key_type))
    elif pa.types.is_nested(kind):
        some = st.lists(values(kind.value_type), max_size=3)
    else:
        some = FLAT[kind]
    return some | st.none() if nulls else some


def place(value: Any, kind: pa.DataType) -> Any:
    """What Python compares and sorts as Spark does the value: written down apart from what is tested."""
    if value is None:
        return (0,)
    if pa.types.is_struct(kind):
        return (1, *(place(value[f.name], f.type) for f in kind))
    if pa.types.is_map(kind):
        return (1, *sorted((place(k, kind.key_type), place(v, kind.item_type)) for k, v in value))
    if pa.types.is_nested(kind):
        return (1, *(place(v, kind.value_type) for v in value))
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], pa.Array | pa.ChunkedArray]:
    """Values of a type, and a column of them: slices of longer arrays, in chunks; sometimes by a dictionary."""
    kind = draw(KINDS)
    chunks = draw(st.lists(st.lists(values(kind), max_size=4), min_size=1, max_size=3))
    beside = st.lists(values(kind), max_size=2)
    arrays = []
    for chunk in chunks:
        before, after = draw(beside), draw(beside)
        arrays.append(pa.array([*before, *chunk, *after], kind).slice(len(before), len(chunk)))
    column = pa.chunked_array(arrays, kind)
    if kind in FLAT and kind not in (pa.null(), INTERVAL) and draw(st.booleans()):
        column = column.dictionary_encode()
    return kind, [v for chunk in chunks for v in chunk], column


@given(columns())
def test_equal_values_have_equal_numbers_and_one_rank_and_hash(case: tuple[Any, ...]) -> None:
    kind, given_values, column = case
    expected = [place(v, kind) for v in given_values]
    number, rank = number_values(column, EQUAL)[0], number_values(column, ORDER)[0]
    code, first = codes(pa.table({"x": column}), ["x"])
    hashed, same = hashes(column), number_values(column, SAME)[0]
    for i, one in enumerate(expected):
        alone = pa.array([given_values[i]], kind)
        assert hashes(alone)[0] == hashed[i], "a hash says nothing but the value"
        for j, other in enumerate(expected):
            told = [x[i] == x[j] for x in (number, rank, code, hashed)]
            assert told == [one == other] * len(told), (given_values[i], given_values[j])
            assert one == other or same[i] != same[j]
            assert (rank[i] < rank[j]) == (one < other) or str(INTERVAL) in str(kind)
    assert [int(code[at]) for at in first] == list(range(len(set(expected))))


@given(columns(), st.data())
def test_what_is_taken_back_as_an_equal_value_is_gone(case: tuple[Any, ...], data: st.DataObject) -> None:
    kind, given_values, column = case
    taken = data.draw(st.permutations(range(len(given_values))))
    back = pa.array([twin(given_values[i], kind) for i in taken], kind)
    plain = column.cast(kind) if pa.types.is_dictionary(column.type) else column

    def deltas(of: pa.Array | pa.ChunkedArray, weight: int) -> pa.Table:
        return pa.table({"x": of, "__w": np.full(len(of), weight, np.int64)})

    inserted, both = deltas(plain, 1), concat([deltas(plain, 1), deltas(back, -1)])
    assert net_deltas(both).num_rows == 0
    kept = net_deltas(inserted)
    expected = Counter(place(v, kind) for v in given_values)
    counted = group(inserted, ["x"], {"n": ("__w", "sum")})
    of_groups = column_ranks(pa.table({"x": concat_arrays(counted.column("x"), plain)}), ["x"])[0]
    assert sorted(counted.column("n").to_pylist()) == sorted(expected.values())
    assert len(set(of_groups[: counted.num_rows])) == counted.num_rows
    # every row keeps its own value: those that agree in every bit are put together, no others
    whole = number_values(concat_arrays(kept.column("x"), plain), SAME)[0]
    own = Counter(whole[kept.num_rows :].tolist())
    assert dict(zip(whole[: kept.num_rows].tolist(), kept.column("__w").to_pylist(), strict=True)) == own


def twin(value: Any, kind: pa.DataType) -> Any:
    """An equal value in other bits, where there is one."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return -value if value == 0 or math.isnan(value) else value
    if pa.types.is_struct(kind):
        return {f.name: twin(value[f.name], f.type) for f in kind}
    if pa.types.is_map(kind):
        return [(twin(k, kind.key_type), twin(v, kind.item_type)) for k, v in reversed(value)]
    return [twin(v, kind.value_type) for v in value] if pa.types.is_nested(kind) else value


def concat_arrays(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*one.chunks, *other.chunks], other.type)


def test_where_state_lies() -> None:
    """The buckets of some keys: one that moves is lost in the state of a checkpoint, so it makes a new STATE_VERSION."""
    keys = pa.table(
        {
            "i": [0, -1, None],
            "f": [0.0, NAN, None],
            "s": ["", "zone 7", "a name longer than eight bytes"],
            "t": pa.array([0, LONG - 1, None], pa.timestamp("us", tz="UTC")),
            "d": pa.array([Decimal("1.50"), Decimal("-1.50"), None]),
            "l": [[1, None], [], None],
            "m": pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    found = {name: buckets_of(keys, [name], 1 << 16).tolist() for name in keys.column_names}
    assert found == {
        "i": [0, 24353, 12010],
        "f": [0, 15237, 12010],
        "s": [0, 7972, 34138],
        "t": [0, 60906, 12010],
        "d": [61013, 52592, 12010],
        "l": [23748, 0, 12010],
        "m": [16077, 16077, 12010],
    }
    assert buckets_of(keys, keys.column_names, 8).tolist() == [4, 6, 5]
    assert buckets_of(keys.slice(0, 0), ["i"], 8).tolist() == []


def test_integers_of_any_width_and_floats_share_buckets_with_their_equals() -> None:
    """The two sides of a join may have keys of two widths."""
    numbers = [0, 1, -1, 127, None]
    widths = [pa.array(numbers, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())]
    assert len({hashes(array).tobytes() for array in widths}) == 1
    assert len({hashes(pa.array(numbers, kind)).tobytes() for kind in (pa.float32(), pa.float64())}) == 1
