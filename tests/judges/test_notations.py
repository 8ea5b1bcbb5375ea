"""The notations of expressions build the trees that they mean, and verify notices one that does not."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.plan.expr import Expr
from tests.judges.notations import wrong_notation


def test_every_notation_builds_what_it_means() -> None:
    assert wrong_notation() is None


@pytest.mark.slow
def test_verify_notices_a_method_that_builds_another_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    def between(self: Expr, low: Any, high: Any) -> Expr:
        return (self >= low) & (self < high)

    monkeypatch.setattr(Expr, "between", between)
    query = t.stream(columns="v double", axis="integer").where(sq.col("v").between(1, 3))
    with pytest.raises(t.VerificationFailed, match=r"a >= b and a <= c is built as a >= b and a < c"):
        t.verify(query, profile="fast", examples=3)
