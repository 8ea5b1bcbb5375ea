"""What rules ask of an expression before they write it into another."""

from __future__ import annotations

import streamq as sq
from streamq.compiler.rules.substitution import count_uses, inline, is_cheap, is_plain
from streamq.plan.tree import show


def test_plain_and_cheap() -> None:
    x = sq.col("x")
    assert is_plain(x) and not is_plain(x + 1)
    assert is_cheap(x + 1) and not is_cheap(sq.functions.upper("x"))


def test_uses_and_inlining() -> None:
    x, y = sq.col("x"), sq.col("y")
    assert count_uses([x + x, y])["x"] == 2
    assert show(inline(x * y, {"x": y + 1})) == "(y + 1) * y"


def test_fields_keep_the_names_they_were_given() -> None:
    x, y = sq.col("x"), sq.col("y")
    made = sq.functions.struct("x", y, sq.start(), x.alias("z"), x * 2)
    assert show(made) == "struct(x, y, start() as start, x as z, x * 2)"
    assert show(inline(made, {"x": y + 1})) == "struct(y + 1 as x, y, start() as start, y + 1 as z, (y + 1) * 2)"
    assert show(inline(sq.functions.arrays_zip("x"), {"x": y})) == "arrays_zip(y as x)"
