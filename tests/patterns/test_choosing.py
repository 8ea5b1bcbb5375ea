"""Parameters that select events or consume them: histories made by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import CedrError
from streamq.operators import Scan
from streamq.plan.lowering import ship_runtime
from streamq.plan.node import expanded, nodes
from streamq.run.rehearsal import Rehearsal
from streamq.runtime.hosts.shipping import dumps
from tests.judged import answer
from tests.patterns.chosen import matches, query, stream
from tests.runtime.test_shipping import READ

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


def test_equal_starts_go_by_the_payload() -> None:
    events = {"A": "1:q 1:p 1:r", "B": "4:y 4:x"}
    assert matches("SEQUENCE(A AS x FIRST CONSUME, B AS y, 10)", **events) == ["p x", "q y"]
    assert matches("SEQUENCE(A AS x LAST CONSUME, B AS y, 10)", **events) == ["q y", "r x"]


def test_values_come_through_as_they_are() -> None:
    nan = float("nan")
    a = pa.table({"at": [1, 2], "f": [nan, None], "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))})
    found = sq.cedr(
        "EVENT E WHEN SEQUENCE(A AS x, B AS y CONSUME, 9)", A=sq.points(a, "at"), B=stream("3:b")
    ).to_arrow()
    assert [str(v) for v in found.column("x_f").to_pylist()] == ["nan", "None"]
    assert found.column("x_m").to_pylist() == [[("k", 1)], None]


@pytest.mark.parametrize(
    "text",
    [
        "SEQUENCE(A AS x FIRST, B AS y, 9)",
        "SEQUENCE(A AS x FIRST CONSUME, B AS y, 9)",
        "SEQUENCE(A AS x LAST, B AS y, 9)",
        "SEQUENCE(A AS x FIRST, A AS z FIRST, B AS y, 9)",
        "ALL(A AS x FIRST, B AS y FIRST, 9)",
    ],
)
def test_an_event_that_is_kept_is_preferred_as_if_it_had_just_come(text: str) -> None:
    a, b = (
        sq.events([(at, at + 1, {"n": f"{name}{at}"}) for at in starts], name=name, progress=sq.generate()).to_points()
        for name, starts in {"A": (1, 3, 4, 20), "B": (5, 20)}.items()
    )
    found = sq.cedr(f"EVENT E WHEN {text}", A=a, B=b)
    run = Rehearsal(found)
    # A of 1 is before the CTI, 3, when the others come
    rows = [*run.arrive(A=2, B=1).to_pylist(), *run.arrive(A=2, B=1).to_pylist(), *run.arrive().to_pylist()]
    assert sorted(map(str, rows)) == sorted(map(str, found.to_arrow().to_pylist()))


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


@pytest.mark.slow
def test_a_plan_is_read_by_who_has_written_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(query("SEQUENCE(A AS x FIRST, B AS y, 9)", A=A, B=B).to_json())
    read = """
import sys, pyarrow as pa, streamq as sq
rows = pa.table({"at": pa.array([1]), "n": ["a"], "v": pa.array([1])})
print(tuple(sq.from_json(open(sys.argv[1]).read(), {"#1": rows, "#2": rows}).columns))
"""
    command = [sys.executable, "-c", read, str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "('x_n', 'y_n')\n", done.stderr


@pytest.mark.slow
def test_it_reaches_workers_without_streamq(tmp_path: Path) -> None:
    ship_runtime()
    found = query("SEQUENCE(A AS x FIRST CONSUME, B AS y, 9)", "x.v < y.v", A=A, B=B)
    scan = next(n for n in nodes(expanded(found.plan)) if isinstance(n, Scan))
    (tmp_path / "shipped").write_bytes(dumps(scan.evaluation.evaluator))
    use = """
import pyarrow as pa
scan, candidates = pickle.load(open(sys.argv[1], 'rb')), None
kinds = dict(zip(scan.columns, map(scan.types.get, scan.columns)))
for start, source, *values in ((1, 0, 1, 'a', 1), (2, 0, 2, 'b', 9), (4, 1, 4, 'c', 5), (5, 1, 5, 'd', 9)):
    own = dict(zip(scan.step.inputs[source], values))
    columns = {name: pa.array([own.get(name)], kind) for name, kind in kinds.items()}
    times = {scan.args[0]: [start], scan.args[1]: [source], '__le': [start], '__re': [start + 1], '__group': [0]}
    events = pa.table({**times, **columns})
    if candidates is None:
        candidates = events.slice(0, 0)
    scanned = scan.scan(events, candidates, start + 1, is_whole=True)
    gone = scanned.consumed.to_pylist()
    candidates = pa.concat_tables([candidates, scanned.waiting])
    candidates = candidates.filter(pa.array([row not in gone for row in candidates.to_pylist()], pa.bool_()))
    print([(row['x.n'], row['y.n']) for row in scanned.matches.to_pylist()])
"""
    code = READ.rpartition("pickle.load")[0] + use
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "[]", "[('a', 'c')]", "[]"], done.stderr


def test_a_condition_that_only_spark_evaluates_is_refused() -> None:
    with pytest.raises(CedrError, match="a condition between parts that select or consume calls what only Spark has"):
        query("SEQUENCE(A AS x FIRST, B AS y, 9)", "soundex(x.n) = soundex(y.n)", A=A, B=B)


def test_what_was_consumed_crowds_no_more() -> None:
    """
    A  a1 1  a2 2  a3 3
    B                    b1 4
    """
    events = {"A": "1:a1 2:a2 3:a3", "B": "4:b1"}
    assert matches("ATMOST(1, A AS x, B AS y, 3)", **events) == ["a1 -"]
    assert matches("ATMOST(1, A AS x CONSUME, B AS y, 3)", **events) == ["- b1", "a1 -", "a2 -", "a3 -"]
    assert matches("ATMOST(1, A AS x, B AS y CONSUME, 2)", **events) == ["a1 -"]
