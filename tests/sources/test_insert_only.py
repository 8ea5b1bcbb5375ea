"""Points and intervals: rows that are no events, axes, and what literal events are not."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.errors import InvalidEvent, PlanError, SourceError, TimeError, TypeMismatch, UnknownColumn

NEW_YEAR = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (5, 3, r"end not after start \(start 5, end 3\)"),
        (5, 5, r"end not after start \(start 5, end 5\)"),
        (None, 5, r"null start \(start NULL, end 5\)"),
        (None, None, r"null start \(start NULL, end NULL\)"),
    ],
)
def test_rows_that_are_no_events(start: int | None, end: int | None, reason: str) -> None:
    rows = [(1, 2, {"v": 0}), (start, end, {"v": 1})]
    with pytest.raises(InvalidEvent, match=f"a row is no event: {reason}; first: {{'v': 1}}"):
        sq.events(rows).to_arrow()
    assert sq.events(rows, invalid="drop").to_arrow().num_rows == 1


def test_a_row_without_a_time_is_no_event() -> None:
    times = pa.table({"t": pa.array([3, None], pa.int64()), "v": [0, 1]})
    with pytest.raises(InvalidEvent, match="source p: a row is no event: null start"):
        sq.points(times, "t", name="p").to_arrow()


def test_a_lifetime_on_the_timestamp_axis_is_shown_as_timestamps() -> None:
    day = dt.datetime(2024, 1, 1)
    with pytest.raises(InvalidEvent, match=r"start 2024-01-01T00:00:00.000000Z, end 2024-01-01T00:00:00.000000Z"):
        sq.events([(day, day, {"v": 1})]).to_arrow()


def test_errors() -> None:
    with pytest.raises(SourceError, match="starts and ends are all integers or all datetimes"):
        sq.events([(1, dt.datetime(2024, 1, 1), {"v": 1})])
    with pytest.raises(SourceError, match="column 'v' mixes types"):
        sq.events([(1, 2, {"v": 1}), (1, 2, {"v": "x"})])
    with pytest.raises(SourceError, match="column 'v' has only NULLs"):
        sq.events([(1, 2, {"v": None})])
    assert sq.events([(1, 2, {"v": None})], schema={"v": "double"}).columns == ["v"]
    with pytest.raises(SourceError, match="not an event; found 7"):
        sq.events([7])  # type: ignore[list-item]
    with pytest.raises(SourceError, match=r"not an event; found \(1, {'v': 1}\). Write \(start, end, {...}\)"):
        sq.events([(1, {"v": 1})])  # type: ignore[list-item]


def test_columns_that_make_no_events() -> None:
    table = pa.table({"v": [1.5], "a": [1], "Start": [1]})
    with pytest.raises(PlanError, match="intervals: start and end are the same column; found 'a'"):
        sq.intervals(table, "a", "a")
    with pytest.raises(UnknownColumn, match="points: no column 't'; there are: v, a, Start"):
        sq.points(table, "t")
    with pytest.raises(TypeMismatch, match="points: column 'v' is no time; found double"):
        sq.points(table, "v")
    with pytest.raises(PlanError, match="points: a payload column called 'Start'"):
        sq.points(table, "a")


def local(*times: dt.datetime | None) -> pa.Table:
    return pa.table({"at": pa.array(times, pa.timestamp("us"))})


def test_local_times_are_read_by_the_offset_before_a_change_of_clocks() -> None:
    """Half past two is left out in spring, and there twice in autumn."""
    spring, autumn = dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 10, 27, 2, 30)
    starts = sq.points(local(spring, autumn), "at", zone="Europe/Berlin").to_arrow().column("start").to_pylist()
    assert [start.isoformat() for start in starts] == ["2024-03-31T01:30:00+00:00", "2024-10-27T00:30:00+00:00"]


@given(st.sampled_from(sorted(available_timezones())), st.lists(st.datetimes(), min_size=1))
def test_local_times_are_those_of_python(zone: str, times: list[dt.datetime]) -> None:
    starts = sq.points(local(*times), "at", zone=zone, invalid="drop").to_arrow().column("start").cast("int64")
    expected = [(at.replace(tzinfo=ZoneInfo(zone)) - NEW_YEAR) // dt.timedelta(microseconds=1) for at in times]
    assert starts.to_pylist() == sorted(expected)


SOURCES = {
    "points": {}, "intervals": {"end": "til"}, "signal": {"key": "k"},
    "edges": {"edge": "op", "key": "k", "open": "c", "close": "d"},
    "changes": {"op": "op", "key": "k"}, "physical": {"kind": "kind", "end": "til", "new_end": "new"},
}  # fmt: skip


@pytest.mark.parametrize("verb", SOURCES)
def test_every_source_reads_local_times(verb: str) -> None:
    noon, hour = dt.datetime(2024, 5, 1, 12), dt.timedelta(hours=1)
    times = {"at": [noon, noon + hour], "til": [noon + hour] * 2, "new": [noon] * 2}
    times["til"][1] += hour
    beside = {"op": ["c", "d"], "kind": ["insert", "insert"], "k": [1, 1]}
    answers = []
    for offset, zone in ((dt.timedelta(), "Asia/Tokyo"), (9 * hour, None)):
        columns = {name: pa.array([at - offset for at in values], pa.timestamp("us")) for name, values in times.items()}
        arguments = {"start" if verb in ("intervals", "physical") else "time": "at", **SOURCES[verb]}
        source = getattr(sq, verb)(pa.table({**columns, **beside}), **arguments, zone=zone)
        answers.append(source.select("k").to_arrow())
    assert answers[0].num_rows and answers[0].equals(answers[1])


def test_a_zone_is_for_times_without_one() -> None:
    table = local(None).append_column("n", pa.array([1])).append_column("then", pa.array([NEW_YEAR]))
    for column, kind in (("n", "bigint"), ("then", "timestamp")):
        wrong = f"points: zone='UTC' is for times without a zone; column '{column}' is {kind}. Leave zone out."
        with pytest.raises(TypeMismatch, match=wrong):
            sq.points(table.select([column]), column, zone="UTC")
    with pytest.raises(
        TimeError, match="points: no such time zone; found 'Europe/Belrin'. Did you mean 'Europe/Berlin'"
    ):
        sq.points(table.select(["at"]), "at", zone="Europe/Belrin")
    with pytest.raises(InvalidEvent, match="null start"):
        sq.points(table.select(["at"]), "at", zone="Europe/Berlin").to_arrow()


def test_a_zone_is_of_the_plan() -> None:
    query = sq.points(local(dt.datetime(2024, 5, 1)), "at", zone="Europe/Berlin", name="p").shift("1 hour")
    again = sq.from_json(query.to_json(), p=query.tables["p"])
    assert again.plan == query.plan and again.to_arrow().equals(query.to_arrow())
    assert "points p, time=at, zone=Europe/Berlin" in query.explanation("logical")
    assert 'zone="Europe/Berlin"' in t.program(query).replace("'", '"')
    t.verify(query, examples=5, profile="fast")
