"""The Chromium of the system, and pages in it that are watched for errors, requests and overflow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
"""The folder of the screenshots of a run, a file for each page that it has opened."""


def find_chromium() -> str:
    """The path of a Chromium: ``STREAMQ_BROWSER``, or the first of ``NAMES`` that is installed; "" if there is none."""
    return os.environ.get("STREAMQ_BROWSER") or next((path for name in NAMES if (path := shutil.which(name))), "")


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, file: Path, name: str, *, dark: bool = False, width: int = 1000) -> Iterator[Page]:
    """A page of a file; afterwards there is a screenshot ``name`` of it.

    Raises AssertionError if anything was wrong in the console, if the page requested anything else, or is wider than its window.
    """
    context = browser.new_context(
        color_scheme="dark" if dark else "light", viewport={"width": width, "height": 700}, reduced_motion="reduce"
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (wrong.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: wrong.append(request.url) if request.url != file.as_uri() else None)
    page.goto(file.as_uri())
    try:
        yield page
    finally:
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    context.close()
    assert wrong == []
    assert overflow <= 0, f"{overflow} pixels wider than the window"


def why_not() -> str:
    """Why there is no Chromium that starts; "" if there is one."""
    if not find_chromium():
        return "There is no Chromium: install one (Debian: apt-get install chromium)."
    from playwright.sync_api import Error

    try:
        with launched() as browser:
            browser.new_page().close()
    except Error as error:
        return f"Chromium does not start: {error.message.splitlines()[0]}"
    return ""


if __name__ == "__main__":
    sys.exit(why_not() or None)
