"""A live view in JupyterLab: it is updated in place, and an interrupt ends it, never the query."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.chromium import SCREENSHOTS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CELLS = [
    """
import streamq as sq
spark = sq.session("lab", master="local[1]")
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
ticks = sq.points(rows, time="timestamp", name="ticks", progress=sq.generate("0 seconds"))
run = ticks.tumbling_window("1 second").select(n=sq.count()).run(name="ticks", output="changelog")
print("started")
""",
    "run.watch(every=0.5)",
    'print("still active:", run.query.isActive)',
    'run.stop()\nspark.stop()\nprint("stopped")',
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab of its own, on a free port, without a token, over a folder with one notebook."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [new_code_cell(cell.strip()) for cell in CELLS]
    nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / "live.ipynb")
    runtime = tmp_path / "runtime"
    folders = {name: str(runtime) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    folders["JUPYTERLAB_WORKSPACES_DIR"] = folders["JUPYTERLAB_SETTINGS_DIR"] = str(tmp_path / "lab")
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token="]
    command = [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={tmp_path}"]
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env={**os.environ, **folders}, stdout=log, stderr=log, cwd=tmp_path)
        try:
            yield address(server, runtime)
        finally:
            server.terminate()
            server.wait(60)


def address(server: subprocess.Popen[bytes], runtime: Path) -> str:
    """Wait for a server, and return its address."""
    file = runtime / f"jpserver-{server.pid}.json"
    for _ in range(900):
        if file.exists() and (text := file.read_text(encoding="utf-8")):
            return str(json.loads(text)["url"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise ChildProcessError(f"the server has ended with {server.wait(0.2)}")
    raise TimeoutError("no JupyterLab after three minutes")


def test_a_live_view_is_updated_in_place_and_an_interrupt_leaves_the_query(browser: Browser, lab: str) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(180_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"{lab}lab/tree/live.ipynb?reset")
    cells = page.locator(".jp-CodeCell")
    outputs = [cells.nth(i).locator(".jp-OutputArea-output") for i in range(len(CELLS))]
    cells.first.locator(".cm-content").click()
    # the kernel is there when the indicator says so
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    try:
        page.keyboard.press("Shift+Enter")
        outputs[0].filter(has_text="started").first.wait_for()
        page.keyboard.press("Shift+Enter")
        view = outputs[1].locator(".streamq")
        view.wait_for()
        texts = {view.inner_text()}
        for _ in range(200):
            texts.add(view.inner_text())
            if len(texts) >= 4:
                break
            page.wait_for_timeout(250)
        assert len(texts) >= 4, "the view does not change"
        assert outputs[1].count() == 1, "one output, the last state"
        page.keyboard.press("Escape")
        page.keyboard.press("i")
        page.keyboard.press("i")
        outputs[1].filter(has_text="Interrupted").first.wait_for()
        assert outputs[1].count() == 1
        page.keyboard.press("Shift+Enter")
        outputs[2].filter(has_text="still active: True").first.wait_for()
        assert wrong == [], "an error of a script"
    finally:
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "lab.png")
        cells.nth(3).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        outputs[3].filter(has_text="stopped").first.wait_for()
        page.close()
