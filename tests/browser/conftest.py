"""A browser for the tests of this folder, which are left out, and said to be, where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import find_chromium, launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent

LEFT_OUT = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = [item for item in items if HERE in item.path.parents]
    for item in own:
        item.add_marker("browser")
    if own and not find_chromium():
        config.stash[LEFT_OUT] = len(own)
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if item not in own]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if LEFT_OUT in config.stash:
        count = config.stash[LEFT_OUT]
        terminalreporter.write_line(
            f"browser: {count} tests LEFT OUT, because there is no Chromium (scripts/browser.sh)"
        )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser
