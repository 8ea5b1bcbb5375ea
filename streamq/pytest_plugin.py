"""The pytest plugin: options that say how hard ``verify`` searches, failing cases saved, and saved cases run as tests.

pytest loads it wherever streamq is installed, so it stands outside of ``streamq.testing``: what that needs may not be there.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

SUFFIX = ".streamq.json"
PROFILES = ("fast", "default", "thorough", "nightly")
"""The names of ``streamq.testing.PROFILES``."""
OPTIONS = ("profile", "examples", "seed", "failures")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    add = parser.getgroup("streamq", "verification of streamq queries").addoption
    add("--streamq-profile", metavar="NAME", help=f"how much verify tries: {', '.join(PROFILES)}")
    add("--streamq-examples", metavar="N", help="cases run in-process, instead of the profile's number")
    add("--streamq-seed", metavar="SEED", help="a seed instead of the profile's; 'random': another one each run")
    add("--streamq-failures", metavar="FOLDER", help="where failing cases are saved (default: .streamq-failures)")


def pytest_configure(config: pytest.Config) -> None:
    """What the options and the variables say, put where ``loaded_profile`` looks."""
    options = {name: config.getoption(f"--streamq-{name}") for name in OPTIONS}
    settings = chosen_options(options, os.environ)
    # workers are given the options: the seed that was drawn
    config.option.streamq_seed = settings.get("seed")
    os.environ.update({f"STREAMQ_{name.upper()}": text for name, text in settings.items()})
    os.environ.setdefault("STREAMQ_FAILURES", str(config.rootpath / ".streamq-failures"))


def chosen_options(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str]:
    """What is said by options, else by variables; a random seed is drawn. Raises UsageError for what they cannot be."""
    settings = {}
    for name in OPTIONS:
        source, text = f"--streamq-{name}", options.get(name)
        if text is None:
            source = f"STREAMQ_{name.upper()}"
            text = environ.get(source) or None
        if text is not None:
            wrong = _wrong(name, text)
            if wrong:
                raise pytest.UsageError(f"{source}={text}: {wrong}")
            settings[name] = text
    if settings.get("seed") == "random":
        settings["seed"] = str(random.SystemRandom().randrange(2**32))
    return settings


def _wrong(name: str, text: str) -> str:
    """Why an option cannot be what it is given as, if so."""
    match name:
        case "profile":
            # somebody may have added their own
            loaded = sys.modules.get("streamq.testing.profiles")
            names = PROFILES if loaded is None else tuple(loaded.PROFILES)
            return "" if text in names else f"no such profile; there are: {', '.join(names)}"
        case "examples":
            return "" if text.isdecimal() and int(text) > 0 else "a number of cases is a whole number from 1"
        case "seed":
            whole = text.removeprefix("-").isdecimal()
            return "" if whole or text == "random" else "a seed is a whole number, or 'random'"
    return "" if text else "not a folder"


def pytest_report_header(config: pytest.Config) -> str | None:
    """The seed of a search."""
    seed = config.getoption("--streamq-seed")
    return None if seed is None else f"streamq: --streamq-seed={seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How much has been verified, in this process, and the seed, which -q leaves out of the header."""
    parts = []
    loaded = sys.modules.get("streamq.testing.report")
    if loaded is not None and loaded.REPORTS:
        cases = sum(report.cases for report in loaded.REPORTS)
        parts.append(f"{len(loaded.REPORTS)} verifications over {cases:,} cases")
    seed = config.getoption("--streamq-seed")
    if seed is not None:
        parts.append(f"--streamq-seed={seed}")
    if parts:
        terminalreporter.write_line(f"streamq: {', '.join(parts)}")


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

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What the case or the file says; of anything else where it was raised."""
        from streamq.errors import StreamqError

        if isinstance(excinfo.value, AssertionError | StreamqError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"saved case {self.name}"
