"""Kernels and evaluators go by Spark's equality of values: in several buckets and micro-batches, judged by the oracle.

Among the values are instants beyond Python's years: whatever takes payload to Python, to be a key of a dict, fails on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import InvalidEvent, StreamqError
from streamq.run.batch.answers import in_user_form
from streamq.runtime.arrow.columnar import concat, ints
from streamq.runtime.deltas import WEIGHT, net_deltas
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from tests.programs import compiled

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
    "float": (pa.float32(), [-0.0, 1.0, NAN, None]),
    "double": (pa.float64(), [0.0, -0.0, NAN, -NAN, None]),
    "decimal": (pa.decimal128(38, 2), [Decimal("9" * 36 + ".99"), Decimal("0.00"), None]),
    "string": (pa.string(), ["", "a", "zone nine of ten", None]),
    "binary": (pa.binary(), [b"", b"\0", None]),
}
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "array": (pa.list_(pa.float64()), [[0.0], [NAN, None], [], None]),
    "array of far instants": (pa.list_(TYPES["timestamp"][0]), [[FAR], [0, None], None]),
    "struct": (pa.struct([("x", pa.float64()), ("y", pa.string())]), [{"x": 0.0}, {"x": NAN}, None]),
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


def moving(kind: pa.DataType, values: list[Any]) -> sq.Stream:
    """The same by a source that may take back: the second one of each value is made shorter."""
    n = len(values)
    rows = {
        "kind": ["insert"] * (2 * n) + ["retract"] * n,
        "start": [0] * (2 * n) + [0] * n,
        "end": [6] * n + [7] * (2 * n),
        "new_end": pa.array([None] * (2 * n) + [5] * n, pa.int64()),
        "k": pa.array(values * 3, kind),
    }
    return sq.physical(pa.table(rows), name="s", progress=AXIS)


def run(query: sq.Stream, output: str) -> pa.Table:
    """The history that is left, in four buckets: one row, the others with NULL among them, a CTI, what is taken back, CTIs."""
    live = LocalRun(compiled(rewrite(query.plan).plan, output, buckets=4), static=query.tables)
    inserts = {
        n: t.filter(pc.not_equal(t.column("kind"), "retract"))
        for n, t in query.tables.items()
        if "kind" in t.column_names
    }
    first = {n: inserts.get(n, t).num_rows for n, t in query.tables.items()}
    out = [live.batch({n: t.slice(0, 1) for n, t in query.tables.items()})]
    out += [live.batch({n: t.slice(1, first[n] - 1) for n, t in query.tables.items()})]
    out += [live.batch({}, [(None, 2)])]
    out += [live.batch({n: t.slice(first[n]) for n, t in query.tables.items()})]
    out += [live.batch({}, [(None, c)]) for c in (5, 8)]
    deltas = net_deltas(concat([*out, live.finish()]))
    assert (ints(deltas, WEIGHT) > 0).all()
    return in_user_form(
        deltas.take(pa.array(np.repeat(np.arange(deltas.num_rows), ints(deltas, WEIGHT)))), query.schema
    )


OUTPUTS = (OutputForm.FINAL, OutputForm.CHANGELOG)


def holds(query: sq.Stream, outputs: Sequence[OutputForm] = OUTPUTS) -> None:
    expected = oracle(query.plan, query.tables, None)
    for output in outputs:
        assert_same_history(run(query, output), expected)


KEYED: dict[str, Callable[[pa.DataType, list[Any]], sq.Stream]] = {
    "group_by": lambda k, v: stream(k, v).group_by("k").tumbling_window(4).select(n=sq.count()),
    "group_by, ends read": lambda k, v: (
        stream(k, v).group_by("k").tumbling_window(4).select(n=sq.count(), last=sq.max(sq.end()))
    ),
    "group_by of what is taken back": lambda k, v: moving(k, v).group_by("k").tumbling_window(4).select(n=sq.count()),
    "group_by of what is taken back, ends read": lambda k, v: (
        moving(k, v).group_by("k").tumbling_window(2, clip_input="none").select(n=sq.count(), last=sq.max(sq.end()))
    ),
    "group_by of a session": lambda k, v: stream(k, v).group_by("k").session_window(3).select(n=sq.count()),
    "count_distinct": lambda k, v: stream(k, v).tumbling_window(4).select(n=sq.count_distinct("k")),
    "join": lambda k, v: stream(k, v).select("k").join(stream(k, v, "o").select("k"), on="k"),
    "left_anti_join": lambda k, v: stream(k, v).left_anti_join(stream(k, v[:2], "o"), on="k"),
    "except_": lambda k, v: stream(k, v).select("k").except_(stream(k, v[:1], "o", 3).select("k")),
    "distinct_ids": lambda k, v: stream(k, v).distinct_ids(3, id="k"),
    "clip": lambda k, v: stream(k, v).clip(stream(k, v[1:], "o"), on="k"),
    "to_signal": lambda k, v: stream(k, v).to_signal("k"),
    "last_rows": lambda k, v: stream(k, v).last_rows(1, key="k"),
    "ids": lambda k, v: stream(k, v + v, id=("k", "v")).tumbling_window(4).select(n=sq.count()),
}


FAST = ("double",)
SOAK = bool(os.environ.get("STREAMQ_SOAK"))


def each(kinds: Iterable[str], fast: tuple[str, ...] = FAST) -> list[Any]:
    """The kinds as parameters; all but some run with the slow tests."""
    return [kind if kind in fast else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


def keyed() -> list[Any]:
    """Verbs and kinds: every sixth one meets; the fast kinds meet every verb, and in a soak all do."""
    every = [[(verb, kind) for kind in TYPES] for verb in KEYED]
    chosen = [
        pair for i, row in enumerate(every) for j, pair in enumerate(row) if SOAK or pair[1] in FAST or (i + j) % 6 == 0
    ]
    return [pytest.param(*pair, marks=() if pair[1] in FAST else pytest.mark.slow) for pair in chosen]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "kind"), keyed())
def test_a_key_of_any_type_beside_null(verb: str, kind: str) -> None:
    """Fast kinds have both outputs, the others one in turn, because the kernel is the same."""
    turn = (list(KEYED).index(verb) + list(TYPES).index(kind)) // 6
    holds(KEYED[verb](*TYPES[kind]), OUTPUTS if SOAK or kind in FAST else OUTPUTS[turn % 2 :][:1])


def _other_zeros(value: Any) -> Any:
    match value:
        case float():
            return -value if value == 0 else value
        case list():
            return [_other_zeros(v) for v in value]
        case dict():
            return {name: _other_zeros(v) for name, v in value.items()}
    return value


@pytest.mark.parametrize("kind", each(ALL))
def test_a_payload_of_any_type_is_taken_back(kind: str) -> None:
    """By an equal value, in other bits where there are such; what is not taken back keeps its own."""
    of, values = ALL[kind]
    n = len(values)
    other = [_other_zeros(v) for v in values]
    table = pa.table(
        {
            "kind": ["insert"] * n + ["retract"] * n,
            "start": [3] * (2 * n),
            "end": [9] * (2 * n),
            "new_end": pa.array([None] * n + [3, *range(4, n + 3)], pa.int64()),
            "k": pa.array(values + other, of),
        }
    )
    s = sq.physical(table, name="s", progress=AXIS)
    holds(s)
    holds(s.tumbling_window(4).select(n=sq.count("k")))


@pytest.mark.parametrize("kind", each([kind for kind in ALL if kind != "map"]))
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


@pytest.mark.parametrize("kind", each(TYPES))
def test_the_least_and_the_greatest_of_values_of_any_type(kind: str) -> None:
    of, values = TYPES[kind]
    least = {"least": sq.min("k"), "most": sq.max("k"), "first": sq.first("k"), "last": sq.last("k")}
    holds(stream(of, values).tumbling_window(4).select(**least))
    holds(moving(of, values).group_by("k").snapshot_window().select(least=sq.min("k"), most=sq.max("k")))
    holds(moving(of, values).tumbling_window(2).select(n=sq.count("k"), least=sq.min("k"), most=sq.max("k")))


EXTREMES = {
    "tinyint": (pa.int8(), -128, 127),
    "smallint": (pa.int16(), -(2**15), 2**15 - 1),
    "int": (pa.int32(), -(2**31), 2**31 - 1),
    "bigint": (pa.int64(), -(2**63), 2**63 - 1),
    # four of them are beyond 38 digits, and within what the oracle's database adds up
    "decimal(38,2)": (pa.decimal128(38, 2), Decimal("-4" + "0" * 35 + ".00"), Decimal("4" + "0" * 35 + ".00")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", each(EXTREMES, ("bigint",)))
def test_extremes_add_up_and_are_taken_back(kind: str) -> None:
    """What overflows on the way is no error, what does in the end is one that names it."""
    of, least, most = EXTREMES[kind]
    values = [least, most, most, least, None]
    rest = {"spread": sq.stddev_pop("k"), "median": sq.median("k"), "all": sq.collect("k")}
    # four of the widest overflow on the way: whether Spark and the oracle then have an answer depends on their order
    sums = rest if kind in ("bigint", "decimal(38,2)") else {"total": sq.sum("k"), **rest}
    for s in (stream(of, values), moving(of, values)):
        holds(s.tumbling_window(4).select(**sums))
        holds(s.snapshot_window().select(**sums))
        total = run(s.tumbling_window(100).select(total=sq.sum("k")), OutputForm.FINAL).column("total").to_pylist()
        assert total == [4 * (least + most)]
    few = moving(of, [least, least]).tumbling_window(2).select(total=sq.sum("k"))
    if kind not in ("bigint", "decimal(38,2)"):
        holds(few)
        return
    with pytest.raises(StreamqError, match="sum: overflow of "):
        run(few, OutputForm.FINAL)


def test_late_and_invalid_rows_may_say_any_time() -> None:
    """The late output, and the error under ``fail``, of payloads that Python has no value for."""
    of, values = TYPES["timestamp"]
    table = pa.table({"at": [50, 1], "to": [60, 9], "k": pa.array([0, FAR], of)})
    query = sq.intervals(table, "at", "to", name="s", progress=sq.generate(0)).join(stream(of, values, "o"), on="k")
    live = LocalRun(compiled(rewrite(query.plan).plan, buckets=2, late_output=True), static=query.tables)
    for i in (0, 1):
        live.batch({"s": table.slice(i, 1)})
    (late,) = live.late
    assert late.column("payload").to_pylist() == ['{"k": "+10000-01-01 00:00:00+00:00"}']
    failing = sq.intervals(table.slice(1), "to", "at", name="s", invalid="fail")
    with pytest.raises(InvalidEvent, match=r"\+10000-01-01 00:00:00"):
        failing.to_arrow()
