"""What a module fails for: it fails the query, naming where; or it is set aside, and nothing else is different.

The same is set aside all at once and in micro-batches, whatever their cut, for final rows and for a changelog.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import streamq as sq
from streamq import col
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import ModuleFailed
from streamq.plan.node import Node
from streamq.run.batch.answers import local_answer
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.testing.case import Case
from streamq.testing.history import history
from streamq.testing.oracle import oracle
from streamq.time import INFINITY
from tests.failing_modules import CLIPS, FAILING, FAULTS, POISON, Failing, function_of, operator_of
from tests.programs import compiled
from tests.window_modules import CASES, WINDOWS

Row = tuple[Any, ...]

EVENTS: list[tuple[int, int, dict[str, Any]]] = [
    (i, i + 2 + i % 3, {"k": "ab"[i % 2], "v": i % 4 + i // 7}) for i in range(9)
]
FEW = sq.events(EVENTS, name="s", schema={"k": "string", "v": "bigint"})

NO_VALUE = -1
"""What stands for NULL."""

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

CASES_OF_A_WINDOW = 80 if SOAK else 2
"""Each with a quarter of the modules: four cases have all, and two kinds of windows after another do; each with one output in
turn, in a soak with both."""

OUTPUTS = (OutputForm.FINAL, OutputForm.CHANGELOG)

quick = settings(
    max_examples=1,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def set_aside(rows: list[dict[str, Any]]) -> Counter[Row]:
    """Rows of a late output as comparable: of a corrected event the end is that which was known."""
    return Counter(tuple(v for name, v in row.items() if name not in ("end", "reason")) for row in rows)


def streamed(case: Case, plan: Node, output: OutputForm) -> tuple[Counter[Row], Counter[Row]]:
    """The history of a query over what arrives in micro-batches, restarted after each, and what it sets aside."""
    program = compiled(rewrite(plan).plan, output, buckets=2, late_output=True)
    live, deltas = LocalRun(program), []
    for batch in case.batches:
        deltas.append(live.batch(batch))
        live = live.restart()
    deltas.append(live.finish(case.until))
    total: Counter[Row] = Counter()
    for row in (row for table in deltas for row in table.to_pylist()):
        total[tuple(v for name, v in row.items() if name != WEIGHT)] += row[WEIGHT]
    late = [row for table in live.late for row in table.to_pylist() if row["group"] is not None]
    return Counter({row: n for row, n in total.items() if n}), set_aside(late)


def at_once(case: Case, plan: Node) -> tuple[Counter[Row], Counter[Row]]:
    answer = local_answer(plan, case.tables, until=case.until)
    deltas, late = answer.deltas, answer.aside
    rows = Counter(tuple(v for name, v in row.items() if name != WEIGHT) for row in deltas.to_pylist())
    return rows, set_aside(late.to_pylist())


def windows_of(case: Case, window: str) -> dict[Row, list[Any]]:
    """The windows of a case with a poisonous member, by the oracle: of each group and lifetime the payloads of all members."""
    windows = WINDOWS[window](case.query.group_by("k"), stamp="align", **CLIPS.get(window, {}))
    poison = sq.count(where=col("v") == POISON)
    # collect leaves NULLs out
    values = sq.collect(sq.when(col("v").is_null(), NO_VALUE).otherwise(col("v")))
    query = windows.select(bad=poison, members=values)
    rows = history(oracle(query.plan, case.tables, case.until)).to_pylist()
    found: dict[Row, list[Any]] = {}
    for row in rows:
        found.setdefault((row["k"], row["start"], INFINITY if row["end"] is None else row["end"]), []).append(row)
    # two rows windows may have one lifetime, which then does not tell which of them fails
    alone = {place: same[0] for place, same in found.items() if len(same) == 1}
    assume(all(place in alone or not any(row["bad"] for row in same) for place, same in found.items()))
    return {place: row["members"] for place, row in alone.items() if row["bad"]}


def union(queries: list[sq.Stream]) -> sq.Stream:
    first, *others = queries
    return first.union(*others) if others else first


def check_windows(case: Case, window: str, failing: list[Failing], outputs: Iterable[OutputForm]) -> None:
    """What fails is set aside in the same windows in each way to run it, and all else is as with mended modules."""
    stream = case.query
    query = union([f.over(stream, window, f.module()) for f in failing])
    mended = union([f.over(stream, window, f.mended) for f in failing])
    rows, aside = at_once(case, query.plan)
    whole, nothing = at_once(case, mended.plan)
    assert not nothing
    poisoned = windows_of(case, window)
    kinds = {f.name: f.kind for f in failing}

    expected: Counter[Row] = Counter()
    for row, n in whole.items():
        fields = dict(zip(("of", "k", "a", "b", LE, RE), row, strict=True))
        if (fields["k"], fields[LE], fields[RE]) not in poisoned:
            expected[row] += n
        elif kinds[fields["of"]] == "uda":
            expected[tuple({**fields, "a": None}.values())] += n
    assert rows == expected

    shown: dict[Row, Counter[Any]] = {}
    for (name, _, start, _, _, payload, window_start, window_end, group), n in aside.items():
        values = json.loads(payload)
        assert json.loads(group) == {"k": values["k"]} and start is not None
        members = shown.setdefault((name, values["k"], window_start, window_end), Counter())
        members[NO_VALUE if values["v"] is None else values["v"]] += n
    wanted = {
        (name, k, start, None if end == INFINITY else end): Counter(values)
        for name in kinds
        for (k, start, end), values in poisoned.items()
    }
    assert shown == wanted
    for output in outputs:
        assert streamed(case, query.plan, output) == (rows, aside), output


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_that_fail_are_set_aside_whatever_the_module(window: str) -> None:
    """Some modules a case, others in the next; the next kind of window begins with those."""
    failing = [f for f in FAILING if f.fault != "dawdles"]
    numbers = itertools.count(2 * list(WINDOWS).index(window))

    @settings(quick, max_examples=CASES_OF_A_WINDOW)
    @given(CASES.filter(lambda case: windows_of(case, window)))
    def law(case: Case) -> None:
        number = next(numbers)
        outputs = OUTPUTS if SOAK else (OUTPUTS[(number + number // 4) % 2],)
        check_windows(case, window, [f for i, f in enumerate(failing) if (i - number) % 4 == 0], outputs)

    law()


@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_a_window_that_fails_is_set_aside(number: int) -> None:
    """A sample: of each kind of window some modules, over a few events."""
    window = list(WINDOWS)[number]
    failing = [f for i, f in enumerate(FAILING) if i % 8 == number % 8]
    query = union([f.over(FEW, window, f.module()) for f in failing])
    answer = local_answer(query.plan, FEW.tables)
    deltas, late = answer.deltas, answer.aside
    assert deltas.num_rows
    assert {row["source"] for row in late.to_pylist()} == {f.name for f in failing}


def check_error(failing: Failing, windows: Iterable[str]) -> None:
    """Over each of the windows the query fails, and its error names module, window, group and the first events."""
    reason = FAULTS[failing.fault][2]
    for window in windows:
        query = failing.over(FEW, window, failing.module("fail"))
        with pytest.raises(ModuleFailed) as raised:
            query.to_arrow()
        text = str(raised.value)
        where = rf"{failing.name}: it failed; .*{re.escape(reason)}.*; window \[\S+, \S+\), k = '[ab]'; "
        assert re.fullmatch(where + r"(the first of \d events|events): (v|values|events) = .*\.", text), text
        assert raised.value.__cause__ is not None


@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_a_window_that_fails_fails_the_query_and_the_error_says_where(number: int) -> None:
    """Every module, and every window, once or twice."""
    for i, failing in enumerate(FAILING):
        if i % len(WINDOWS) == number:
            check_error(failing, [list(WINDOWS)[(number + i // len(WINDOWS)) % len(WINDOWS)]])


def meetings(*kinds: str) -> list[Any]:
    """Each kind with each fault; who waits for a module that takes too long is slow."""
    marks = {"dawdles": pytest.mark.slow}
    return [pytest.param(kind, fault, marks=marks.get(fault, ())) for kind, fault in itertools.product(kinds, FAULTS)]


@pytest.mark.slow
@pytest.mark.parametrize("failing", FAILING, ids=lambda f: f.name)
def test_every_module_names_every_window_that_it_fails_for(failing: Failing) -> None:
    check_error(failing, WINDOWS)


@pytest.mark.parametrize(("takes", "fault"), meetings("values", "series", "arrays"))
def test_an_event_that_a_function_fails_for(takes: str, fault: str) -> None:
    reason = FAULTS[fault][2]
    strict, lenient = (function_of(takes, fault, on_error) for on_error in ("fail", "quarantine"))
    with pytest.raises(ModuleFailed, match=rf"{fault}_{takes}: it failed; .*{re.escape(reason)}.*; of v = 3"):
        FEW.select(x=strict("v")).to_arrow()
    query = FEW.select("k", x=lenient("v"))
    answer = local_answer(query.plan, FEW.tables)
    deltas, late = answer.deltas, answer.aside
    rows = [(r["k"], r["x"], r[LE], r[RE]) for r in deltas.to_pylist()]
    assert sorted(rows) == sorted((e["k"], 2 * e["v"], s, t) for s, t, e in EVENTS if e["v"] != POISON)
    aside = [(r["start"], r["end"], json.loads(r["payload"])) for r in late.to_pylist()]
    assert sorted(aside, key=str) == sorted(((s, t, e) for s, t, e in EVENTS if e["v"] == POISON), key=str)


@pytest.mark.parametrize(("form", "fault"), meetings("function", "class"))
def test_an_event_that_an_operator_of_scan_fails_for(form: str, fault: str) -> None:
    strict, lenient = (operator_of(form, fault, on_error) for on_error in ("fail", "quarantine"))
    points = FEW.to_points()
    with pytest.raises(ModuleFailed, match=rf"{fault}_{form}: it failed; .*; event at \d, k = '[ab]'; v = 3"):
        points.group_by("k").scan(strict("v")).to_arrow()
    query = points.group_by("k").scan(lenient("v"))
    answer = local_answer(query.plan, FEW.tables)
    deltas, late = answer.deltas, answer.aside
    rows = [(r["k"], r["total"], r[LE]) for r in deltas.to_pylist()]
    expected, totals = [], Counter[str]()
    for start, _, event in EVENTS:
        if event["v"] != POISON:
            totals[event["k"]] += event["v"]
            expected.append((event["k"], totals[event["k"]], start))
    assert sorted(rows) == sorted(expected), "the state goes on from before the event"
    aside = [(r["start"], r["end"], json.loads(r["payload"]), json.loads(r["group"])) for r in late.to_pylist()]
    wanted = [(s, s + 1, e, {"k": e["k"]}) for s, _, e in EVENTS if e["v"] == POISON]
    assert sorted(aside, key=str) == sorted(wanted, key=str)


@pytest.mark.slow
def test_events_that_fail_are_set_aside_once_whatever_the_cut_and_the_output() -> None:
    @settings(quick, max_examples=4)
    @given(CASES)
    def law(case: Case) -> None:
        function, operator = function_of("values", "raises", "quarantine"), operator_of("class", "raises", "quarantine")
        for query in (
            case.query.select("k", x=function("v")),
            case.query.to_points().group_by("k").scan(operator("v")),
        ):
            expected = at_once(case, query.plan)
            for output in (OutputForm.FINAL, OutputForm.CHANGELOG):
                assert streamed(case, query.plan, output) == expected, output

    law()
