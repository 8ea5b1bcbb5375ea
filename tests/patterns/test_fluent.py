"""Patterns verb by verb: the same plans as texts give."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq.errors import PlanError, StreamqWarning
from streamq.patterns import definitions, parser
from streamq.patterns import pattern as patterns
from tests.judged import answer

INSTALLS = sq.events([(1, 2, {"m": 1}), (3, 4, {"m": 2}), (20, 21, {"m": 1})], name="installs")
SHUTDOWNS = sq.events([(5, 6, {"m": 1}), (6, 7, {"m": 2}), (22, 23, {"m": 1})], name="shutdowns")
RESTARTS = sq.events([(7, 8, {"m": 1}), (50, 51, {"m": 2})], name="restarts")
X, Y, Z = INSTALLS.alias("x"), SHUTDOWNS.alias("y"), RESTARTS.alias("z")
PAIR = sq.sequence(X, Y, within=12)


class Calls:
    """The number of calls of functions, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: Counter[str] = Counter()
        for module, name in (
            (definitions, "DefinitionLowering"),
            (parser, "check_program"),
            (patterns, "check_program"),
        ):
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.numbers[name] += 1
            return function(*args, **kwargs)

        return counted


def test_a_pattern_is_lowered_once_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    pattern = sq.sequence(X, Y, within=12).unless(Z, 5).where("x.m = y.m").where(lambda x, z: x.m == z.m)
    assert calls.numbers["DefinitionLowering"] == 0
    assert pattern.columns == ["x_m", "y_m", "root"]
    pattern.select("x_m").to_arrow()
    pattern.shift(1).explanation()
    assert calls.numbers["DefinitionLowering"] == 1
    # as a type of another pattern it is not lowered again
    assert sq.cedr("EVENT E WHEN SEQUENCE(P AS p, z, 9)", P=pattern, z=RESTARTS).columns
    assert calls.numbers["DefinitionLowering"] == 2


def test_a_text_is_checked_and_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    pattern = sq.cedr(
        "EVENT P WHEN SEQUENCE(x, y, 12); EVENT E WHEN UNLESS(P AS p, z, 5)", x=INSTALLS, y=SHUTDOWNS, z=RESTARTS
    )
    pattern.to_arrow()
    assert calls.numbers == {"check_program": 1, "DefinitionLowering": 2}


def test_what_does_not_fit_the_event_types_is_an_error_when_the_pattern_is_used() -> None:
    pattern = PAIR.where("x.n = 1")
    for use in (lambda: pattern.columns, lambda: pattern.show(), lambda: pattern.group_by("x_m")):
        with pytest.raises(PlanError, match="^pattern: no field 'n' of x; there are: m, Vs"):
            use()


def test_events_of_one_type_in_any_order_are_a_warning() -> None:
    with pytest.warns(
        StreamqWarning, match=r"each 3 events of A are 60 matches, .* write SEQUENCE\(A AS a, A AS b, \.\.\.\)"
    ):
        sq.cedr(f"EVENT E WHEN ATLEAST(3, {', '.join(f'A AS a{i}' for i in range(5))}, 9)", A=INSTALLS)


def test_a_pattern_that_is_a_text_is_read_again() -> None:
    pattern = PAIR.unless(Z, 5).where("x.m = z.m")
    assert sq.cedr(pattern.text, x=INSTALLS, y=SHUTDOWNS, z=RESTARTS).plan == pattern.plan


def test_verbs_of_streams_go_on_from_the_matches() -> None:
    counts = PAIR.where("x.m = y.m").group_by("x_m").tumbling_window(100).select(n=sq.count())
    assert counts.to_arrow().select(["x_m", "n"]).sort_by("x_m").to_pylist() == [{"x_m": 1, "n": 2}, {"x_m": 2, "n": 1}]


def test_what_has_output_is_an_event_of_its_own() -> None:
    inner = sq.cedr("EVENT E WHEN SEQUENCE(x, y, 12) OUTPUT x.m AS machine", x=INSTALLS, y=SHUTDOWNS)
    outer = sq.sequence(inner.alias("pair"), Z, within=9)
    assert outer.columns == ["pair_machine", "z_m", "root"]


DECLINED, APPROVED = (
    sq.events([(at, at + 1, {"at": at}) for at in instants], name=name)
    for name, instants in {"declined": (1, 2, 3, 5), "approved": (4, 6, 8)}.items()
)


def test_aliases_of_a_stream_are_one_type_of_which_an_event_is_consumed_once() -> None:
    declined = [DECLINED.alias(f"d{n}").last().consume() for n in (1, 2, 3)]
    pattern = sq.sequence(*declined, APPROVED.alias("a"), within=10)
    assert [row[2:] for row in answer(pattern.select("d1_at", "d2_at", "d3_at", "a_at"))] == [(1, 2, 3, 4)]
    assert "d1 AS d1 LAST CONSUME, d1 AS d2 LAST CONSUME, d1 AS d3 LAST CONSUME, a AS a" in pattern.text
    assert sq.cedr(pattern.text, d1=DECLINED, a=APPROVED).plan == pattern.plan


def test_words_of_a_text_for_one_stream_are_one_type() -> None:
    two = sq.cedr("EVENT E WHEN SEQUENCE(D CONSUME, D AS x, F, 9) OUTPUT D.id AS d, F.id AS f", D=DECLINED, F=DECLINED)
    one = sq.cedr("EVENT E WHEN SEQUENCE(D CONSUME, D AS x, D AS F, 9) OUTPUT D.id AS d, F.id AS f", D=DECLINED)
    assert two.plan == one.plan
    # as a type of later definitions, too
    later = "EVENT P WHEN ANY(D) EVENT E WHEN ALL(F CONSUME, D AS d, P AS p, 9)"
    assert sq.cedr(later, D=DECLINED, F=DECLINED).plan == sq.cedr(later.replace("F", "D AS F"), D=DECLINED).plan


def test_patterns_over_one_stream_are_parts_of_one_pattern() -> None:
    first, then = (sq.cedr(f"EVENT P WHEN ANY(D AS {name})", D=DECLINED) for name in "xy")
    both = sq.sequence(first.alias("p").consume(), then, within=9)
    assert (
        both.plan == sq.cedr("EVENT Pattern WHEN SEQUENCE(ANY(D AS x) AS p CONSUME, ANY(D AS y), 9)", D=DECLINED).plan
    )


def test_a_scope_is_a_duration_as_everywhere() -> None:
    at = dt.datetime(2024, 5, 1)
    x, y = (
        sq.events([(at + dt.timedelta(minutes=m), None, {"v": m})]).alias(name) for m, name in ((0, "x"), (90, "y"))
    )
    for within in (dt.timedelta(hours=1, minutes=30), "1 hour 30 minutes"):
        assert [row[2:] for row in answer(sq.sequence(x, y, within=within).select("x_v", "y_v"))] == [(0, 90)]
    assert "y AS y, 90 minutes)" in sq.sequence(x, y, within=dt.timedelta(minutes=90)).text


@pytest.mark.slow
def test_verbs_nest_no_deeper_than_a_text_could() -> None:
    pattern = sq.sequence(X, Y, within=12)
    for number in range(63):
        pattern = pattern.unless(RESTARTS.alias(f"z{number}"), 5)
    with pytest.raises(PlanError, match="^pattern: operators nested more than 64 deep"):
        pattern.unless(RESTARTS.alias("z"), 5)
    assert sq.cedr(pattern.text, x=INSTALLS, y=SHUTDOWNS, **dict.fromkeys((f"z{n}" for n in range(63)), RESTARTS))
