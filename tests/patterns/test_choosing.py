"""Parameters that select events or consume them: histories made by hand, and what lateness and corrections do to them."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import CedrError
from streamq.operators import Scan
from streamq.plan.lowering import ship_runtime
from streamq.plan.node import nodes
from streamq.run.rehearsal import Rehearsal
from streamq.runtime.bare_code import dumps
from streamq.runtime.event import LE, RE
from tests.judged import answer
from tests.runtime.test_shipping import READ

Row = tuple[Any, ...]


def stream(text: str) -> sq.Stream:
    """Events ``at:name`` or ``at:name=value``."""
    items = [item.partition(":") for item in text.split()]
    named = [(int(at), *name.partition("=")[::2]) for at, _, name in items]
    columns = {"at": [at for at, _, _ in named], "n": [n for _, n, _ in named], "v": [int(v or 0) for _, _, v in named]}
    schema = pa.schema({"at": pa.int64(), "n": pa.string(), "v": pa.int64()})
    return sq.points(pa.table(columns, schema=schema), "at")


def query(pattern: str, where: str = "", **streams: str) -> sq.Stream:
    """The names of the events of a pattern's matches, with a column a variable."""
    text = f"EVENT E WHEN {pattern} {where and f'WHERE {where}'}"
    matches = sq.cedr(text, **{name: stream(events) for name, events in streams.items()})
    return matches.select(*(name for name in matches.columns if name.endswith("_n")))


def matches(pattern: str, where: str = "", **streams: str) -> list[str]:
    """Each match as the names of its events, in the order of variables, ``-`` where there is none; in alphabetical order."""
    return sorted(" ".join(n or "-" for n in row[2:]) for row in answer(query(pattern, where, **streams)))


A, B = "1:a1 2:a2 3:a3", "4:b1 6:b2"


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ("EACH REUSE", ["a1 b1", "a2 b1", "a3 b1", "a1 b2", "a2 b2", "a3 b2"]),
        ("FIRST REUSE", ["a1 b1", "a1 b2"]),
        ("LAST REUSE", ["a3 b1", "a3 b2"]),
        ("EACH CONSUME", ["a1 b1", "a2 b1", "a3 b1"]),
        ("FIRST CONSUME", ["a1 b1", "a2 b2"]),
        ("LAST CONSUME", ["a3 b1", "a2 b2"]),
    ],
)
def test_the_first_parameter_of_a_sequence(modes: str, expected: list[str]) -> None:
    """
    A  a1 1  a2 2  a3 3
    B                    b1 4        b2 6
    """
    assert matches(f"SEQUENCE(A AS x {modes}, B AS y, 10)", A=A, B=B) == sorted(expected)


@pytest.mark.parametrize("modes", ["EACH REUSE", "FIRST REUSE", "LAST REUSE", "EACH CONSUME", "LAST CONSUME"])
def test_every_event_completes_whatever_the_last_parameter_says(modes: str) -> None:
    assert matches(f"SEQUENCE(A AS x LAST, B AS y {modes}, 10)", A=A, B=B) == ["a3 b1", "a3 b2"]


@pytest.mark.parametrize(
    ("y", "x", "expected"),
    [
        ("FIRST", "FIRST", ["a1 b1 c1", "a1 b1 c2"]),
        ("LAST", "FIRST", ["a1 b2 c1", "a1 b2 c2"]),
        ("LAST", "LAST", ["a2 b2 c1", "a2 b2 c2"]),
        ("FIRST", "LAST", ["a1 b1 c1", "a1 b1 c2"]),
        ("EACH", "LAST", ["a1 b1 c1", "a2 b2 c1", "a1 b1 c2", "a2 b2 c2"]),
        ("EACH CONSUME", "LAST", ["a1 b1 c1", "a2 b2 c1"]),
        ("FIRST CONSUME", "EACH", ["a1 b1 c1", "a1 b2 c2", "a2 b2 c2"]),
        ("LAST CONSUME", "EACH CONSUME", ["a1 b2 c1", "a2 b2 c1"]),
        ("FIRST CONSUME", "FIRST CONSUME", ["a1 b1 c1", "a2 b2 c2"]),
    ],
)
def test_positions_bind_from_last_to_first(y: str, x: str, expected: list[str]) -> None:
    """
    A  a1 1        a2 3
    B        b1 2        b2 4
    C                          c1 5  c2 6
    """
    pattern = f"SEQUENCE(A AS x {x}, B AS y {y}, C AS z, 10)"
    assert matches(pattern, A="1:a1 3:a2", B="2:b1 4:b2", C="5:c1 6:c2") == sorted(expected)


