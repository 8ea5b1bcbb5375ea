"""The pytest plugin: options that say how hard ``verify`` searches, failing cases saved, and saved cases run as tests.

pytest loads it wherever streamq is installed, so it stands outside of ``streamq.testing``: what that needs may not be there.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SUFFIX = ".streamq.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    add = parser.getgroup("streamq", "verification of streamq queries").addoption
    add("--streamq-profile", metavar="NAME", help="how much verify tries: fast, default, thorough or nightly")
    add("--streamq-examples", metavar="N", help="cases run in-process, instead of the profile's number")
    add("--streamq-seed", metavar="SEED", help="a seed instead of the profile's; 'random': another one each run")
    add("--streamq-failures", metavar="FOLDER", help="where failing cases are saved (default: .streamq-failures)")


def pytest_configure(config: pytest.Config) -> None:
    """What the options say, put where ``loaded_profile`` looks."""
    if config.getoption("--streamq-seed") == "random":
        # drawn once, so that it can be told, and is the same in every worker
        config.option.streamq_seed = str(random.SystemRandom().randrange(2**32))
    for name in ("profile", "examples", "seed", "failures"):
        given = config.getoption(f"--streamq-{name}")
        if given is not None:
            os.environ[f"STREAMQ_{name.upper()}"] = given
    os.environ.setdefault("STREAMQ_FAILURES", str(config.rootpath / ".streamq-failures"))


def pytest_report_header(config: pytest.Config) -> str | None:
    """The seed of a search."""
    seed = config.getoption("--streamq-seed")
    return None if seed is None else f"streamq: --streamq-seed={seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much has been verified, in this process."""
    verify = sys.modules.get("streamq.testing.verify")
    if verify is not None and verify.REPORTS:
        cases = sum(report.cases for report in verify.REPORTS)
        terminalreporter.write_line(f"streamq: {len(verify.REPORTS)} verifications over {cases:,} cases")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Files that end in ``.streamq.json`` are tests: saved cases, which must not fail."""
    return SavedCase.from_parent(parent, path=file_path) if file_path.name.endswith(SUFFIX) else None


class SavedCase(pytest.File):
    """A file with one saved case."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Replay.from_parent(self, name=self.path.name.removesuffix(SUFFIX))


class Replay(pytest.Item):
    """A saved case, run as it was when it failed."""

    def runtest(self) -> None:
        from streamq.testing.replay import replay

        replay(self.path)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"saved case {self.name}"
