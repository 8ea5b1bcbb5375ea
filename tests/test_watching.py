"""``run.watch()`` without Spark: what the view says of a rehearsed run, on which screen it stands, and when watching ends."""

from __future__ import annotations

import datetime as dt
import io
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import streamq as sq
from streamq.choices import RunState, Verdict
from streamq.errors import PlanError
from streamq.run.rehearsal import Rehearsal
from streamq.run.running import Run
from streamq.run.sinks import last_parquet_rows
from streamq.run.status.watching import GOES_ON, RunLook, Trail, noted_interrupt, run_view, watch_run
from streamq.runtime.arrow.values import DAY, YEAR_10000
from streamq.screens import LineScreen, NotebookScreen, Screen, TableSection, TextSection, View, live_screen

NASTY = "<script>\x1b[31m & 日本" + "x" * 10_000


def rehearsal(name: str = "cars", output: str = "changelog") -> Rehearsal:
    # the row at 9 is in a window that has been reported by then
    starts = (*range(9), 10, 11, 9, *range(12, 40))
    rows = [(s, s + 3, {"v": NASTY}) for s in starts] + [(1, 2, {"v": "late"})]
    query = sq.events(rows, name=name, progress=sq.generate(2)).tumbling_window(10).select(n=sq.count())
    return Rehearsal(query, output, clock=lambda: dt.datetime(2024, 5, 1, tzinfo=dt.UTC))


def look_at(run: Rehearsal, seconds: float = 0.0, newest: Any = (), **spark: Any) -> RunLook:
    status, last = replace(run.status, name="busy"), run.history.last
    if spark and last is not None:
        status = replace(status, history=replace(run.history, last=replace(last, spark=spark)))
    return RunLook(seconds=seconds, status=status, newest=newest)


def tables(view: View) -> dict[str, dict[Any, dict[str, Any]]]:
    """The rows of the view's tables: by the table's name, the row's name and the column."""
    return {
        section.headings[0]: {row[0]: dict(zip(section.headings[1:], row[1:], strict=True)) for row in section.rows}
        for section in view.sections
        if isinstance(section, TableSection)
    }


def test_the_view_says_what_the_reports_say() -> None:
    run = rehearsal()
    run.arrive(cars=11)
    rows = run.arrive(cars=29).to_pylist()
    run.arrive()
    durations = {"addBatch": 320, "queryPlanning": 40, "latestOffset": 9, "walCommit": 11, "triggerExecution": 400}
    look = look_at(run, newest=[rows, None, []], durationMs=durations)
    view = run_view(look, Trail().with_look(look))
    shown, metrics = tables(view), run.metrics
    assert shown["Rows"]["in this run"] == {"read": 41, "results": 4, "taken back": 1, "share of them": "25.0%"}
    assert shown["Sources"]["cars"] == {
        "rows": 41, "CTI": "37", "greatest start": "39", "lag": "2", "behind the clock": "",
        "late": 1, "invalid": 0, "repeated": 0,
    }  # fmt: skip
    ((name, operator),) = shown["Operators"].items()
    (measured,) = metrics["stages"][0]["operators"]
    assert (name, operator["state rows"]) == (measured["operator"], measured["state_rows"])
    phases = {"reading offsets": 9, "planning": 40, "processing": 320, "writing logs": 11, "other": 20}
    assert shown["The last micro-batch"]["ms"] == phases
    assert list(shown["Newest rows of result 1"][""]) == list(rows[0])
    assert "not read back" in view.text() and "result 3: none yet" in view.text()


@pytest.mark.parametrize("output", ["changelog", "final"])
def test_rates_are_those_of_the_last_micro_batches(output: str) -> None:
    """Four rows every second for a minute, then silence: the rate is four, and halves when as much time has passed again."""
    trail, run = Trail(), rehearsal(output=output)
    for second in range(9):
        run.arrive(cars=4)
        look = look_at(run, 5.0 * second)
        trail = trail.with_look(look)
        assert trail.with_look(look) is trail and len(trail.looks) <= 5
        if second:
            read, inserted, retracted = trail.a_second(look) or (0, 0, 0)
            first = trail.looks[0]
            assert read == 4 / 5
            seconds = look.seconds - first.seconds
            assert inserted * seconds == pytest.approx(look.history.inserted - first.history.inserted)
            assert retracted >= 0 and (output == "changelog" or not retracted)
    idle = look_at(run, look.seconds + (look.seconds - trail.looks[0].seconds))
    assert trail.a_second(idle) == [4 / 10, inserted / 2, retracted / 2]
    assert Trail().with_look(look).a_second(look) is None


def test_without_output_the_view_says_why_and_of_a_failed_run_the_error() -> None:
    run = rehearsal(output="final")
    run.arrive(cars=3)
    look = look_at(run)
    assert look.why.verdict == Verdict.WAITING
    view = run_view(look, Trail().with_look(look))
    assert str(look.why) in view.text() and view.line.endswith(look.why.summary)
    failed = replace(look.status, state=RunState.FAILED, reason=f"no such column {NASTY[:20]}")
    view = run_view(RunLook(seconds=0, status=failed), Trail().with_look(look))
    assert "<strong>Error</strong>" in view.html() and "no such column &lt;script&gt;" in view.html()
    run.arrive()
    flowing = look_at(run)
    assert "waiting" not in run_view(flowing, Trail().with_look(flowing)).line


