"""Values that a module gives and may not: they are shown readably, with what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamq as sq
from streamq.errors import ModuleFailed

WINDOW = sq.events([(1, 4, {"v": 2}), (3, 4, {"v": 6})]).tumbling_window(5)


def failure(code: Any, returns: str = "double") -> str:
    with pytest.raises(ModuleFailed) as raised:
        WINDOW.select(x=sq.uda(returns, name="own")(code)("v")).to_arrow()
    return str(raised.value)


def test_a_value_of_another_type_fails() -> None:
    assert "'one' is no double; window [0, 5)" in failure(lambda v: "one")
    assert "1.5 is no bigint (write int(...)); window [0, 5)" in failure(lambda v: 1.5, "bigint")
    assert "300 is no tinyint" in failure(lambda v: 300, "tinyint")
    assert "a Series of 2 values is no double (a list is an array<...>); window" in failure(lambda v: v)
    assert "[2, 6] is no double (a list is an array<...>)" in failure(lambda v: v.tolist())
    assert "a Series of 2 values is no array<string> (write .tolist())" in failure(lambda v: v, "array<string>")
    assert "[(1, 2)] is no double (@sq.udo makes rows)" in failure(lambda v: [(1, 2)])
    assert "a DataFrame of 1 rows is no double (@sq.udo makes rows)" in failure(lambda v: pd.DataFrame({"x": [1]}))
    assert "a generator is no double (return a value; @sq.udo makes rows)" in failure(lambda v: (yield 1))
    assert "5 is no string (write str(...))" in failure(lambda v: np.int64(5), "string")
    assert "inf is no bigint; window" in failure(lambda v: float("inf"), "bigint")

    async def later(v: pd.Series) -> float:
        return 1.0

    assert "a coroutine is no double (write def, not async def)" in failure(later)
