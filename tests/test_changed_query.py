"""A query that changes goes on from its checkpoint where its operators find their state; else it says which does not, and why."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.compiler.options import Placement
from streamq.errors import CheckpointError, PlanError
from streamq.policies import Level
from streamq.testing.history import net, same_history
from tests.algebra import QUERIES, SCHEMA, SIZES, WINDOWS, intervals
from tests.changed_query import ChangingRun, arguments, outputs_in_turns

COLUMNS = ["start", "end", "k", "v", "w"]
ROWS = [
    (1, 3, "x", 1, 7), (4, 6, "y", 5, 8), (8, 11, "x", 2, 9), (9, 12, "y", 7, 7), (14, 15, "x", 3, 6), (17, 22, "y", 4, 5),
    (26, 30, "x", 6, 4), (27, 29, "y", 2, 3), (36, 38, "x", 9, 2), (41, 42, "y", 8, 1),
]  # fmt: skip
Query = Callable[[sq.Stream], sq.Stream]
SOAK = bool(os.environ.get("STREAMQ_SOAK"))


def rows(first: int, end: int, *leave_out: str) -> pa.Table:
    """Some rows as a table, without some columns."""
    columns = dict(zip(COLUMNS, zip(*ROWS, strict=True), strict=True))
    return pa.table({n: list(values) for n, values in columns.items() if n not in leave_out}).slice(first, end - first)


def source(name: str = "s", *leave_out: str, **policy: Any) -> sq.Stream:
    policy = {"progress": sq.generate(3), **policy}
    return sq.intervals(rows(0, 0, *leave_out), "start", "end", name=name, **policy)


S = source()


def counted(s: sq.Stream, size: int = 10) -> sq.Stream:
    return s.group_by("k").tumbling_window(size).select(n=sq.count(), most=sq.max("v"))


def totals(s: sq.Stream) -> sq.Stream:
    return counted(s).snapshot_window().select(n=sq.sum("n"))


def sessions(s: sq.Stream) -> sq.Stream:
    return s.group_by("k").session_window(4).select(n=sq.sum("v"))


def join(s: sq.Stream) -> sq.Stream:
    return s.join(s.shift(2).where(sq.col("v") > 1), on="k", suffixes=("", "_r")).select("k", "v", "v_r")


STATEFUL: dict[str, Query] = {
    "windows": counted,
    "sessions": sessions,
    "join": join,
    "snapshot over windows": lambda s: counted(s, 4).snapshot_window().select(n=sq.sum("n"), most=sq.max("most")),
    "median": lambda s: s.group_by("k").tumbling_window(6).select(n=sq.median("v")),
    "union": lambda s: counted(s).select("n").union(sessions(s).select("n")),
}
ABOVE: dict[str, Query] = {
    # one that may fail, so that it stays above: compare test_a_filter_that_went_below_a_join_stays
    "a filter": lambda q: q.where(sq.col(q.columns[-1]) * 2 > 2),
    "a select": lambda q: q.with_columns(x=sq.functions.sqrt(sq.col(q.columns[-1]) * 2), more=sq.lit(1)),
    "a change of lifetimes": lambda q: q.shift(5),
}


def deltas_after_change(before: list[sq.Stream], now: list[sq.Stream], **how: Any) -> list[list[pa.Table]]:
    """Run queries that change, and the later ones from the start; return what both send after the change."""
    changing, steady = ChangingRun(*before, **how), ChangingRun(*now, **how)
    for at in (0, 2):
        changing.batch({"s": rows(at, at + 2)})
        steady.batch({"s": rows(at, at + 2)})
    changing.changed(*now, **how)
    sent: list[list[pa.Table]] = []
    for run in (changing, steady):
        parts = [run.batch({"s": rows(at, at + 2)}) for at in (4, 6, 8)]
        sent.append([net(list(tables)) for tables in zip(*parts, run.finish(), strict=True)])
    return sent


def rest(run: ChangingRun, first: int, number: int = 0, *leave_out: str) -> pa.Table:
    """Run the rows from ``first`` on in one micro-batch, and the end; return what a result has then sent."""
    return net([run.batch({"s": rows(first, 10, *leave_out)})[number], run.finish()[number]])


@pytest.mark.slow
@pytest.mark.parametrize("output", ["final", "changelog"])
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("stateful", STATEFUL)
def test_what_stands_above_the_last_operator_with_state_may_change(stateful: str, above: str, output: str) -> None:
    """It then sends what the later query would have sent. There or back again, in turn: in a soak both."""
    plain = STATEFUL[stateful](S)
    changed = ABOVE[above](plain)
    turn = list(STATEFUL).index(stateful) + list(ABOVE).index(above)
    there_and_back = ((plain, changed), (changed, plain))
    for before, now in there_and_back if SOAK or output == "changelog" else there_and_back[turn % 2 :][:1]:
        if output == "changelog":
            ChangingRun(before, output=output).changed(now, output=output)
            continue
        after, steady = deltas_after_change([before], [now], output=output)
        assert [same_history(a, b) for a, b in zip(after, steady, strict=True)] == [None]


POINTS = S.to_points()
NO_MORE = "has no state there: behind where k == 'x', now nothing more"
LESS: dict[str, tuple[sq.Stream, sq.Stream, str | None]] = {
    "a filter on keys above windows": (counted(POINTS), counted(POINTS).where(sq.col("k") == "x"), NO_MORE),
    "a filter on keys above medians": (
        STATEFUL["median"](POINTS),
        STATEFUL["median"](POINTS).where(sq.col("k") == "x"),
        NO_MORE,
    ),
    "a filter that went below a join": (
        join(S),
        join(S).where(sq.col("v") > 1),
        "inner join on k has no state there: input 1 behind where v > 1",
    ),
    "an aggregate less": (counted(S), counted(S).select("k", "n"), None),
}
"""A query, one that needs less than it, and why the state of the latter is none of the former."""


@pytest.mark.parametrize("name", LESS)
def test_what_needs_less_goes_on_and_not_back(name: str) -> None:
    query, less, wrong = LESS[name]
    after, steady = deltas_after_change([query], [less])
    assert same_history(after[0], steady[0]) is None and after[0].num_rows
    if wrong:
        with pytest.raises(CheckpointError, match=wrong):
            ChangingRun(less).changed(query)


@pytest.mark.parametrize("query", [counted, sessions, STATEFUL["snapshot over windows"]])
def test_a_column_more_that_no_state_reads(query: Query) -> None:
    """Filters of the source, with lateness judged in a stage of its own or not, and before the operator."""
    less = source("s", "w")
    changing, steady = ChangingRun(query(less)), ChangingRun(query(S))
    changing.batch({"s": rows(0, 5, "w")})
    steady.batch({"s": rows(0, 5)})
    changing.changed(query(S.with_columns(more=sq.col("w") + 1)))
    sent = [rest(run, 5) for run in (changing, steady)]
    assert same_history(*sent) is None and sent[0].num_rows


def test_a_column_that_state_reads_is_named() -> None:
    with pytest.raises(
        CheckpointError, match=r"run: the checkpoint cannot go on with this query; .*join .* has no state"
    ):
        ChangingRun(join(S)).changed(S.join(S.shift(2), on="k", suffixes=("", "_r")).select("k", "v", "w_r"))


def test_results_begin_and_end() -> None:
    """One more over what is there; one less, whose state is dropped; the stages stay as many."""
    both = [totals(S), sessions(S)]
    more = [*both, sessions(S).where(sq.col("n") > 2)]
    after, steady = deltas_after_change(both, more)
    assert [same_history(a, b) for a, b in zip(after, steady, strict=True)] == [None] * 3
    after, steady = deltas_after_change(both, both[1:])
    assert same_history(after[0], steady[0]) is None
    run = ChangingRun(*both)
    assert run.fit(*both[::-1]).new_results == () and run.fit(*more).new_results == (2,)
    run.batch({"s": rows(0, 4)})
    assert {name.partition(":")[0] for name in run.scopes} == {"ingress", "window", "snapshot", "session"}
    run.changed(sessions(S)).batch({"s": rows(4, 6)})
    assert {name.partition(":")[0] for name in run.scopes} == {"ingress", "session"}
    assert run.identity.stages == 3 and [len(stage.hosted) for stage in run.run.program.stages] == [2, 0, 0]


def test_events_are_spread_as_in_the_checkpoint() -> None:
    """By what read them one by one when the checkpoint began; what reads them in another way later has a stage behind."""
    by_key = [sessions(S), join(S), totals(S)]
    others = [*by_key, S.group_by("w").session_window(4).select(n=sq.count())]
    for before, now, stages in ((by_key, others, [3, 2, 1]), (others, by_key, [1, 3, 1])):
        after, steady = deltas_after_change(before, now)
        assert [same_history(a, b) for a, b in zip(after[:3], steady[:3], strict=True)] == [None] * 3
        run = ChangingRun(*before).changed(*now)
        assert [len(stage.hosted) for stage in run.run.program.stages] == stages


def test_columns_by_which_events_are_spread_may_go_and_have_any_name() -> None:
    """A column that nobody reads any more is gone; the name of another is that of a scope that holds rows back."""
    odd = rows(0, 0).rename_columns(["start", "end", "a/held b", "v", "w"])
    s = sq.intervals(odd, "start", "end", name="s", progress=sq.generate(9))
    both = [s.group_by("a/held b").session_window(4).select(n=sq.count()), s.left_anti_join(s.shift(2), on="a/held b")]
    sent = []
    for changes in (True, False):
        run = ChangingRun(*both, output="changelog", level=Level(5))
        run.batch({"s": rows(0, 4).rename_columns(odd.column_names)})
        if changes:
            run.changed(*both, both[0].where(sq.col("n") > 0), output="changelog", level=Level(5))
        sent.append([run.batch({"s": rows(4, 8).rename_columns(odd.column_names)}), run.finish()])
    changed, steady = ([net([batch[n] for batch in parts]) for n in range(2)] for parts in sent)
    assert [same_history(a, b) for a, b in zip(changed, steady, strict=True)] == [None] * 2
    window = S.group_by("w").tumbling_window(10).select(n=sq.count())
    run = ChangingRun(sessions(S), join(S), window)
    run.batch({"s": rows(0, 6)})
    without = source("s", "k").group_by("w").tumbling_window(10).select(n=sq.count())
    run.changed(without)
    anew = ChangingRun(without)
    anew.batch({"s": rows(0, 6, "k")})
    assert same_history(rest(run, 6, 0, "k"), rest(anew, 6, 0, "k")) is None


@pytest.mark.parametrize(
    ("phases", "number"),
    [
        ([[counted(S), sessions(S)], [counted(S), sessions(S), counted(S, 5)]], 2),
        ([[counted(S), sessions(S)], [counted(S)], [counted(S), sessions(S)]], 1),
        ([[totals(S), sessions(S)], [sessions(S)], [totals(S), sessions(S)]], 0),
    ],
)
def test_a_result_that_begins_has_the_rows_from_then_on(phases: list[list[sq.Stream]], number: int) -> None:
    """Nothing of before if it had ended, in buckets without rows in between either, where nothing has run since."""
    run = ChangingRun(*phases[0])
    run.batch({"s": rows(0, 6)})
    for queries in phases[1:-1]:
        run.changed(*queries).batch({"s": rows(6, 7)})
    assert run.fit(*phases[-1]).new_results == (number,)
    run.changed(*phases[-1])
    assert same_history(rest(run, 7, number), rest(ChangingRun(phases[-1][number]), 7)) is None


def test_operators_stay_in_stages_of_their_own_if_the_checkpoint_has_them_there() -> None:
    """A checkpoint may be of a version in which no stage was shared: the query, changed above, goes on in as many stages."""
    chained = counted(S, 4).group_by("k").tumbling_window(8).select(n=sq.sum("n"))
    shared = ChangingRun(chained)
    assert [len(stage.hosted) for stage in shared.run.program.stages] == [2]
    names = [operator.name for operator in shared.identity.operators]
    placement = Placement(by_name={name: place for place, name in enumerate(names)}, stages=2, sources=("s",))
    apart = ChangingRun(chained, placement=placement)
    assert [len(stage.hosted) for stage in apart.run.program.stages] == [1, 1]
    sent = []
    for run in (apart, shared):
        run.batch({"s": rows(0, 4)})
        run.changed(chained.where(sq.col("n") > 1))
        sent.append(rest(run, 4))
    assert [len(run.run.program.stages) for run in (apart, shared)] == [2, 1]
    assert same_history(*sent) is None and sent[0].num_rows


def test_a_step_that_spark_must_compute_is_another_operators_state() -> None:
    """Between two operators that shared a stage it changes what the upper one reads, and with that its state."""
    run = ChangingRun(counted(S, 4).group_by("k").tumbling_window(8).select(n=sq.sum("n")))
    narrowed = (
        counted(S, 4).with_columns(n=sq.col("n").cast("int")).group_by("k").tumbling_window(8).select(n=sq.sum("n"))
    )
    with pytest.raises(CheckpointError, match=r"Spark has fixed 1 stage\(s\), and hopping size=8, .* would need 2"):
        run.changed(narrowed)


def test_an_operator_less_on_top_leaves_those_below_as_they_are() -> None:
    """Rows of the window come out from then on, as of a result that begins."""
    run = ChangingRun(counted(S).snapshot_window().select(n=sq.sum("n"), most=sq.max("most")))
    run.batch({"s": rows(0, 4)})
    assert run.fit(counted(S)).new_results == (0,)
    steady = ChangingRun(counted(S))
    steady.batch({"s": rows(0, 4)})
    run.changed(counted(S))
    assert same_history(rest(run, 4), rest(steady, 4)) is None


def test_the_order_of_sources_is_that_of_the_checkpoint() -> None:
    a, b = source("a"), source("b")
    run = ChangingRun(sessions(a.union(b)))
    changed = run.changed(sessions(a.union(b)).where(sq.col("n") > 1))
    assert changed.identity.sources == ("a", "b")
    other = b.select("k", "v").snapshot_window().select(n=sq.count())
    both = ChangingRun(sessions(a), other)
    assert both.changed(other, sessions(a)).identity.sources == ("a", "b")


TURNS = [turn for turn in itertools.product(("final", "changelog", "early"), repeat=3) if turn[0] != turn[1] != turn[2]]


def merging(window: Callable[[Any], Any], **aggregates: Any) -> Callable[..., Any]:
    return lambda s, t, z: window(s.group_by("k")).select(n=sq.count(), **aggregates)


OPERATORS = {
    **{name: query for name, query in QUERIES.items() if not name.endswith((": aggregates", "end: top_k"))},
    **{f"{name}, merged": merging(window, m=sq.max("v")) for name, window in WINDOWS.items()},
    "medians": merging(WINDOWS["hopping"], v=sq.median("v")),
    "ends": merging(lambda s: s.hopping_window(7, 3, clip_input="none"), longest=sq.max(sq.duration())),
}


def edges(seed: int) -> pa.Table:
    """Events as edges, some of which never end."""
    rows: list[dict[str, Any]] = []
    for number, event in enumerate(intervals(seed, 12).to_pylist()):
        for edge, at in (("start", event.pop("from")), ("end", event.pop("to"))):
            rows += [{"at": at, "edge": edge, "number": number, **event}] if at is not None else []
    columns = [("at", pa.int64()), ("edge", pa.string()), ("number", pa.int64()), *(SCHEMA.field(n) for n in "kvw")]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["at"]), schema=pa.schema(columns))


def drawn_query(name: str, seed: int, *, moving: bool) -> tuple[sq.Stream, dict[str, pa.Table]]:
    """An operator over two streams, whose ends may move, and their rows."""
    tables = {n: edges(2 * seed + i) if moving else intervals(2 * seed + i, 24) for i, n in enumerate("st")}
    if moving:
        arguments = {"time": "at", "edge": "edge", "key": "number"}
        streams = [sq.edges(t.slice(0, 0), name=n, progress=sq.generate(4), **arguments) for n, t in tables.items()]
    else:
        rows = SCHEMA.empty_table()
        streams = [sq.intervals(rows, "from", "to", name=n, progress=sq.generate(4)) for n in tables]
    return OPERATORS[name](*(stream.select("k", "v", "w") for stream in streams), SIZES), tables


def check_goes_on(name: str, forms: Sequence[str], seed: int, *, moving: bool) -> None:
    """Check that an operator whose rows have other forms in turn goes on, and finds its state below something else."""
    query, tables = drawn_query(name, seed, moving=moving)
    changelog, final, first = (arguments((form,)) for form in ("changelog", "final", forms[0]))
    if ChangingRun(query, **changelog).fit(query, **final).misfits:
        # final rows are those of an operator of their own, or of another one
        assert ChangingRun(query, **changelog).identity.names != ChangingRun(query, **final).identity.names
        forms = [form if form != "final" else "early" if "changelog" in forms[:2] else "changelog" for form in forms]
        first = arguments((forms[0],))
    changing = ChangingRun(query, **first)
    above = query.with_columns(more=sq.lit(1)).where(sq.col("more") > 0)
    assert changing.fit(above, **first) == changing.fit(query, **first)
    assert outputs_in_turns([query], tables, [(form,) for form in forms], {"sizes": SIZES}) == ["goes on"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_goes_on_with_rows_in_another_form(name: str) -> None:
    """It has then reported what a run in that form has. In turn: the forms, and streams whose ends move; in a soak all.

    It also finds its state below something else, whatever its code.
    """
    turn = list(OPERATORS).index(name)
    cases = list(itertools.product(TURNS, (True, False)))
    for number, (forms, moving) in enumerate(cases if SOAK else [(TURNS[turn % len(TURNS)], turn // 2 % 2 == 0)]):
        check_goes_on(name, forms, turn + number, moving=moving)


def check_forms(name: str, *forms: str) -> None:
    for seed in range(4):
        check_goes_on(name, forms, seed, moving=False)


def test_an_operator_that_reads_final_rows_does_not_go_on_from_rows_that_are_taken_back() -> None:
    query = STATEFUL["snapshot over windows"](S)
    wrong = "snapshot .* has no state there: reads rows that may be taken back, now nothing more"
    with pytest.raises(CheckpointError, match=wrong):
        ChangingRun(query, output="changelog").changed(query)


def test_levels_policies_and_late_rows_may_change() -> None:
    """A late output needs a stage of its own for judging; once it is there, it stays."""
    for level in (Level(None), Level(3), Level(0, 5)):
        run = ChangingRun(counted(S), output="changelog")
        run.batch({"s": rows(0, 4)})
        run.changed(counted(source(progress=sq.generate(1), late="adjust")), output="changelog", level=level)
        run.batch({"s": rows(4, 6)})
    late = ChangingRun(counted(S), late_output=True)
    late.batch({"s": rows(0, 4)})
    assert late.changed(counted(S)).identity.stages == 2
    wrong = r"Spark has fixed 1 stage\(s\), and hopping size=10, hop=10 .* would need 2"
    with pytest.raises(CheckpointError, match=wrong):
        ChangingRun(counted(S)).changed(counted(S), late_output=True)


def test_rows_held_back_with_other_columns_do_not_go_on() -> None:
    query = STATEFUL["union"]
    held = ChangingRun(query(source("s", "w")), output="changelog", level=Level(5))
    with pytest.raises(CheckpointError, match="holds rows back, with other columns than now"):
        held.changed(query(S), output="changelog")


def test_rows_held_back_with_all_columns_go_on_beside_rows_with_those_that_are_read() -> None:
    query, sent = S.select("v"), []
    for level in (Level(None), Level(0)):
        run, parts = ChangingRun(query, output="changelog", level=level, buckets=1), []
        for number in range(4):
            [table] = run.batch({"s": rows(2 * number, 2 * number + 2)})
            parts.append(table)
            if number == 1:
                run = run.changed(query, output="changelog", buckets=1)
        sent.append(net([*parts, *run.finish()]))
        assert parts[0].num_rows == 0 or level == Level(0)
    assert same_history(*sent) is None


@pytest.mark.parametrize(
    ("now", "wrong"),
    [
        (counted(S, 20), r"hopping size=20, .* has no state there: hopping size=10, .*, now hopping size=20"),
        (counted(S.where(sq.col("v") > 1)), "has no state there: nothing more, now behind where v > 1"),
        (counted(S.with_columns(v=sq.col("v") * 2)), r"has no state there: .*, now .*behind select"),
        (counted(S.with_columns(k=sq.col("w"))), "reads k string, now reads k bigint"),
        (S.group_by("k").count_window(2).select(n=sq.count()), "count .* has no state there: it is new"),
        (counted(source("other")), r"Spark reads the sources s there, now other"),
        (counted(S).snapshot_window().select(n=sq.count()), r"Spark has fixed 1 stage\(s\), and snapshot.* would need 2"),
        (S.where(sq.col("v") > 1), "ingress of s: judge lateness has no state there: it is new"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_the_reason(now: sq.Stream, wrong: str) -> None:
    with pytest.raises(CheckpointError, match=wrong) as refused:
        ChangingRun(counted(S)).changed(now)
    assert str(refused.value).startswith("run: the checkpoint cannot go on with this query; ")
    assert str(refused.value).endswith("sq.migrate(query, checkpoint, to=...) computes its state anew from the sources, up to "
                                       "where this one stands.")  # fmt: skip


def test_a_checkpoint_has_its_buckets_for_life() -> None:
    """A run is refused before it starts; a writeStream by the state that it finds."""
    run = ChangingRun(counted(S))
    run.batch({"s": rows(0, 3)})
    wrong = "its groups are in 2 buckets, now 4: pass buckets=2"
    with pytest.raises(CheckpointError, match=f"run: .*{wrong}.* sq.migrate"):
        run.changed(counted(S), buckets=4)
    _, program, identity = run._fit([counted(S)], "final", False, {"buckets": 4})
    others = replace(run.run.restart(), program=program, identity=replace(identity, number=0))
    with pytest.raises(CheckpointError, match=f"query: .*{wrong}"):
        others.batch({"s": rows(3, 6)})


def modules(code: Any, **version: Any) -> list[sq.Stream]:
    """A query per kind of module, whose state is of the module, or behind it."""
    points = S.to_points()
    total = sq.uda("bigint", name="total", **version)(lambda values: code(int(values.sum())))
    rises = sq.udo("n bigint", name="rises", **version)(lambda values: [code(int(values.max()))])
    run = sq.udso("n bigint", initial=0, name="run", **version)(lambda state, v: (state + v, [code(state)]))
    mapped = sq.udf("bigint", name="mapped", **version)(lambda v: code(v))
    return [
        S.group_by("k").tumbling_window(10).select(n=total("v")),
        S.group_by("k").tumbling_window(10).select(rises("v")),
        points.group_by("k").scan(run("v")),
        S.with_columns(v=mapped("v")).group_by("k").tumbling_window(10).select(n=sq.sum("v")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_changed_module_goes_on_if_its_author_vouches_for_it(number: int) -> None:
    before, now = modules(lambda value: value)[number], modules(lambda value: value + 1)[number]
    with pytest.raises(
        CheckpointError, match=r"the code of module \w+ in .* has changed \(with version=2, compatible_with=1"
    ):
        ChangingRun(before).changed(now)
    vouched = modules(lambda value: value + 1, version=2, compatible_with=1)[number]
    run, steady, anew = ChangingRun(before), ChangingRun(vouched), ChangingRun(vouched)
    first = rows(0, 4)
    run.batch({"s": first})
    if number == 3:
        # the sums hold these events as the earlier code made them, which adds nothing
        first = first.set_column(COLUMNS.index("v"), "v", pc.subtract(first.column("v"), 1))
    steady.batch({"s": first})
    run.changed(vouched)
    parts = [one.batch({"s": rows(4, 10)})[0] for one in (run, steady, anew)]
    third = modules(lambda value: value + 2, version=3, compatible_with=1)[number]
    with pytest.raises(CheckpointError, match=r"has changed \(with version=3, compatible_with=2"):
        run.changed(third)
    assert run.fit(modules(lambda value: value + 2, version=3, compatible_with=2)[number]).misfits == ()
    sent = [net([part, one.finish()[0]]) for part, one in zip(parts, (run, steady, anew), strict=True)]
    assert same_history(sent[0], sent[1]) is None and sent[0].num_rows
    assert same_history(sent[2], sent[1]) is not None, "a run without that state has other rows"


def test_queries_that_have_seen_no_row_are_passed_over() -> None:
    """A query goes on from one that has had an empty micro-batch only, whose state is that of the query before."""
    codes = [modules(lambda value: value)[0]]
    codes += [modules(lambda value, of=n: value, version=n, compatible_with=n - 1)[0] for n in (2, 3)]
    run, steady = ChangingRun(codes[0]), ChangingRun(codes[2])
    run.batch({"s": rows(0, 4)})
    steady.batch({"s": rows(0, 4)})
    for query in codes[1:]:
        run.changed(query).batch({})
    assert same_history(rest(run, 4), rest(steady, 4)) is None
    both, one = [counted(S), sessions(S)], [counted(S)]
    run = ChangingRun(*both)
    run.batch({"s": rows(0, 6)})
    run.changed(*one).batch({})
    assert run.fit(*both).new_results == (1,)
    run.changed(*both)
    assert same_history(rest(run, 6, 1), rest(ChangingRun(both[1]), 6)) is None


def test_a_module_above_all_state_may_change() -> None:
    def query(code: Any) -> sq.Stream:
        return counted(S).select(n=sq.udf("bigint", name="shown")(code)("n"))

    assert ChangingRun(query(lambda n: n)).fit(query(lambda n: n + 1)).misfits == ()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"version": 0}, "uda: version is a whole number of at least 1; found 0"),
        ({"version": True}, "uda: version is a whole number of at least 1; found True"),
        ({"compatible_with": 1}, "uda: compatible_with is an earlier version; found 1, version=1. Say version=2"),
        ({"version": 3, "compatible_with": "1"}, "uda: compatible_with is an earlier version; found '1', version=3"),
    ],
)
def test_versions_are_whole_numbers(version: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        sq.uda("double", **version)
