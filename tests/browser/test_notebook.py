"""A notebook with streamq's values, executed and rendered by Jupyter's own tools, as a reader sees it in a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.chromium import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
]

OFFLINE = [f"--HTMLExporter.{name}=" for name in ("require_js_url", "jquery_url", "mathjax_url", "mermaid_js_url")]


def test_notebook(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "notebook.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(cell.strip()) for cell in CELLS]), file)
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", *OFFLINE, "--log-level=WARN", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with opened(browser, file.with_suffix(".html"), "notebook") as page:
        assert page.locator("svg.plan").count() == 2 and page.locator("svg[role=img]:visible").count() == 3
        page.locator("svg.plan").last.locator("a").first.click()
        (shown,) = [about for about in page.locator(".about").all() if about.is_visible()]
        second, plot = (page.locator("svg[role=img]").nth(i).bounding_box() for i in (1, 2))
        box = shown.bounding_box()
        assert second and plot and box and second["y"] < box["y"] < plot["y"], "below the graph that was clicked"
        ours = page.locator(".streamq").first.evaluate("e => getComputedStyle(e).color")
        texts = page.locator("svg.plan .title")
        fills = {text.evaluate("e => getComputedStyle(e).fill") for text in texts.all()}
        assert fills == {ours}, "the notebook's own style of links does not show"
        assert page.locator(".streamq td").first.evaluate("e => getComputedStyle(e).textAlign") == "left"
        for text in ("Did you mean 'booth'?", "a row waits: mean", "UnknownColumn"):
            assert page.get_by_text(text).first.is_visible()