def test_there_is_no_look_ahead() -> None:
    """
    A        a1 2
    B  b1 1       b2 3
    C                   c1 4
    """
    events = {"A": "2:a1", "B": "1:b1 3:b2", "C": "4:c1"}
    assert matches("SEQUENCE(A AS x, B AS y FIRST, C AS z, 10)", **events) == []
    assert matches("SEQUENCE(A AS x, B AS y LAST, C AS z, 10)", **events) == ["a1 b2 c1"]


def test_what_fits_is_within_the_scope_and_strictly_before() -> None:
    events = {"A": "0:a0 1:a1 6:a2", "B": "6:b1 11:b2"}
    assert matches("SEQUENCE(A AS x FIRST, B AS y, 5)", **events) == ["a1 b1", "a2 b2"]
    assert matches("SEQUENCE(A AS x LAST, B AS y, 5)", **events) == ["a1 b1", "a2 b2"]


def test_what_fits_fulfils_the_conditions_with_what_is_bound() -> None:
    """x is asked for its value beside z's as soon as it is bound, y is not."""
    events = {"A": "1:a1=7 2:a2=3", "B": "3:b1=9 4:b2=1", "C": "5:c1=3 6:c2=9"}
    pattern = "SEQUENCE(A AS x FIRST, B AS y LAST, C AS z, 10)"
    assert matches(pattern, **events) == ["a1 b2 c1", "a1 b2 c2"]
    assert matches(pattern, "x.v <= z.v", **events) == ["a1 b2 c2", "a2 b2 c1"]
    assert matches(pattern, "y.v >= z.v", **events) == ["a1 b1 c1", "a1 b1 c2"]
    assert matches(pattern, "x.v > y.v", **events) == ["a1 b2 c1", "a1 b2 c2"]
    # b2 is taken before it shows that nothing fits before it
    assert matches(pattern, "x.v < y.v", **events) == []
    assert matches(pattern, "x.v + y.v = z.v + 1 AND x.v < 5", **events) == ["a2 b2 c1"]


def test_correlated_events_choose_among_themselves() -> None:
    events = {"A": "1:a1=1 2:a2=2 3:a3=1", "B": "4:b1=1 5:b2=2 6:b3=1"}
    pattern = "SEQUENCE(A AS x LAST CONSUME, B AS y, 10)"
    for where in ("x.v = y.v", "CorrelationKey(v, EQUAL)"):
        assert matches(pattern, where, **events) == ["a1 b3", "a2 b2", "a3 b1"]
    assert matches(pattern, "CorrelationKey(v, UNIQUE)", **events) == ["a2 b1", "a3 b2"]


def test_equal_starts_go_by_the_payload() -> None:
    events = {"A": "1:q 1:p 1:r", "B": "4:y 4:x"}
    assert matches("SEQUENCE(A AS x FIRST CONSUME, B AS y, 10)", **events) == ["p x", "q y"]
    assert matches("SEQUENCE(A AS x LAST CONSUME, B AS y, 10)", **events) == ["q y", "r x"]


def test_of_equal_events_each_is_consumed_for_itself() -> None:
    assert matches("SEQUENCE(A AS x FIRST CONSUME, B AS y, 10)", A="1:a 1:a", B="4:b 5:c 6:d") == ["a b", "a c"]


# ATLEAST and ALL


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("EACH", "EACH", ["a1 b1", "a2 b1", "a1 b2", "a2 b2"]),
        ("FIRST", "EACH", ["a1 b1", "a1 b2", "a2 b1"]),
        ("LAST", "LAST", ["a1 b1", "a2 b1", "a2 b2"]),
        ("EACH CONSUME", "EACH", ["a1 b1", "a2 b1"]),
        ("EACH", "EACH CONSUME", ["a1 b1", "a1 b2", "a2 b2"]),
        ("EACH CONSUME", "EACH CONSUME", ["a1 b1", "a2 b2"]),
    ],
)
def test_all_takes_the_parameters_in_any_order(x: str, y: str, expected: list[str]) -> None:
    """
    A  a1 1        a2 3
    B        b1 2        b2 4
    """
    pattern = f"ALL(A AS x {x}, B AS y {y}, 10)"
    assert matches(pattern, A="1:a1 3:a2", B="2:b1 4:b2") == sorted(expected)


