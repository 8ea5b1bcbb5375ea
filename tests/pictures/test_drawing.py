"""Laws of pictures: what stands is the history, bars lie where lifetimes are, none overlap, and all events are in the table."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from scripts.page_pictures import drawings
from streamq import testing as t
from streamq.pictures.panel_history import (
    DELETED,
    STANDS,
    WIDTH,
    PanelHistory,
    TimeAxis,
    history_of_changes,
    section,
)
from streamq.pictures.panels import LEAST_WIDTH, bars_of, bin_edges, density_rows
from streamq.pictures.picture import DARK, LIGHT
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.stream import Stream
from streamq.time import INFINITY, TIMESTAMP, instant_ticks
from streamq.tracing.recorded_run import record_run
from tests.pictures.drawn import SVG, parsed_svg, physical_rows, table_rows

SEEDS = range(25)


def stream_of(seed: int) -> Stream:
    rows = physical_rows(seed)
    return sq.physical(rows, kind="kind", start="start", end="end", new_end="new_end", name="s")


def counted(stream: Stream) -> Stream:
    return stream.group_by("k").snapshot_window().select(n=sq.count(), last=sq.max("v"))


def events_of(history: PanelHistory) -> list[tuple[object, ...]]:
    columns = [history.payload[name].to_pylist() for name in history.payload.column_names]
    return list(zip(history.starts.tolist(), history.ends.tolist(), *columns, strict=True))


def standing(history: PanelHistory) -> Counter[tuple[object, ...]]:
    return Counter(event for event, s in zip(events_of(history), history.successors, strict=True) if s == STANDS)


def rows_of(history: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in history.to_pylist())


@pytest.mark.parametrize("seed", range(8))
def test_what_stands_is_the_history_and_what_replaces_is_like_what_it_replaced(seed: int) -> None:
    source = stream_of(seed)
    query = counted(source)
    table = source.tables["s"]
    recording = record_run(query.plan, {}, [{"s": table.slice(n, 1)} for n in range(table.num_rows)], None)
    histories = [
        history_of_changes([b.deltas[n] for b in recording.batches], [], "s", "integer", ("k",), has_points=False)
        for n in (0, len(recording.operators) - 1)
    ]
    history, answer = histories
    assert standing(history) == rows_of(t.history(physical_rows(seed)))
    assert standing(answer) == rows_of(t.history(query.to_arrow()))
    events = events_of(history)
    for event, successor in zip(events, history.successors.tolist(), strict=True):
        if successor >= 0:
            assert events[successor][0] == event[0] and events[successor][2:] == event[2:]
    # an event has a successor for each retraction that moves a finite end, and none for the one that deletes it
    rows = [row for row in physical_rows(seed).to_pylist() if row["kind"] == "retract"]
    moves = [row for row in rows if row["new_end"] > row["start"] and row["end"] is not None]
    assert (history.successors >= 0).sum() == len(moves)
    assert (history.successors == DELETED).sum() == sum(row["new_end"] == row["start"] for row in rows)
    for event, successor in zip(events_of(answer), answer.successors.tolist(), strict=True):
        assert successor < 0 or events_of(answer)[successor][2] == event[2], "a result is replaced by one of its key"


def test_what_replaces_an_event_is_the_one_most_like_it_among_those_of_its_micro_batch() -> None:
    columns = f"{LE} bigint, {RE} bigint, k string, v int, {WEIGHT} bigint"
    steps = [
        [(1, 9, "a", 1, 1), (1, 9, "b", 1, 1), (2, 4, "c", 1, 2), (5, None, "d", 1, 1), (6, 8, "d", 2, 1)],
        # a with another end, though another row of a starts as well; b with another value; a copy of c goes; d gets its end
        [
            *[(1, 9, "b", 2, 1), (1, 3, "a", 2, 1), (1, 4, "a", 1, 1), (5, 7, "d", 1, 1), (7, 9, "d", 2, 1)],
            *[(1, 9, "a", 1, -1), (1, 9, "b", 1, -1), (2, 4, "c", 1, -1), (5, None, "d", 1, -1), (6, 8, "d", 2, -1)],
        ],
        [(2, 4, "c", 1, -1)],
    ]
    tables = [t.table(columns, [(s, INFINITY if e is None else e, *rest) for s, e, *rest in rows]) for rows in steps]
    history = history_of_changes(tables, [], "s", "integer", ("k",), has_points=False)
    events = events_of(history)
    fates = {event: s if s < 0 else events[s] for event, s in zip(events, history.successors.tolist(), strict=True)}
    assert fates == {
        (1, 9, "a", 1): (1, 4, "a", 1),
        (1, 9, "b", 1): (1, 9, "b", 2),
        (2, 4, "c", 1): DELETED,
        (5, 7, "d", 1): STANDS,
        (6, 8, "d", 2): (7, 9, "d", 2),
        (1, 9, "b", 2): STANDS,
        (1, 3, "a", 2): STANDS,
        (1, 4, "a", 1): STANDS,
        (7, 9, "d", 2): STANDS,
    }
    assert history.count == 10 and history.successors.tolist().count(DELETED) == 2


def random_history(seed: int) -> PanelHistory:
    draw = random.Random(seed)
    count = draw.randrange(1, 60)
    scale = draw.choice([1, 1_000, 10**15])
    starts = np.array([draw.randrange(-50, 50) * scale for _ in range(count)])
    ends = np.array([INFINITY if draw.random() < 0.1 else s + draw.randrange(1, 40) * scale for s in starts.tolist()])
    payload = t.table("k string, v int", [(draw.choice("abc"), v) for v in range(count)])
    axis, is_gone = "integer", np.full(count, STANDS)
    return PanelHistory(
        title="s", axis=axis, payload=payload, starts=starts, ends=ends, successors=is_gone, keys=("k",),
        has_points=draw.random() < 0.2,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_bars_lie_where_lifetimes_are_and_never_overlap(seed: int) -> None:
    history = random_history(seed)
    low, high = section(np.concatenate([history.starts, history.ends]), "integer")
    _, groups = history.key_groups
    bars = bars_of(history, TimeAxis(low, high, "integer"), groups.tolist())
    assert bars is not None and [bar.event for bar in bars] == list(range(history.count))
    tick = WIDTH / (high - low)
    for bar in bars:
        start, end = int(history.starts[bar.event]), int(history.ends[bar.event])
        assert bar.left == pytest.approx(min((start - low) * tick, WIDTH - LEAST_WIDTH))
        until = bar.left if history.has_points else WIDTH if end == INFINITY else (end - low) * tick
        assert bar.right == pytest.approx(max(until, bar.left + LEAST_WIDTH))
    for lane in range(1 + max(bar.lane for bar in bars)):
        own = sorted((bar for bar in bars if bar.lane == lane), key=lambda bar: bar.left)
        assert own and len({bar.key for bar in own}) == 1
        assert all(before.right <= after.left for before, after in pairwise(own))


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_bins_count_the_events_that_live_in_them(seed: int) -> None:
    history = random_history(seed)
    axis = TimeAxis(-60 * 10**15, 90 * 10**15, "integer") if seed % 2 else TimeAxis(-60, 90, "integer")
    keys, groups = history.key_groups
    rows = density_rows(history, axis, set(keys))
    lives = list(zip(history.starts.tolist(), history.ends.tolist(), groups.tolist(), strict=True))
    for row in rows:
        for (low, high), alive in zip(pairwise(bin_edges(axis)), row.alive.tolist(), strict=True):
            assert alive == sum(start < high and end > low and keys[key] == row.title for start, end, key in lives)


def test_panels_with_bins_have_rows_for_the_same_keys() -> None:
    # the lower keys have more events, but most of those of the upper ones are in the answer
    events = [(i, i + 3, {"k": k, "v": i * (k + 1)}) for k in range(30) for i in range(150 - k)]
    picture = sq.events(events, name="s").where(lambda e: e.v % 30 < e.k).plot(key="k")
    page = ElementTree.fromstring(picture.html)
    tables = [{row[0].text or "" for row in table.iterfind(".//tbody/tr")} for table in page.iter("table")]
    keys, same = ({text for text in table if text.isdigit()} for table in tables)
    assert keys == same and len(keys) == 12 and len(tables[0] - keys) == len(tables[1] - keys) == 1


def test_every_event_has_a_bar_and_a_row_of_the_table() -> None:
    query = counted(stream_of(0))
    picture = query.plot(output="changelog")
    svg, rows = parsed_svg(picture), table_rows(picture)
    titles = [bar.findtext(f"{SVG}title") for bar in svg.iter(f"{SVG}path")]
    assert len([title for title in titles if title and title != "window"]) == len(rows)
    shown = Counter(tuple(row) for row in rows)
    for row in query.to_arrow().to_pylist():
        cells = [row["k"], str(row["n"]), str(row["last"]), str(row["start"])]
        end = "NULL" if row["end"] is None else str(row["end"])
        assert any(list(cell[:5]) == [*cells, end] for cell in shown), row


def test_a_picture_is_an_image_with_a_title_and_a_description_and_equal_ones_are_equal() -> None:
    picture = counted(stream_of(3)).plot()
    svg = parsed_svg(picture)
    identity = svg.get("id")
    assert identity is not None and svg.get("role") == "img"
    labels = {element.get("id"): element.text for element in svg if element.get("id")}
    assert list(labels) == [f"{identity}-title", f"{identity}-desc"] == (svg.get("aria-labelledby") or "").split()
    assert labels[f"{identity}-title"] == "s, and the answer of a query"
    assert all(text in (labels[f"{identity}-desc"] or "") for text in picture.description)
    rules = (svg.findtext(f"{SVG}style") or "").strip().removeprefix("@media (prefers-color-scheme: dark) {")
    assert all(rule.startswith(f"#{identity} ") for rule in rules.removesuffix(" }").strip().split("} ") if rule)
    colours = {e.get(part) for e in svg.iter() for part in ("fill", "stroke")} - {None, "none", "transparent"}
    for colour in colours:
        assert f'#{identity} [fill="{colour}"] {{' in rules and f'#{identity} [stroke="{colour}"] {{' in rules
    assert {LIGHT.text, LIGHT.line, LIGHT.ground} <= colours and DARK.text in rules
    assert counted(stream_of(3)).plot().html == picture.html
    assert counted(stream_of(3)).plot(title="other").svg.count(identity) == 0


@pytest.mark.parametrize(
    "lifetimes",
    [
        [(dt.datetime(2024, 1, 1), dt.datetime(9999, 12, 31))],
        [(dt.datetime(9999, 12, 30), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))],
        [(dt.datetime(1, 1, 1), None)],
        [(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))],
        [(dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None)],
    ],
)
def test_the_margins_of_an_axis_of_timestamps_stay_in_the_calendar(
    lifetimes: list[tuple[dt.datetime, dt.datetime | None]],
) -> None:
    picture = sq.events([(*lifetime, {"v": 1}) for lifetime in lifetimes], name="s").plot()
    texts = [*picture.description, *(text.text or "" for text in parsed_svg(picture).iter(f"{SVG}text"))]
    assert not [text for text in texts if re.search(r"\d us|\d,\d", text)]
    instants = np.array([instant_ticks(t, TIMESTAMP) for lifetime in lifetimes for t in lifetime if t])
    low, high = section(instants, TIMESTAMP)
    assert low <= instants.min() and instants.max() <= high and low < high
    beyond = section(np.append(instants, 2**60), TIMESTAMP)
    assert beyond[1] > 2**60, "data beyond the calendar has its margins"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(palette: object) -> None:
    assert isinstance(palette, type(LIGHT))
    grounds = [palette.ground, palette.band]
    texts = [(text, ground) for text in (palette.text, palette.faint, palette.cti) for ground in grounds]
    texts += [(palette.text, surface) for surface, _ in palette.keys]
    assert min(contrast(a, b) for a, b in texts) >= 4.5
    assert min(contrast(border, ground) for _, border in palette.keys for ground in grounds) >= 3
    assert len({surface for surface, _ in palette.keys}) == len(palette.keys)


@pytest.mark.slow
def test_the_pictures_of_the_page_are_those_of_its_code() -> None:
    assert [file.name for file, text in drawings() if file.read_text(encoding="utf-8") != text] == [], "make docs"
