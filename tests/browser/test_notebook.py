"""A notebook with streamq's values, executed and rendered by Jupyter's own tools, as a reader sees it in a browser."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from streamq.run.status.watching import GOES_ON
from tests.browser.chromium import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).parents[2]

CELLS = [
    """
import streamq as sq
cars = sq.events([(i, i + 4, {"booth": "ab"[i % 2]}) for i in range(9)], name="cars", progress=sq.generate(3))
counts = cars.group_by("booth").tumbling_window(5).select(n=sq.count())
counts.explain("logical")
""",
    'counts.explain("logical")',
    "counts.plot()",
    "counts.show()",
    'sq.compare_levels(counts, levels=["strong", "middle"])',
    """
try:
    cars.where(sq.col("both") == "a")
except sq.StreamqError as error:
    display(error)
""",
    'counts.chart("n", key="booth", title="the load")',
    "counts.trace()",
    "counts.trace()",
    """
from streamq import testing as t
coins = sq.points(t.table("at bigint, coin double", [(0, 0.1)]), time="at", name="coins")
try:
    t.verify(
        coins.tumbling_window(10).select(paid=sq.sum("coin")).where(sq.col("paid") > 0.6),
        t.Intent(
            events=3, disorder="in_order", ctis="eager", late="none", invalid=False, speculation=False, duplicates=False,
            payload={"coin": [0.1, 0.2, 0.3]}, pattern=lambda random, many: [(i, i + 1) for i in range(many)],
        ),
        profile=t.Profile(examples=500, batch=0, streams=0, seed=1, shrinking=2),
    )
except t.VerificationFailed as error:
    display(error)
""",
]

OFFLINE = [f"--HTMLExporter.{name}=" for name in ("require_js_url", "jquery_url", "mathjax_url", "mermaid_js_url")]


def test_notebook(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "notebook.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(cell.strip()) for cell in CELLS]), file)
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", *OFFLINE, "--log-level=WARN", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with opened(browser, file.with_suffix(".html"), "notebook") as page:
        plans = page.locator("svg.plan:not(.trace *)")
        assert plans.count() == 2 and page.locator("svg[role=img]:visible:not(.trace *)").count() == 4
        plans.last.locator("a").first.click()
        (shown,) = [about for about in page.locator(".about").all() if about.is_visible()]
        second, plot = (page.locator("svg[role=img]").nth(i).bounding_box() for i in (1, 2))
        box = shown.bounding_box()
        assert second and plot and box and second["y"] < box["y"] < plot["y"], "below the graph that was clicked"
        ours = page.locator(".streamq").first.evaluate("e => getComputedStyle(e).color")
        texts = plans.locator(".title")
        fills = {text.evaluate("e => getComputedStyle(e).fill") for text in texts.all()}
        assert fills == {ours}, "the notebook's own style of links does not show"
        assert page.locator(".streamq td").first.evaluate("e => getComputedStyle(e).textAlign") == "left"
        for text in ("Did you mean 'booth'?", "a row waits: mean", "UnknownColumn"):
            assert page.get_by_text(text).first.is_visible()
        assert page.locator("svg.marks text").get_by_text("the load", exact=True).is_visible()
        assert page.locator(".trace").count() == 3
        first, second, failed = (page.locator(".trace").nth(i) for i in range(3))
        click_through(page, second, beside=first)
        for name, text in (("coins", "insert"), ("hopping", "insert"), ("where", "micro-batch")):
            assert text in failed.locator(f"section[aria-label={name}]").inner_text()
        failed.locator("section[aria-label=coins] tr[data-op]").first.click()
        assert "1 effect." in failed.locator(".says").inner_text() and failed.locator("tr.effect").count() == 1


def click_through(page: Page, trace: Locator, *, beside: Locator) -> None:
    """Move a trace in time by its slider, and choose a row and an operator; the same trace beside it stays as it is."""
    rows, says = trace.locator("tr[data-op]:visible"), beside.locator(".says").inner_text()
    shown = beside.locator("tr[data-op]:visible").count()
    trace.get_by_role("slider").focus()
    page.keyboard.press("Home")
    assert rows.count() == 0 and trace.locator("output").inner_text() == "before anything arrives"
    page.keyboard.press("ArrowRight")
    assert rows.count() == 1 and trace.locator("svg a.here").count() == 1
    page.keyboard.press("End")
    assert rows.count() == shown > 9
    trace.locator("section").last.locator("tr[data-op]").last.click()
    assert trace.locator("tr.cause").count() > 0 and "cause" in trace.locator(".says").inner_text()
    trace.locator("svg a").last.click()
    assert trace.locator("section").last.evaluate("e => e === document.activeElement")
    assert beside.locator("tr.cause, tr.chosen").count() == 0 and beside.locator(".says").inner_text() == says
    assert beside.locator("tr[data-op]:visible").count() == shown


WATCHING = """
import signal, sys
from streamq.run.status.watching import noted_interrupt, watch_run
from streamq.screens import screen_for_lines
from tests.test_watching import look_at, rehearsal

run, others = rehearsal(), []
signal.signal(signal.SIGINT, lambda number, frame: others.append(number))
run.arrive(cars=9)
with noted_interrupt() as interrupt:
    watch_run(lambda: look_at(run), screen_for_lines(sys.stdout), lambda: (run.arrive(), interrupt.wait(0.05))[1])
print("went on,", len(others), "interrupts for others")
"""
"""A cell that watches a rehearsed run, in a process in which somebody else handles interrupts, as Spark does."""


class InterruptingClient(NotebookClient):
    """A client of a kernel that interrupts it at the third update of an output."""

    updates = 0

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        self.updates += msg["msg_type"] == "update_display_data"
        if self.updates == 3:
            self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)


def test_in_a_kernel_one_output_is_updated_until_an_interrupt_and_the_cell_goes_on() -> None:
    cell = new_code_cell(WATCHING)
    notebook = new_notebook(cells=[cell])
    client = InterruptingClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    view, printed = cell.outputs
    assert client.updates > 3 and view.output_type == "display_data"
    assert GOES_ON in view.data["text/plain"] and "41" in view.data["text/html"]
    assert printed.text == "went on, 0 interrupts for others\n"