def test_every_order_of_the_parameters_before_is_tried() -> None:
    """
    A  a1 1              a2 4
    B        b1 2  b2 3
    C                          c1 5
    """
    events = {"A": "1:a1 4:a2", "B": "2:b1 3:b2", "C": "5:c1"}
    # behind a2, the last before c1, comes b1, the first; behind b1 comes a1
    assert matches("ALL(A AS x LAST, B AS y FIRST, C AS z, 10)", **events) == ["a1 b1 c1", "a2 b1 c1"]
    assert matches("ALL(A AS x FIRST, B AS y LAST, C AS z, 10)", **events) == ["a1 b2 c1"]


def test_atleast_chooses_among_the_parameters_too() -> None:
    """
    A  a1 1  a2 2
    B              b1 3
    C                    c1 4
    """
    events = {"A": "1:a1 2:a2", "B": "3:b1", "C": "4:c1"}
    pattern = "ATLEAST(2, A AS x LAST, B AS y, C AS z, 10)"
    assert matches(pattern, **events) == ["- b1 c1", "a2 - c1", "a2 b1 -"]
    consuming = "ATLEAST(2, A AS x LAST CONSUME, B AS y, C AS z, 10)"
    assert matches(consuming, **events) == ["- b1 c1", "a1 - c1", "a2 b1 -"]
    # a condition on an event that is not there is skipped
    events = {"A": "1:a1=1 2:a2=2", "B": "3:b1=1", "C": "4:c1=1"}
    assert matches(pattern, "x.v = y.v", **events) == ["- b1 c1", "a1 b1 -", "a2 - c1"]


def test_a_match_of_one_event_chooses_nothing() -> None:
    events = {"A": "1:a1 2:a2", "B": "3:b1"}
    for modes in ("", "FIRST CONSUME", "LAST"):
        assert matches(f"ANY(A AS x {modes}, B AS y {modes})", **events) == ["- b1", "a1 -", "a2 -"]
        assert matches(f"UNLESS(A AS x {modes}, B AS y, 2)", **events) == ["a1", "a2"][:1]
        assert matches(f"NOT(B AS y, SEQUENCE(A AS x, A AS z, 5) {modes})", **events) == ["a1 a2"]
    assert matches("ATMOST(1, A AS x LAST, B AS y FIRST, 2)", **events) == ["a1 -"]


# few of several


def test_what_was_consumed_crowds_no_more() -> None:
    """
    A  a1 1  a2 2  a3 3
    B                    b1 4
    """
    events = {"A": "1:a1 2:a2 3:a3", "B": "4:b1"}
    assert matches("ATMOST(1, A AS x, B AS y, 3)", **events) == ["a1 -"]
    assert matches("ATMOST(1, A AS x CONSUME, B AS y, 3)", **events) == ["- b1", "a1 -", "a2 -", "a3 -"]
    assert matches("ATMOST(1, A AS x, B AS y CONSUME, 2)", **events) == ["a1 -"]


def test_events_of_one_instant_crowd_each_other_until_they_are_consumed() -> None:
    assert matches("ATMOST(1, A AS x CONSUME, 3)", A="1:a1 1:a2 3:a3") == []
    assert matches("ATMOST(2, A AS x, 3)", A="1:a1 1:a2 2:a3 3:a4") == ["a1", "a2"]
    assert matches("ATMOST(2, A AS x CONSUME, 3)", A="1:a1 1:a2 2:a3 3:a4") == ["a1", "a2", "a3", "a4"]


def test_an_event_counts_once_though_it_fits_two_parameters() -> None:
    assert matches("ATMOST(1, A AS x, A AS y, 3)", A="1:a1 5:a2") == ["- a1", "- a2", "a1 -", "a2 -"]
    assert matches("ATMOST(1, A AS x, A AS y, 3)", "y.v > 1", A="1:a1=1 2:a2=2 9:a3=2") == ["- a3", "a1 -", "a3 -"]