def test_nasty_texts_are_escaped_cut_and_control_no_terminal() -> None:
    run = rehearsal(name=NASTY[:20])
    run.arrive()
    look = look_at(run, newest=[[{"v": NASTY, "w": None, "x": float("nan")}]])
    view = run_view(look, Trail().with_look(look))
    root = ElementTree.fromstring(view.html())
    assert not list(root.iter("script"))
    cells = ["".join(cell.itertext()) for cell in root.iter("td")]
    assert {"NULL", "nan"} <= set(cells) and max(map(len, cells)) < 400
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    console.print(view.rich())
    for text in (console.file.getvalue(), view.text()):
        assert "\x1b" not in text and "日本" in text and "10,0" in text


class RecordingScreen(Screen):
    """A screen that keeps what it shows; it is interrupted when it shows the view with a number."""

    def __init__(self, interrupted_at: int = -1):
        self.views: list[View] = []
        self.interrupted_at = interrupted_at
        self.closed = 0

    def show(self, view: View) -> None:
        self.views.append(view)
        if len(self.views) == self.interrupted_at:
            signal.raise_signal(signal.SIGINT)

    def close(self) -> None:
        self.closed += 1


def test_watching_ends_with_the_run_and_looks_no_more() -> None:
    run, screen = rehearsal(), RecordingScreen()
    steps: Iterator[Any] = iter([lambda: run.arrive(cars=5), run.arrive, run.finish])

    def step() -> bool:
        next(steps)()
        return False

    watch_run(lambda: look_at(run), screen, step)
    batches = [view.line.replace(";", ",").partition(",")[0] for view in screen.views]
    assert batches == ["busy: no micro-batch yet", "busy: batch 0", "busy: batch 1", "busy: batch 2"]
    assert "The run is over" in screen.views[-1].text() and screen.closed == 1
    with pytest.raises(ZeroDivisionError):
        watch_run(lambda: look_at(run, seconds=1 / 0), screen, step)
    assert screen.closed == 2


def test_an_interrupt_stops_watching_and_reaches_nobody_else() -> None:
    """Spark's own handler would cancel the jobs of the query; it is there again afterwards."""
    others: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: others.append(number))
    try:
        run, screen = rehearsal(), RecordingScreen(interrupted_at=2)
        with noted_interrupt() as interrupt:
            watch_run(lambda: look_at(run), screen, lambda: interrupt.wait(0 if len(screen.views) < 2 else 60))
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert [GOES_ON in view.text() for view in screen.views] == [False, False, True]
        assert others == [] and screen.closed == 1
        signal.raise_signal(signal.SIGINT)
        assert others == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_notebook_updates_one_output_and_other_streams_get_a_line_for_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[str, str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        calls.append(("display", data["text/html"]))
        return SimpleNamespace(update=lambda data, raw: calls.append(("update", data["text/html"])))

    stream = io.StringIO()
    assert live_screen(stream) is None, "neither a notebook nor a terminal"
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1), display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    screen, lines = live_screen(stream), LineScreen(stream, "first")
    assert isinstance(screen, NotebookScreen)
    for line in ("a", "a", "b"):
        view = View([TextSection(line)], line)
        screen.show(view)
        lines.show(view)
    assert [how for how, _ in calls] == ["display", "update", "update"] and "<pre>b</pre>" in calls[-1][1]
    lines.show(View([], "c\x1b[31m"))
    assert stream.getvalue() == "first\na\nb\nc [31m\n"


def test_the_last_rows_of_a_micro_batch_are_read_from_its_files(tmp_path: Path) -> None:
    def write(name: str, *values: int) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"v": pa.array(values, pa.int64())}), path, row_group_size=2)
        return path.as_uri()

    def values(number: int) -> list[int] | None:
        rows = last_parquet_rows(tmp_path.as_uri(), number, 3)
        return None if rows is None else [row["v"] for row in rows]

    assert values(0) is None and last_parquet_rows("s3://bucket/rows", 0, 3) is None
    write("streamq_batch=7/part-0.parquet", 1, 2, 3, 4)
    write("streamq_batch=7/part-1.parquet", 5)
    write("streamq_batch=7/part-2.parquet")
    assert values(7) == [3, 4, 5]
    for name, paths in {
        "8": [write("c.parquet", 6, 7)],
        "9.compact": [write("d%20e.parquet", 8), (tmp_path / "gone").as_uri()],
    }.items():
        log = tmp_path / "_spark_metadata" / name
        log.parent.mkdir(exist_ok=True)
        log.write_text("\n".join(["v1", *(json.dumps({"path": path}) for path in paths)]))
    assert values(8) == [6, 7]
    assert values(9) is None, "one of its files is no longer there"
    (tmp_path / "_spark_metadata" / "8").write_text('v1\n{"path":"fi')
    assert values(8) is None, "the log is damaged"


def test_instants_that_python_or_nanoseconds_cannot_hold_are_read_from_files(tmp_path: Path) -> None:
    far = pa.array([dt.datetime(2300, 1, 1), None], pa.timestamp("us"))
    beyond = pa.array([YEAR_10000 * DAY], pa.timestamp("us"))
    folder = tmp_path / "a#b 50%41" / "streamq_batch=1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"v": far}), folder / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"v": beyond}), folder / "b.parquet")
    rows = last_parquet_rows(f"file:{folder.parent}", 1, 5)
    assert rows == [{"v": far[0].as_py()}, {"v": None}, {"v": "+10000-01-01 00:00:00"}]


@pytest.mark.parametrize("every", ["1s", None, True, 0, float("nan")])
def test_the_time_between_two_looks_is_a_positive_number_of_seconds(every: Any) -> None:
    with pytest.raises(PlanError, match=f"watch: every is a positive number of seconds; found {every!r}"):
        Run.watch(Run.__new__(Run), every=every)
