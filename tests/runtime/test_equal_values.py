"""Kernels and evaluators go by Spark's equality of values: in several buckets, row by row, judged by the oracle."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.program import CHANGELOG, FINAL, Options
from streamq.compiler.rewriter import rewrite
from streamq.compiler.stages import compile_stages
from streamq.query import in_user_form
from streamq.runtime.columnar import concat, ints, net
from streamq.runtime.event import WEIGHT
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle

NAN = float("nan")
FAR, LONG_AGO = 253_402_300_800_000_000, -62_135_596_800_000_001
"""Microseconds: the first instant behind Python's last year, and the last one before its first."""

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "timestamp": (pa.timestamp("us", tz="UTC"), [0, FAR, LONG_AGO, None]),
    "timestamp_ntz": (pa.timestamp("us"), [0, FAR, None]),
    "date": (pa.date32(), [0, 1, 2**31 - 1, None]),
    "interval": (pa.duration("us"), [0, -(2**63), None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, 127, None]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [0.0, -0.0, NAN, None]),
    "double": (pa.float64(), [0.0, -0.0, NAN, -NAN, None]),
    "decimal": (pa.decimal128(38, 2), [Decimal("9" * 36 + ".99"), Decimal("0.00"), None]),
    "string": (pa.string(), ["", "a", "zone nine of ten", None]),
    "binary": (pa.binary(), [b"", b"\0", None]),
}
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "array": (pa.list_(pa.float64()), [[0.0], [-0.0], [NAN, None], [], None]),
    "array of far instants": (pa.list_(TYPES["timestamp"][0]), [[FAR], [0, None], None]),
    "struct": (pa.struct([("x", pa.float64()), ("y", pa.string())]), [{"x": 0.0}, {"x": -0.0}, {"x": NAN}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)], [], None]),
}
ALL = TYPES | NESTED

AXIS = sq.explicit()


def stream(kind: pa.DataType, values: list[Any], name: str = "s", lasts: int = 6, **options: Any) -> sq.Stream:
    """Each value twice, at one start, one tick apart."""
    twice = [v for v in values for _ in (0, 1)]
    start = [i % 2 for i in range(len(twice))]
    table = pa.table(
        {"at": start, "to": [a + lasts for a in start], "k": pa.array(twice, kind), "v": range(len(twice))}
    )
    return sq.intervals(table, "at", "to", name=name, progress=AXIS, **options)


def run(query: sq.Stream, output: str) -> pa.Table:
    """The history that micro-batches of one row leave, in eight buckets."""
    live = LocalRun(compile_stages(rewrite(query.plan).plan, Options(output=output, buckets=8)), static=query.tables)
    longest = max(t.num_rows for t in query.tables.values())
    out = [live.batch({n: t.slice(i, 1) for n, t in query.tables.items()}) for i in range(longest)]
    deltas = net(concat([*out, live.finish()]))
    assert (ints(deltas, WEIGHT) > 0).all()
    return in_user_form(
        deltas.take(pa.array(np.repeat(np.arange(deltas.num_rows), ints(deltas, WEIGHT)))), query.schema
    )


def holds(query: sq.Stream) -> None:
    expected = oracle(query.plan, query.tables, None)
    for output in (FINAL, CHANGELOG):
        assert_same_history(run(query, output), expected)


KEYED: dict[str, Callable[[pa.DataType, list[Any]], sq.Stream]] = {
    "group_by": lambda k, v: stream(k, v).group_by("k").tumbling_window(4).select(n=sq.count()),
    "group_by, ends read": lambda k, v: (
        stream(k, v).group_by("k").tumbling_window(4).select(n=sq.count(), last=sq.max(sq.end()))
    ),
    "group_by of a session": lambda k, v: stream(k, v).group_by("k").session_window(3).select(n=sq.count()),
    "count_distinct": lambda k, v: stream(k, v).tumbling_window(4).select(n=sq.count_distinct("k")),
    "join": lambda k, v: stream(k, v).select("k").join(stream(k, v, "o").select("k"), on="k"),
    "left_anti_join": lambda k, v: stream(k, v).left_anti_join(stream(k, v[:2], "o"), on="k"),
    "except_": lambda k, v: stream(k, v).select("k").except_(stream(k, v[:1], "o", 3).select("k")),
    "distinct_ids": lambda k, v: stream(k, v).distinct_ids(3, id="k"),
    "clip": lambda k, v: stream(k, v).clip(stream(k, v[1:], "o"), on="k"),
    "to_signal": lambda k, v: stream(k, v).to_signal("k"),
    "ids": lambda k, v: stream(k, v + v, id=("k", "v")).tumbling_window(4).select(n=sq.count()),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("verb", KEYED)
def test_a_key_of_any_type_beside_null(verb: str, kind: str) -> None:
    holds(KEYED[verb](*TYPES[kind]))


@pytest.mark.parametrize("kind", ALL)
def test_a_payload_of_any_type_is_taken_back(kind: str) -> None:
    """By an equal value, in other bits where there are such; what is not taken back keeps its own."""
    of, values = ALL[kind]
    n = len(values)
    other = [-v if isinstance(v, float) and v == 0 else v[::-1] if kind == "map" and v else v for v in values]
    table = pa.table(
        {
            "kind": ["insert"] * n + ["retract"] * n,
            "start": [0] * (2 * n),
            "end": [9] * (2 * n),
            "new_end": pa.array([None] * n + [0, *range(1, n)], pa.int64()),
            "k": pa.array(values + other, of),
        }
    )
    s = sq.physical(table, name="s", progress=AXIS)
    holds(s)
    holds(s.tumbling_window(4).select(n=sq.count("k")))


@pytest.mark.parametrize("kind", ALL)
def test_edges_by_a_key_of_any_type(kind: str) -> None:
    of, values = ALL[kind]
    values = values[:1] + values[-2:]
    table = pa.table(
        {
            "at": [*range(3), *range(10, 13)],
            "edge": ["start"] * 3 + ["end"] * 3,
            "k": pa.array(values + values, of),
        }
    )
    holds(sq.edges(table, "at", edge="edge", key="k", name="s", progress=AXIS))
