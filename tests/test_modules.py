"""What modules of a user's own say of themselves, the repository that lists them, and queries in JSON that name them."""

from __future__ import annotations

import math
from typing import Any

import streamq as sq


@sq.udf("string")
def size(toll: int | None, limit: int = 10) -> str | None:
    """Whether a toll is a large one.

    NULL has no size.
    """
    return None if toll is None else "large" if toll > limit else "small"


class Scale:
    """Multiplies."""

    def __call__(self, v: float, *, by: int = 2) -> float:
        return v * by


def test_a_module_says_what_it_is() -> None:
    assert (size.name, size.kind, size.returns.simpleString()) == ("size", "udf", "string")
    assert size.signature == "size(toll, limit=10)"
    assert size.summary == "Whether a toll is a large one."
    assert size.documentation.endswith("\n\nNULL has no size.")
    assert (size.registered_in, size.place) == (__name__, __name__)
    assert repr(size) == "<udf size(toll, limit=10) -> string>"
    assert (size.properties, size.options) == ((), {})


def test_where_code_of_another_place_was_registered() -> None:
    """What has to be imported is where the decorator was called, whoever wrote the code."""
    hypot = sq.udf("double")(math.hypot)
    assert (hypot.registered_in, hypot.place) == (__name__, f"{__name__} (math.hypot)")
    assert hypot.signature == "hypot(*coordinates)" or hypot.signature == "hypot(...)"
    scale = sq.udf("double", name="twice")(Scale())
    assert (scale.place, scale.signature, scale.summary) == (f"{__name__} (Scale)", "twice(v, *, by=2)", "Multiplies.")
    script: dict[str, Any] = {"__name__": "__main__", "sq": sq}
    exec("@sq.udf('int')\ndef one(v): return 1", script)
    assert (script["one"].place, script["one"].documentation) == ("a notebook or script", "")


def test_options_are_set_and_what_was_decorated_stays() -> None:
    other = size.with_options({"limit": 3})
    assert (other.options, size.options, other.registered_in) == ({"limit": 3}, {}, __name__)
    assert other != size
    assert other.with_options({}) == size
    assert other.with_options({}).digest == size.digest