def test_an_event_without_a_key_crowds_none() -> None:
    keys = [None, None, "k", "k"]
    stream = sq.points(pa.table({"at": [1, 2, 3, 4], "k": keys, "j": ["k"] * 4}), "at")
    key = "WHERE CorrelationKey(k, EQUAL)"
    none = stream.where(sq.col("j") > "k")
    one = sq.cedr(f"EVENT E WHEN ATMOST(1, A AS x, B AS y, 9) {key} OUTPUT x.Vs AS x, y.Vs AS y", A=stream, B=none)
    assert [row[2:] for row in answer(one)] == [(1, None), (2, None), (3, None)]
    two = sq.cedr(f"EVENT E WHEN ATMOST(1, A AS x, A AS y, 9) {key} OUTPUT x.Vs AS x, y.Vs AS y", A=stream)
    assert sorted(row[0] for row in answer(two)) == [1, 1, 2, 2, 3, 3]


# events of several parameters, and parameters that are patterns


def test_an_event_that_is_consumed_is_gone_for_all_parameters() -> None:
    """
    A  a1 1  a2 2  a3 3  a4 4
    """
    events = {"A": "1:a1 2:a2 3:a3 4:a4"}
    pattern = "SEQUENCE(A AS x LAST, A AS y LAST {}, A AS z, 10)"
    assert matches(pattern.format(""), **events) == ["a1 a2 a3", "a2 a3 a4"]
    assert matches(pattern.format("CONSUME"), **events) == ["a1 a2 a3", "a1 a3 a4"]


def test_an_event_completes_all_it_can_before_something_is_consumed() -> None:
    assert matches("ATLEAST(2, A AS x, A AS y, B AS z CONSUME, 10)", A="2:a 2:a", B="1:b") == ["- a b", "a - b"]
    assert matches("SEQUENCE(A AS x CONSUME, A AS y, 10)", "x.v = 1 AND y.v = 2", A="1:a=1 2:b=2 3:c=2") == ["a b"]


def test_parameters_of_one_type_with_different_keys() -> None:
    """Who follows whom is said by different fields, so events do not fall into groups."""
    rows = {"at": [1, 2, 3, 4], "n": ["p", "q", "r", "s"], "next": ["q", "r", "q", "x"]}
    text = "EVENT E WHEN SEQUENCE(A AS x CONSUME, A AS y CONSUME, 10) WHERE x.next = y.n OUTPUT x.n AS x, y.n AS y"
    found = sq.cedr(text, A=sq.points(pa.table(rows), "at"))
    assert answer(found) == [(2, 11, "p", "q")]
    assert [
        row[2:] for row in answer(sq.cedr(text.replace("CONSUME", "FIRST"), A=sq.points(pa.table(rows), "at")))
    ] == [
        ("p", "q"),
        ("q", "r"),
    ]


def test_patterns_are_chosen_and_consumed_as_a_whole() -> None:
    """
    A  a1 1  a2 2
    B              b1 3
    C                    c1 4  c2 5  c3 6
    """
    events = {"A": "1:a1 2:a2", "B": "3:b1", "C": "4:c1 5:c2 6:c3"}
    pattern = "SEQUENCE(SEQUENCE(A AS x, B AS y, 5) AS s FIRST CONSUME, C AS z, 5)"
    assert matches(pattern, **events) == ["a1 b1 c1", "a2 b1 c2"]
    assert matches(pattern, "s.root + 3 = z.Vs", **events) == ["a1 b1 c1", "a2 b1 c2"]
    inner = "SEQUENCE(SEQUENCE(A AS x LAST CONSUME, B AS y, 5), C AS z, 5)"
    assert matches(inner, **events) == ["a2 b1 c1", "a2 b1 c2", "a2 b1 c3"]


def test_a_match_is_negated_once_it_is_chosen() -> None:
    events = {"A": "1:a1 3:a2", "B": "5:b1", "C": "2:c1"}
    for modes, expected in (("FIRST", []), ("LAST", ["a2 b1"]), ("EACH", ["a2 b1"])):
        assert matches(f"NOT(C AS z, SEQUENCE(A AS x {modes}, B AS y, 10))", **events) == expected


def test_lifetimes_are_those_of_the_operator() -> None:
    assert answer(query("SEQUENCE(A AS x LAST, B AS y, 5)", A="1:a1 4:a2", B="6:b1")) == [(6, 9, "a2", "b1")]
    assert answer(query("ALL(A AS x LAST, B AS y, 5)", A="1:a1 6:a2", B="6:b1")) == [(6, 7, "a1", "b1")]


