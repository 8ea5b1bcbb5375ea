"""The forms of a stream's windows: combined before the shuffle, or computed from their members as a user asks."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.compiler.form_hint import in_stream_form
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results, as_results, rewritten
from streamq.compiler.stages import compile_stages
from streamq.errors import PlanError
from streamq.operators.source import Source
from streamq.operators.source_policy import SourcePolicy
from streamq.operators.stream_form import StreamForm, stream_costs_an_event
from streamq.plan.folding import fold
from streamq.plan.node import Node, number_sources
from streamq.progress.generate import GeneratedCtis
from streamq.run.checkpoint import identity_of
from streamq.runtime.columnar import net_deltas
from streamq.runtime.event import WEIGHT
from streamq.runtime.kernel import Kernel
from streamq.runtime.state_fit import fit_to_state
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.table import table
from streamq.testing.trial import check
from tests.laws.cost_operators import spread

LIVES = "a bigint, b bigint, v bigint"
EMPTY = pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.string()), "v": pa.array([], pa.int64())})
GROUPS = sq.points(EMPTY, time="t", name="s").group_by("k")
HOPPING = GROUPS.hopping_window(20, 5)
MERGED = HOPPING.select(n=sq.count(), most=sq.max("v"))
COUNTED = HOPPING.select(middle=sq.median("v"))
EXPECTED = sq.Expected(rows=1_000, every=10, distinct={"k": 10, "v": 4})

LISTED = HOPPING.select(all=sq.collect("v"), load=sq.time_weighted_avg("v"), s=sq.sum("v"), m=sq.median("v"))


def kernel_of(query: sq.Stream, form: StreamForm | None = None) -> Kernel:
    """Return the only kernel of a query in a form."""
    (stage,) = compile_stages(rewritten(in_stream_form(Results((query.plan,)), form)), Options()).stages
    (hosted,) = stage.hosted
    return hosted.kernel


def behind(delay: int, plan: Node) -> Node:
    """Return a plan whose sources promise instants ``delay`` ticks after they have come."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        node = node.with_children(inputs)
        return replace(node, policy=SourcePolicy(progress=GeneratedCtis(delay))) if isinstance(node, Source) else node

    return fold(plan, visit)


@pytest.mark.parametrize("counts", [False, True])
def test_combined_costs_less_whatever_the_numbers(counts: bool) -> None:
    """A stream takes it without any expectation: a basic window has no more partial results than events."""
    for n in (1, 2, 4, 60, 512):
        for per_event in (0.001, 0.1, 0.5, 1):
            costs = stream_costs_an_event(n, per_event, counts=counts)
            assert min(costs, key=lambda form: costs[form]) is StreamForm.COMBINED


def test_explain_shows_the_costs_of_both_forms_and_the_hint() -> None:
    """500 events a hop are 10 partial results, one a key, and 40 values with their numbers, four a key."""
    merged, counted = (q.explanation("incremental", expected=EXPECTED) for q in (MERGED, COUNTED))
    assert "0.02 partial results an event, so it costs: combined 1.3, evaluated 4.3" in merged
    assert "0.08 partial results an event, so it costs: combined 12, evaluated 23" in counted
    assert "stream:" not in MERGED.explanation("incremental")
    hinted = MERGED.explanation("incremental", form="evaluated")
    assert "stream: evaluated (as asked, instead of combined (partial results of basic windows" in hinted
    assert "merge" not in hinted
    assert "stream: combined (as asked; " in MERGED.explanation("incremental", form="combined")
    assert "run by: its evaluator" in MERGED.explanation("physical", form="evaluated")
    sessions = GROUPS.session_window(5).select(n=sq.count())
    assert "stream: evaluated (its windows are not on a grid)" in sessions.explanation("incremental", expected=EXPECTED)


def test_a_form_that_no_windows_can_take_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"in the form combined; .*: spread does not merge \(its forms: evaluated\)"):
        HOPPING.select(x=spread("v")).explain(form="combined")
    with pytest.raises(PlanError, match="form is 'combined' or 'evaluated'; found 'blocks'"):
        MERGED.run(form="blocks")


@pytest.mark.parametrize(("query", "rows"), [(MERGED, 2), (COUNTED, 3)])
def test_events_of_a_basic_window_are_one_row_before_the_shuffle(query: sq.Stream, rows: int) -> None:
    """Those of one value, where values are counted; the members themselves go to the evaluator."""
    events = pa.table({"k": ["a", "a", "a", "b"], "__arg0": [1, 1, 2, 2], "__le": [1, 2, 3, 4]})
    kernel = kernel_of(query)
    assert kernel.combine(0, events).num_rows == rows
    assert kernel_of(query, StreamForm.EVALUATED).combine(0, events).num_rows == 4


