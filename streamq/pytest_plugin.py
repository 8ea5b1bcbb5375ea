"""The pytest plugin: adds options for ``verify``, saves failing cases, and runs saved cases as tests.

pytest loads it wherever streamq is installed, so it is outside of ``streamq.testing``, whose requirements may be missing.
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
    """Add the plugin's options."""
    add = parser.getgroup("streamq", "verification of streamq queries").addoption
    add("--streamq-profile", metavar="NAME", help=f"how much verify tries: {', '.join(PROFILES)}")
    add("--streamq-examples", metavar="N", help="cases run in-process, instead of the profile's number")
    add("--streamq-seed", metavar="SEED", help="a seed instead of the profile's; 'random': another one each run")
    add("--streamq-failures", metavar="FOLDER", help="where failing cases are saved (default: .streamq-failures)")


def pytest_configure(config: pytest.Config) -> None:
    """Write the options' settings to the environment variables that ``loaded_profile`` reads.

    Also sets the option of the seed to the one chosen, and a folder for failures unless the environment has one.
    """
    options = {name: config.getoption(f"--streamq-{name}") for name in OPTIONS}
    settings = chosen_options(options, os.environ)
    # workers get the options, so also the seed that was drawn
    config.option.streamq_seed = settings.get("seed")
    os.environ.update({f"STREAMQ_{name.upper()}": text for name, text in settings.items()})
    os.environ.setdefault("STREAMQ_FAILURES", str(config.rootpath / ".streamq-failures"))


def chosen_options(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by name, each from its option or else its environment variable; those without a value are left out.

    An empty environment variable counts as none. A random number replaces the seed "random". Raises UsageError for invalid
    values.
    """
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
    """Return the reason why the value of an option is invalid; "" if it is valid."""
    match name:
        case "profile":
            # users may have added profiles
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
    """Return the header line with the seed, if there is one."""
    seed = config.getoption("--streamq-seed")
    return None if seed is None else f"streamq: --streamq-seed={seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the number of verifications and cases in this process, and the seed, which the header lacks under -q.

    Prints nothing if there are neither.
    """
    parts = []
    loaded = sys.modules.get("streamq.testing.profiles")
    if loaded is not None and loaded.REPORTS:
        cases = sum(report.cases for report in loaded.REPORTS)
        parts.append(f"{len(loaded.REPORTS)} verifications over {cases:,} cases")
    seed = config.getoption("--streamq-seed")
    if seed is not None:
        parts.append(f"--streamq-seed={seed}")
    if parts:
        terminalreporter.write_line(f"streamq: {', '.join(parts)}")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect files that end in ``.streamq.json`` as tests: saved cases, which must not fail."""
    return SavedCase.from_parent(parent, path=file_path) if file_path.name.endswith(SUFFIX) else None


class SavedCase(pytest.File):
    """A file with one saved case."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Replay.from_parent(self, name=self.path.name.removesuffix(SUFFIX))


class Replay(pytest.Item):
    """A test that runs a saved case as it was run when it failed."""

    def runtest(self) -> None:
        from streamq.testing.replay import replay

        replay(self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message of a failed case or an unreadable file; for any other error its traceback."""
        from streamq.errors import StreamqError

        if isinstance(excinfo.value, AssertionError | StreamqError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"saved case {self.name}"
