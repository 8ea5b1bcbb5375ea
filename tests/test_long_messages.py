"""However long what a user wrote is, or what is wrong with it, the message is short: each part of it is cut in its middle."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq import col
from streamq import testing as t
from streamq.errors import LONGEST, Sentence, StreamqError, StreamqWarning, sentence, warn

LONG = "x" * 100_000
MANY = 1_500

TEXTS = sq.events([(1, 3, {"k": LONG, "v": 1})], name="s")
NAMED = sq.events([(1, 3, {LONG: 1, "v": 1})], name="n")
WIDE = sq.events([(1, 3, {f"column_{i}": i for i in range(MANY)})], name="w")


def over(module: Any, stream: sq.Stream = TEXTS, *columns: str, keys: tuple[str, ...] = ()) -> Any:
    grouped: Any = stream.group_by(*keys) if keys else stream
    applied = module(*(columns or ("v",)))
    return grouped.tumbling_window(5).select(*([applied] if module.kind == "udo" else []), **(
        {} if module.kind == "udo" else {"y": applied})).to_arrow()  # fmt: skip


def raising(*values: Any) -> Any:
    raise ValueError(LONG)


def rows_of(row: Any) -> Any:
    return sq.udo("y bigint", name="own", time_sensitive=True)(lambda events, window: [row])


FAILS = sq.uda("bigint", name="own")(lambda values: 1 // 0)

MISTAKES: dict[str, Callable[[], Any]] = {
    "an unknown column among many": lambda: WIDE.where(col("nope") > 1),
    "an unknown key among many": lambda: WIDE.group_by("nope").tumbling_window(3).select(n=sq.count()),
    "an unknown column": lambda: TEXTS.where(col(LONG) > 1),
    "a column that is almost one": lambda: NAMED.where(col(LONG + "y") > 1),
    "a literal of another type": lambda: TEXTS.where(col("v") == LONG),
    "a union of many columns": lambda: WIDE.union(TEXTS),
    "a join of many columns": lambda: WIDE.join(WIDE),
    "a duration": lambda: TEXTS.tumbling_window(LONG),
    "a word": lambda: TEXTS.explain(LONG),
    "a verb": lambda: getattr(TEXTS, LONG),
    "a function": lambda: getattr(sq.functions, LONG),
    "a type": lambda: sq.udf(LONG),
    "an option": lambda: sq.udf("int", **{LONG: 1}),
    "a promise": lambda: sq.udo("a int", properties=[sq.filters_on(LONG)])(list),
    "a start": lambda: sq.events([(LONG, 3, {"v": 1})]),
    "a row that is no event": lambda: sq.events([(3, 1, {"v": LONG})]).to_arrow(),
    "what a module raises": lambda: over(sq.uda("bigint", name="own")(raising)),
    "what a module gives": lambda: over(sq.uda("bigint", name="own")(lambda values: LONG)),
    "a value of a member": lambda: over(FAILS, TEXTS, "k"),
    "a value of a group": lambda: over(FAILS, keys=("k",)),
    "the name of a group's key": lambda: over(FAILS, NAMED, keys=(LONG,)),
    "the name of a module": lambda: over(sq.uda("bigint", name=LONG)(lambda values: 1 // 0)),
    "the fields of a row": lambda: over(rows_of({LONG: 1})),
    "many fields of a row": lambda: over(rows_of({str(i): i for i in range(MANY)})),
    "what a function raises": lambda: TEXTS.select(y=sq.udf("int", name="own")(raising)("v")).to_arrow(),
    "a value of a function": lambda: TEXTS.select(y=sq.udf("int", name="own")(lambda v: 1 // 0)("k")).to_arrow(),
    "a value of a step": lambda: (
        TEXTS.to_points().scan(sq.udso("y int", name="own", initial=0)(lambda s, v: 1 // 0)("k")).to_arrow()
    ),
    "a text": lambda: sq.cedr(LONG, A=TEXTS),
    "a string of a text": lambda: sq.cedr(f"EVENT E WHEN A AS a WHERE a.v = '{LONG}'", A=TEXTS),
    "a field of a text": lambda: sq.cedr(f"EVENT E WHEN A AS a WHERE a.{LONG} = 1", A=TEXTS),
    "a field of many": lambda: sq.cedr("EVENT E WHEN A AS a WHERE nope = 1", A=WIDE),
    "a function of a text": lambda: sq.cedr(f"EVENT E WHEN A AS a WHERE {LONG}(a.v) = 1", A=TEXTS),
    "a type of many": lambda: sq.cedr("EVENT E WHEN B", **{f"A{i}": TEXTS for i in range(MANY)}),
    "a scope of a text": lambda: sq.cedr(f"EVENT E WHEN SEQUENCE(A AS a, A AS b, '{LONG}')", A=TEXTS),
    "a law of a module": lambda: t.check_module(sq.uda("int", name="own")(lambda v: LONG), "string", examples=2),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_message_is_short_whatever_it_is_about(mistake: str) -> None:
    with pytest.raises((StreamqError, AssertionError)) as raised:
        MISTAKES[mistake]()
    assert len(str(raised.value)) < 4 * (LONGEST + 50)


@pytest.mark.parametrize("part", range(4))
def test_each_part_of_a_sentence_is_cut_in_its_middle(part: int) -> None:
    parts = ["verb", "wrong", "observed", "Hint."]
    parts[part] = "a" * 3_000 + "b" * 3_000
    text = sentence(*parts)
    assert f"{'a' * (LONGEST // 2)} … ({6_000 - LONGEST:,} characters more) … {'b' * (LONGEST // 2)}" in text
    assert isinstance(text, Sentence)
    assert text.endswith(text.hint)


def test_a_warning_is_short() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StreamqWarning)
        warn(LONG)
    (only,) = caught
    assert len(str(only.message)) < LONGEST + 50