@pytest.mark.parametrize("output", [OutputForm.FINAL, OutputForm.CHANGELOG])
@pytest.mark.parametrize("query", [MERGED, COUNTED, LISTED, HOPPING.top_k(2, by="v")])
def test_both_forms_give_the_same_rows(query: sq.Stream, output: OutputForm) -> None:
    """The same in each micro-batch, also of late events; random queries are held against the oracle in tests/laws.

    A changelog corrects rows that it has sent, as the CTI is behind the watermark.
    """
    starts, cut = (1, 4, 3, 8, 14, 2, 9, 22, 19, 40, 31, 60), 3
    events = [{"t": t, "k": "ab"[t % 2], "v": t * 7 % 5} for t in starts]
    options = Options(egresses=(Egress(output),), buckets=3)
    delay = 8 if output is OutputForm.CHANGELOG else 0
    root = as_results(behind(delay, number_sources(Results((query.plan,)))[0]))
    runs = [LocalRun(compile_stages(rewritten(in_stream_form(root, form)), options)) for form in StreamForm]
    tables = [pa.Table.from_pylist(events[at : at + cut], EMPTY.schema) for at in range(0, len(events), cut)]
    deltas = []
    for micro_batch in tables:
        first, other = (net_deltas(run.batch({"s": micro_batch})).to_pylist() for run in runs)
        assert sorted(map(repr, first)) == sorted(map(repr, other))
        deltas += first
    assert runs[0].totals == runs[1].totals
    assert any(row[WEIGHT] < 0 for row in deltas) == (output is OutputForm.CHANGELOG)


def test_only_windows_that_have_several_forms_take_the_one_that_is_asked_for() -> None:
    """The states of others keep their names."""
    sessions = GROUPS.session_window(5).select(n=sq.count())
    assert in_stream_form(Results((sessions.plan,)), StreamForm.EVALUATED) == Results((sessions.plan,))
    for query, form in ((MERGED, "combined"), (COUNTED, "combined"), (sessions, "")):
        identity = identity_of(compile_stages(rewritten(Results((query.plan,))), Options()))
        assert [operator.stream_form for operator in identity.operators] == [form]


@pytest.mark.parametrize("query", [MERGED, COUNTED, LISTED, HOPPING.top_k(2, by="v")])
def test_a_state_in_another_form_is_named_with_the_form_to_pass(query: sq.Stream) -> None:
    combined, evaluated = (
        identity_of(compile_stages(rewritten(in_stream_form(Results((query.plan,)), form)), Options()))
        for form in StreamForm
    )
    for stored, own, form in ((combined, evaluated, "combined"), (evaluated, combined, "evaluated")):
        (wrong,) = fit_to_state(stored, own).misfits
        assert "hopping size=20, hop=5 by k" in wrong
        assert f"has no state there: windows were computed in the form {form}, now " in wrong
        assert wrong.endswith(f"; pass form={form!r}")


@pytest.mark.parametrize("form", [None, StreamForm.EVALUATED])
@pytest.mark.parametrize("aggregate", [sq.count(), sq.median("v"), sq.collect("v")])
def test_lateness_goes_by_the_ends_of_windows_in_any_form(aggregate: sq.Aggregate, form: StreamForm | None) -> None:
    """An event behind the CTI is late only if a window has ended since: at 4 that of 2 is not, at 14 that of 7 is."""
    query = sq.points(EMPTY, time="t", name="s", progress=sq.generate(0)).group_by("k").hopping_window(20, 5)
    plan, _ = number_sources(query.select(x=aggregate).plan)
    arrival = [("s", Item("insert", t, t + 1, payload={"k": "a", "v": t})) for t in (1, 4, 3, 8, 14, 2, 7, 40)]
    check(Case(plan, tuple(arrival), (3, 3, 2)), [Execution(form=form)])


@pytest.mark.parametrize("clip", ["full", "none"])
@pytest.mark.parametrize(("size", "hop"), [(6, 2), (10, 10)])
def test_what_is_left_of_a_late_event_is_weighed_and_listed_from_the_same_instant(
    size: int, hop: int, clip: str
) -> None:
    lives = sq.intervals(table(LIVES, []), "a", "b", name="s", progress=sq.generate(0), late="adjust")
    windows = lives.hopping_window(size, hop, clip_input=clip)
    query = windows.select(load=sq.time_weighted_avg("v"), all=sq.collect("v"))
    batches = [(1, 3, 1), (9, 12, 2)], [(0, 30, 4), (4, 15, 8), (8, 9, 16)], [(31, 33, 1), (7, 40, 32)]
    answers, adjusted = [], []
    for form in StreamForm:
        plan = rewritten(in_stream_form(Results((query.plan,)), form))
        run = LocalRun(compile_stages(plan, Options(egresses=(Egress(OutputForm.FINAL),), buckets=1)))
        rows = [run.batch({"s": table(LIVES, list(batch))}) for batch in batches]
        answers.append(sorted(map(str, pa.concat_tables([*rows, run.finish()]).to_pylist())))
        adjusted.append(sum(totals["s|adjusted"] for totals in run.totals.values()))
    assert answers[0] == answers[1] and adjusted[0] == adjusted[1]
    assert adjusted[0] > 0 or size == hop
