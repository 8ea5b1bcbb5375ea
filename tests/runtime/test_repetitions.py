"""Rows that say again what another one has said, and rows that contradict one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamq.runtime.kernels.insert_ingress import repetitions

NAN = float("nan")


def told(values: list[Any], kind: pa.DataType, held: list[Any] | None = None, ids: list[Any] | None = None) -> str:
    """Of rows of one id (or of ``ids``): ``.`` stands, ``=`` repeats, ``!`` contradicts."""

    def table(some: list[Any], whose: list[Any]) -> pa.Table:
        return pa.table({"id": pa.array(whose, pa.int64()), "v": pa.array(some, kind)})

    known = None if held is None else table(held, [7] * len(held))
    repeated, contrary = repetitions(table(values, ids or [7] * len(values)), known, ["id"], ["v"])
    return "".join("=" if a else "!" if b else "." for a, b in zip(repeated, contrary, strict=True))


def test_the_least_stands_and_equal_rows_repeat_it() -> None:
    assert told([3, 2, 2, 3], pa.int64()) == "!.=!"
    assert told([3, 3], pa.int64(), ids=[1, 2]) == ".."
    assert told([3, 3, 4], pa.int64(), ids=[None, None, 1]) == ".=.", "NULL is an id"
    assert told([], pa.int64()) == ""


def test_what_is_held_stands() -> None:
    assert told([2, 3], pa.int64(), held=[3]) == "!="
    assert told([2], pa.int64(), held=[]) == "."


def test_equal_as_keys_are() -> None:
    assert told([None, None], pa.int64()) == ".="
    assert told([NAN, NAN], pa.float64()) == ".="
    assert told([0.0, -0.0], pa.float64()) == ".="
    assert told([None, NAN, 0.0], pa.float64()) == ".!!", "NULL is least"
    assert told(["b", "a", "a"], pa.string()) == "!.="


def test_values_without_an_order_in_arrow() -> None:
    assert told([[1, None], [1, None], [1]], pa.list_(pa.int64())) == "!!."
    assert told([{"x": NAN}, {"x": NAN}], pa.struct([("x", pa.float64())])) == ".="
    pairs = pa.map_(pa.string(), pa.int64())
    assert told([[("a", 1), ("b", None)], [("b", None), ("a", 1)]], pairs) == ".=", "the order of entries says nothing"
    assert told([[("a", 1)], [("a", 2)], [], None], pairs) == "!!!."
    assert told([[[("a", 1)]], [[("a", 1)]]], pa.list_(pairs)) == ".="
