"""Outputs as a user gets them: what never ends has an end of NULL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamq.testing.deltas import WrongOutput, check_ends
from streamq.time import INFINITY


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("name", ["end", "new_end"])
def test_an_end_that_never_comes_is_null(name: str, kind: pa.DataType) -> None:
    check_ends(pa.table({name: pa.array([None, 5], pa.int64()).cast(kind)}))
    with pytest.raises(WrongOutput, match=f"the {name} of a row that never ends is not NULL"):
        check_ends(pa.table({name: pa.array([5, INFINITY], pa.int64()).cast(kind)}))


def test_a_payload_may_have_an_end_of_its_own() -> None:
    check_ends(pa.table({"end": ["never"]}))
