"""The trace of a query: what each operator receives and sends, why rows are there or missing, and its page."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import streamq as sq
from streamq import col
from streamq import testing as t
from streamq.errors import ModuleFailed, PlanError, StreamqError, UnknownColumn
from streamq.run.batch.passed_batches import passed_batches
from streamq.stream import Stream
from streamq.tracing.trace import MOST_EVENTS, Trace
from streamq.tracing.trace_page import page_rows
from tests.each import each

ORDERS = sq.events(
    [
        sq.insert(1, 4, shop="A", paid=3),
        sq.insert(2, 5, shop="B", paid=4),
        sq.cti(1),
        sq.insert(6, 9, shop="A", paid=8),
        sq.retract(2, 5, 2, shop="B", paid=4),
        sq.insert(3, 4, shop="A", paid=2),
        sq.retract(6, 9, 8, shop="A", paid=8),
        sq.insert(11, None, shop="B", paid=1),
        sq.cti(11),
    ],
    name="orders",
)
TAKINGS = ORDERS.group_by("shop").tumbling_window(5).select(paid=sq.sum("paid")).where(col("paid") > 2)


def alarms(restart: int) -> Stream:
    """Machines that were not restarted within five ticks."""
    stops = sq.events([(1, 2, {"m": "a"}), (2, 3, {"m": "b"})], name="stops")
    starts = sq.events([(restart, restart + 1, {"m": "b"})], name="starts")
    text = "EVENT Down WHEN UNLESS(STOP AS x, START AS z, 5) WHERE CorrelationKey(m, EQUAL) OUTPUT x.m AS m"
    return sq.cedr(text, STOP=stops, START=starts)


@functools.cache
def traced_takings() -> Trace:
    """Traces only remember what they have computed, so tests may share one."""
    return TAKINGS.trace()


def test_what_each_operator_receives_sends_and_keeps() -> None:
    trace = traced_takings()
    assert trace.operators == ["orders", "hopping", "where"]
    of_where = [row for row in trace.table() if row["operator"] == "where"]
    assert [(row["micro_batch"], row["received"], row["inserted"], row["retracted"]) for row in of_where] == [
        (1, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 2, 2, 0), (5, 1, 0, 1),
        (6, 2, 1, 1), (7, 0, 0, 0), (8, 1, 1, 0), (9, 0, 0, 0), (10, 1, 0, 0),
    ]  # fmt: skip
    assert [row["received"] for row in trace.table() if row["operator"] == "orders"] == [1] * 9 + [0]
    assert [row["cti"] for row in trace.table() if row["operator"] == "orders"] == ["-inf"] * 2 + ["1"] * 6 + [
        "11",
        "inf",
    ]
    assert [row["state"] for row in trace.table() if row["operator"] == "hopping"][-3] > 0
    assert trace.state()["hopping"] == ("windows not final; rows reported and not final",)
    assert trace.rows("orders").to_pylist()[3] == {
        "micro_batch": 5, "change": "retract", "shop": "B", "paid": 4, "start": 2, "end": 5, "new_end": 2,
    }  # fmt: skip
    assert len(trace.received("orders")["orders"]) == 9
    assert [*trace.received()] == ["hopping"] and len(trace.received()["hopping"]) == 7
    assert t.same_history(trace.history().to_arrow(), TAKINGS.to_arrow()) is None
    assert repr(trace).splitlines()[1] == "  orders: 5 inserted, 2 retracted, at most 4 rows of state"


def test_a_row_is_there_because_of_its_events_and_one_that_is_missing_because_of_what_prevents_it() -> None:
    trace = traced_takings()
    assert [row["start"] for row in trace.causes({"shop": "A", "start": 0})] == [1, 3]
    effects = [(row["effect"], row["operator"], row["payload"]) for row in trace.effects({"shop": "A", "paid": 3})]
    assert effects == [
        ("caused", "orders", "shop=A paid=3"),
        ("caused", "hopping", "shop=A paid=5"),
        ("prevented", "hopping", "shop=A paid=2"),
        ("caused", "where", "shop=A paid=5"),
    ]
    down = alarms(4).trace()
    assert [row["m"] for row in down.history()] == ["a"]
    (missing,) = down.prevented({"m": "b"})
    assert (missing["source"], missing["event_payload"], missing["payload"]) == ("starts", "m=b", "m=b")
    assert [row["operator"] for row in down.effects(missing["event"])] == ["starts", "pattern"]
    assert (len(alarms(8).trace().prevented()), len(alarms(8).trace().history())) == (0, 2)


def test_where_chooses_the_events_to_follow_and_leaves_the_progress() -> None:
    """Takings of shop A are what they are beside those of B, in the same micro-batches."""
    both = traced_takings()
    own = [row for row in both.rows() if row["shop"] == "A"]
    ctis = [row["cti"] for row in both.table() if row["operator"] == "orders"]
    for where in ({"shop": "A"}, col("shop") == "A", lambda e: e.shop == "A", ORDERS["shop"] == "A"):
        trace = TAKINGS.trace(where=where)
        assert trace.operators == ["orders", "trace(where)", "hopping", "where"]
        assert {row["payload"].split()[0] for row in trace.events()} == {"shop=A"}
        assert trace.rows().to_pylist() == own, "with micro-batches"
        assert [row["cti"] for row in trace.table() if row["operator"] == "orders"] == ctis
    assert {row["payload"].split()[0] for row in trace.causes()} == {"shop=A"}
    chosen = TAKINGS.trace(where={"start": 3, "shop": "A"})
    assert [(row["start"], row["payload"]) for row in chosen.events()] == [(3, "shop=A paid=2")]
    assert [row["effect"] for row in chosen.effects(0)][:1] == ["caused"]
    left, right = sq.events([(1, 9, {"k": 1})], name="left"), sq.events([(0, 9, {"m": 1})], name="right")
    joined = left.join(right, where=lambda a, b: a.k == b.m)
    assert [row["source"] for row in joined.trace(where={"m": 2}).events()] == ["left"]
    with pytest.raises(UnknownColumn, match="trace: no column 'q'"):
        joined.trace(where={"q": 1})
    with pytest.raises(PlanError, match="trace: where names no column; it is {}. Leave it out to follow all events."):
        joined.trace(where={})
    nothing = TAKINGS.trace(where={"shop": "C"})
    assert repr(nothing).startswith("trace of nothing: no event of orders with shop = 'C'; there are 4 of orders\n")
    assert (
        "no event of orders with" in repr(TAKINGS.trace(where=col("shop") == "C")) and "no event" in nothing.to_html()
    )
    with pytest.raises(PlanError, match="no event 0; trace of nothing: no event of orders"):
        nothing.effects(0)


def test_a_row_with_several_sufficient_causes_has_a_minimal_set_of_them() -> None:
    left = sq.events([(1, 9, {"k": 1})], name="left")
    right = sq.events([(0, 9, {"k": 1}), (0, 10, {"k": 1}), (0, 10, {"k": 2})], name="right")
    causes = left.join(right, on="k", how="semi").trace().causes()
    assert [(row["source"], row["together"]) for row in causes] == [("left", False)]
    right_only = right.to_signal(key=["k"]).select("k").trace().causes({"k": 2})
    assert [row["together"] for row in right_only] == [False]
    either = right.select("k").set_duration(3).distinct_ids(100, id="k").trace().causes({"k": 1})
    assert {row["together"] for row in either} == {True}


def test_micro_batches_and_tables_in_other_forms_arrive_as_they_are_passed() -> None:
    rows = t.table("k string, start bigint, end bigint", [("a", 1, 5), ("b", 2, 5), ("a", 3, 4)])
    query = sq.intervals(rows, start="start", end="end", name="s").group_by("k").snapshot_window().select(n=sq.count())
    whole = query.trace().history().to_arrow()
    cuts: list[Any] = [rows, rows.to_pandas(), {"s": rows}, [rows.slice(0, 2), {"s": rows.slice(2)}], [{"s": rows}, {}]]
    assert [len(query.trace(none).received("s")["s"]) for none in ([], rows.slice(3))] == [0, 0]
    for cut in cuts:
        trace = query.trace(cut)
        assert len(trace.recording.batches) == (3 if isinstance(cut, list) else 4)
        assert t.same_history(trace.history().to_arrow(), whole) is None
    # of two sources the row of the lesser time comes first, and rows of one source stay in their order
    late = sq.events([(7, 8, {"k": "a"}), (2, 3, {"k": "a"})], name="late")
    arrived = query.select("k").union(late).trace().recording.batches[:-1]
    assert [[name for name, table in batch.arrived.items() if table.num_rows] for batch in arrived] == [["s"]] * 3 + [
        ["late"]
    ] * 2


def test_late_and_invalid_rows_are_listed_with_their_reasons() -> None:
    s = sq.events([(9, 10, {}), (1, 2, {}), (12, 3, {})], name="s", progress=sq.generate())
    trace = s.tumbling_window(4).select(n=sq.count()).trace()
    assert [(row["source"], row["reason"]) for row in trace.late] == [("s", "dropped"), ("s", "end not after start")]
    assert "1 dropped" in repr(trace) and "2 rows left out or changed by their sources" in trace.to_html()


@sq.udf("double")
def share_of_others(n: int) -> float:
    return 1 / (n - 1)


def test_an_event_without_which_the_query_fails_is_named() -> None:
    two = sq.events([(1, 2, {}), (2, 3, {})], name="s")
    trace = two.tumbling_window(10).select(n=sq.count()).select(x=share_of_others("n")).trace()
    with pytest.raises(PlanError, match="effects: without event 1 the query fails; .*ZeroDivisionError"):
        trace.effects(1)
    with pytest.warns(UserWarning, match="causes: without events 0, 1 the query fails, so what they cause"):
        assert [row["together"] for row in trace.causes()] == [True, True]
    assert set(links(trace)["failures"]) == {"0", "1"}


def test_a_minimal_set_can_spare_none_where_more_events_may_give_fewer_rows() -> None:
    weights = sq.events([(1, 2, {"w": w}) for w in (1, 2, 4, 8)], name="s")
    sums = weights.tumbling_window(10).select(t=sq.sum("w"))
    trace = sums.select(x=(col("t") == 4) | (col("t") == 5)).trace()
    assert [(row["event"], row["together"]) for row in trace.causes()] == [(1, True), (3, True)]


def test_windows_reported_before_the_bound_are_there_without_an_event() -> None:
    rows = [sq.insert(1, None, v=1), sq.insert(40, 41, v=2), sq.insert(2, 3, v=5)]
    query = sq.events(rows, name="s").where(col("v") < 3).tumbling_window(10).select(n=sq.count())
    assert [row["operator"] for row in query.trace(until=25).effects({"v": 5})] == ["s"]


def test_a_static_table_comes_in_any_micro_batch_and_never_changes() -> None:
    zones, others = (pa.table({"k": [1], "zone": [zone]}) for zone in "xy")
    query = one(1).select(k=col("v")).join_table(zones, on="k", name="zones")
    events = query.tables["s"]
    for batches, zone in (([events], "x"), ([{"s": events}, {"zones": others}], "y"), ([{}, {"s": events}], "x")):
        assert [row["zone"] for row in query.trace([{"s": b} if b is events else b for b in batches]).history()] == [
            zone
        ]
    with pytest.raises(PlanError, match="trace: two tables for zones; a static table never changes"):
        query.trace([{"s": events, "zones": zones}, {"zones": others}])


def test_names_of_operators_are_unique_whatever_a_source_is_called() -> None:
    query = sq.events([(1, 2, {"v": 1})], name="where 2").where(col("v") > 0).select("v").where(sq.start() > 0)
    assert query.trace().operators == ["where 2", "where", "select", "where 3"]


DATA = re.compile(r'<script type="application/json" class="links">(.*?)</script>', re.DOTALL)


def links(trace: Trace) -> dict[str, Any]:
    """The data that the script of a page reads; the page has no other script but its own."""
    page = trace.to_html()
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)
    (text,) = DATA.findall(page)
    read: dict[str, Any] = json.loads(text)
    return read


def one(v: Any, start: int = 5, end: int | None = 7) -> Stream:
    return sq.events([(start, end, {"v": v})], name="s")


@each(
    {
        "corrected": TAKINGS,
        "pattern": alarms(4),
        "empty": sq.events([], schema={"v": "int"}, name="s").where(col("v") > 1),
        "script": one("</script><script>alert(1)</script>\x00\ud7ff").select(**{"<b>": col("v")}),
        "NaN": one(float("nan")).group_by("v").snapshot_window().select(n=sq.count()),
        "no end": one(1, end=None).tumbling_window(3).select(n=sq.count()),
        "no payload": sq.events([(2**63 - 3, None, {})], name="s").union(sq.events([(-(2**62), 1, {})], name="r")),
        "names of changes": one(1).select(**dict.fromkeys(("kind", "micro_batch", "c0", "change", "effect"), col("v"))),
        "nested": one([{"a": [1, None]}]).where(sq.start() > 1),
    }.values()
)
def test_a_page_has_each_change_and_the_links_that_the_trace_has(query: Stream) -> None:
    trace = query.trace()
    data = links(trace)
    events = trace.events().to_pylist()
    assert len(data["caused"]) == len(events)
    for operator in trace.recording.operators:
        rows = page_rows(trace, operator)
        assert len(rows) == len(trace.rows(operator.name))
        lasting = sorted(row.place for row in rows if row.place is not None)
        assert lasting == sorted(trace.lineage.place_of_row(operator.number))
        assert [row.event is not None for row in rows if row.place is not None] == [not operator.inputs] * len(lasting)


def test_a_page_of_many_events_says_that_it_has_no_links(tmp_path: Path) -> None:
    many = sq.events([(i, i + 1, {}) for i in range(MOST_EVENTS + 1)], name="s")
    batches = passed_batches(many.plan, many.tables, None, verb="trace").batches
    assert [batch["s"].num_rows for batch in batches] == [3] * 167
    trace = many.trace([many.tables["s"]])
    assert links(trace)["hint"].startswith(f"These are {MOST_EVENTS + 1} events; causes and effects of up to 200")
    assert len(trace.effects(3)) == 1
    file = trace.save(tmp_path / "trace.html")
    assert file.read_text(encoding="utf-8") == trace.to_html()
    with pytest.raises(PlanError, match="save: a trace is saved as .html; found 'trace.svg'"):
        trace.save(tmp_path / "trace.svg")
    with pytest.raises(PlanError, match=f"causes: more than {MOST_EVENTS} events, each to be left out; found 501"):
        trace.causes()


@sq.udf("double")
def inverse_of_none(v: Any) -> Any:
    return 1 / (v - v)


ERRORS: dict[str, tuple[Any, type[StreamqError], str]] = {
    "operator": (lambda: traced_takings().rows("wher"), PlanError, "rows: no operator 'wher'; there are: orders, hopping, where"),
    "column": (lambda: traced_takings().causes({"shopp": 1}), PlanError, "causes: where has no column 'shopp'; there are: shop,"),
    "row": (lambda: traced_takings().causes({"shop": "C"}), PlanError, r"causes: no row of where with {'shop': 'C'}; it has 2"),
    "no row": (lambda: traced_takings().causes(cast(Any, 3)), PlanError, "causes: a row is chosen by values of its columns"),
    "event": (lambda: traced_takings().effects(4), PlanError, "effects: no event 4; there are 4, from 0"),
    "no event": (
        lambda: traced_takings().effects(cast(Any, None)),
        PlanError,
        "effects: no event None; there are 4, from 0",
    ),
    "its source": (
        lambda: alarms(4).trace().effects(0, source="starts"),
        PlanError,
        "effects: no event 0; source starts has others",
    ),
    "a source": (lambda: traced_takings().effects(0, source="order"), PlanError, "effects: no source 'order'; there are: orders"),
    "sources": (lambda: alarms(4).trace().effects({"m": "b"}), PlanError, "effects: an event of one of several sources"),
    "too many": (
        lambda: sq.points(pa.table({"t": range(6_000)}), time="t").trace(),
        PlanError,
        "trace: more than 5,000 rows; found 6,000",
    ),
    "fails": (lambda: one(1).select(x=inverse_of_none("v")).trace(), ModuleFailed, "ZeroDivisionError"),
    "source": (lambda: one(1).trace({"r": one(1)}), PlanError, "trace: no source 'r'; there are: s. Rows are tables by"),
}  # fmt: skip


@each(ERRORS)
def test_what_cannot_be_traced_is_a_clear_sentence(case: str) -> None:
    ask, error, sentence = ERRORS[case]
    with pytest.raises(error, match=sentence):
        ask()