def test_values_come_through_as_they_are() -> None:
    nan = float("nan")
    a = pa.table({"at": [1, 2], "f": [nan, None], "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))})
    found = sq.cedr(
        "EVENT E WHEN SEQUENCE(A AS x, B AS y CONSUME, 9)", A=sq.points(a, "at"), B=stream("3:b")
    ).to_arrow()
    assert [str(v) for v in found.column("x_f").to_pylist()] == ["nan", "None"]
    assert found.column("x_m").to_pylist() == [[("k", 1)], None]


# lateness and corrections


def folded(changes: list[pa.Table]) -> list[Row]:
    """The rows that are left of a changelog: ``start, x_n, y_n``."""
    rows: list[Row] = []
    for change in (change for table in changes for change in table.to_pylist()):
        row = (change["start"], change["x_n"], change["y_n"])
        rows.append(row) if change["kind"] == "insert" else rows.remove(row)
    return sorted(rows)


def over(a: list[Any], b: list[Any], modes: str = "LAST CONSUME") -> sq.Stream:
    """Matches of items; a column a variable."""
    kinds = {"n": "string", "v": "bigint"}
    streams = {"A": sq.events(a, name="a", schema=kinds), "B": sq.events(b, name="b", schema=kinds)}
    found = sq.cedr(f"EVENT E WHEN SEQUENCE(A AS x {modes}, B AS y, 10)", **streams)
    return found.select("x_n", "y_n")


def at(start: int, name: str) -> Any:
    return sq.insert(start, start + 1, n=name)


def test_a_late_event_changes_decisions() -> None:
    """
    A  a1 1  a2 2 (late)
    B                     b1 3  b2 5
    """
    found = over([at(1, "a1"), at(2, "a2"), at(9, "a3")], [at(3, "b1"), at(5, "b2"), at(9, "b3")])
    run = Rehearsal(found, "changelog")
    early = [run.arrive(a=1, b=2), run.arrive(b=1)]
    assert folded(early) == [(3, "a1", "b1")]
    late = run.arrive(a=1)
    assert sorted((r["kind"], r["x_n"], r["y_n"]) for r in late.to_pylist()) == [
        ("insert", "a1", "b2"),
        ("insert", "a2", "b1"),
        ("retract", "a1", "b1"),
    ]
    changes = [*early, late, run.arrive(), run.finish()]
    assert folded(changes) == [(r[0], *r[2:]) for r in answer(found)] == [(3, "a2", "b1"), (5, "a1", "b2")]


def test_a_retraction_gives_back_what_was_consumed() -> None:
    """b1 has consumed a1; without it, b2 does."""
    a = [at(1, "a1"), at(9, "a2")]
    b = [at(3, "b1"), at(5, "b2"), at(9, "b3"), sq.retract(3, 4, 3, n="b1")]
    found = over(a, b)
    run = Rehearsal(found, "changelog")
    early = [run.arrive(a=2, b=3)]
    assert folded(early) == [(3, "a1", "b1")]
    changes = [*early, run.arrive(b=1)]
    assert folded(changes) == [(5, "a1", "b2")]
    assert folded([*changes, run.finish()]) == [(r[0], *r[2:]) for r in answer(found)] == [(5, "a1", "b2")]


@pytest.mark.parametrize("modes", ["FIRST", "LAST CONSUME"])
def test_every_order_of_arrival_gives_one_answer(modes: str) -> None:
    a, b = [at(s, f"a{s}") for s in (1, 2, 4)], [at(s, f"b{s}") for s in (3, 5, 6)]
    answers = set()
    for order in permutations(range(3)):
        found = over([a[i] for i in order], [b[i] for i in reversed(order)], modes)
        run = Rehearsal(found, "changelog")
        changes = [run.arrive(**{name: 1}) for _ in range(3) for name in ("a", "b")] + [run.finish()]
        answers |= {tuple(folded(changes)), tuple((r[0], *r[2:]) for r in answer(found))}
    assert len(answers) == 1 and answers.pop()


PATTERNS = (
    "SEQUENCE(A AS x FIRST, A AS y LAST CONSUME, B AS z, 4) WHERE x.v <= z.v",
    "ATLEAST(2, A AS x LAST CONSUME, B AS y FIRST, C AS z CONSUME, 3) WHERE x.v <= y.v",
    "ALL(A AS x CONSUME, SEQUENCE(B AS y LAST CONSUME, C AS z, 3) AS s FIRST CONSUME, 5) WHERE x.v = y.v AND y.v = z.v",
)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_streams_in_micro_batches_agree_with_the_oracle(pattern: str) -> None:
    names = [name for name in "ABC" if f"{name} AS" in pattern]
    found = sq.cedr(f"EVENT E WHEN {pattern}", **{name: stream("1:n") for name in names})
    intent = t.Intent(duration="point", events=6, payload={"v": [1, 2], "n": ["p", "q"]}, unit=1)
    report = t.verify(found, intent, profile="fast", examples=4)
    assert report.empty < report.cases


def test_states_go_once_no_scope_of_theirs_can_be_completed() -> None:
    """Each group is touched once: those of long ago are forgotten as the states are compacted."""
    one = query("SEQUENCE(A AS x FIRST, B AS y, 5)", "x.v = y.v", A="1:a", B="1:b")
    scan = next(n for n in nodes(one.plan) if isinstance(n, Scan))
    evaluator: Any = scan.evaluation().evaluator
    states = None
    for start in range(40):
        values = {evaluator.args[0]: start, "@source": 0, "@.x.v": start, "x.@": start, "x.v": start, "x.n": "a"}
        columns = {name: [values.get(name)] for name in (*scan.input.schema.names, evaluator.args[0])}
        _, new = evaluator.go_on(pa.table({**columns, LE: [start], RE: [start + 1]}), states, start + 1)
        states = new if states is None else pa.concat_tables([states, new])
    assert states is not None and states.num_rows == 40
    assert evaluator.latest(states, 40).column("@.x.v").to_pylist() == list(range(35, 40))


# plans


def test_plans_are_written_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"A": [(1, "a1", 1), (2, "a2", 3)], "B": [(4, "b1", 2), (5, "b2", 2)]}
    a, b = (
        sq.events([(at, at + 1, {"n": n, "v": v}) for at, n, v in several], name=name).to_points()
        for name, several in rows.items()
    )
    text = "EVENT E WHEN ALL(A AS x LAST CONSUME, B AS y, 10) WHERE x.v < y.v AND x.n <> 'c'"
    found = sq.cedr(text, A=a, B=b)
    again = sq.from_json(found.to_json(), found.tables)
    assert again.plan.digest == found.plan.digest and answer(again) == answer(found)
    found.explain()
    assert "scan ATLEAST 2(x LAST CONSUME, y EACH REUSE) within 10, x.v < y.v\n" in capsys.readouterr().out
    others = [
        text.replace("LAST", "FIRST"),
        text.replace(" CONSUME", ""),
        text.replace("10", "11"),
        text.replace("<", ">", 1),
    ]
    assert len({sq.cedr(other, A=a, B=b).plan.digest for other in [text, *others]}) == 5


def test_a_plan_is_read_by_who_has_written_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(query("SEQUENCE(A AS x FIRST, B AS y, 9)", A=A, B=B).to_json())
    read = """
import sys, streamq as sq
from streamq.compiler.plan_json import from_text, plan_from_json
print(plan_from_json(from_text(open(sys.argv[1]).read())).schema.names)
"""
    command = [sys.executable, "-c", read, str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "('x_n', 'y_n')\n", done.stderr


def test_it_reaches_workers_without_streamq(tmp_path: Path) -> None:
    ship_runtime()
    found = query("SEQUENCE(A AS x FIRST CONSUME, B AS y, 9)", "x.v < y.v", A=A, B=B)
    operator = next(n.operator for n in nodes(found.plan) if isinstance(n, Scan))
    (tmp_path / "shipped").write_bytes(dumps(operator.calling(8)))
    use = """
calling = pickle.load(open(sys.argv[1], 'rb'))
state = calling.initial()
for start, source, *values in ((1, 0, 1, 'a', 1), (2, 0, 2, 'b', 9), (4, 1, 4, 'c', 5), (5, 1, 5, 'd', 9)):
    values = values + [None] * 3 if source == 0 else [None] * 3 + values
    state, rows = calling.after(pickle.loads(pickle.dumps(state)), (start, source, *values))
    print([(row['x.n'], row['y.n']) for row in rows])
"""
    code = READ.rpartition("pickle.load")[0] + use
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "[]", "[('a', 'c')]", "[]"], done.stderr


def test_a_condition_that_only_spark_evaluates_is_refused() -> None:
    with pytest.raises(
        CedrError, match="a condition between parameters that select or consume calls what only Spark has"
    ):
        query("SEQUENCE(A AS x FIRST, B AS y, 9)", "soundex(x.n) = soundex(y.n)", A=A, B=B)
