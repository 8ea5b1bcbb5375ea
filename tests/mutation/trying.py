"""What is run against a fault, in a process that has it: queries by ``verify``, then the nearest tests."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.faults import ROOT

TESTS = ("tests/runtime", "tests/operators", "tests/laws", "tests/replays")
"""The tests that are nearest to the targets, after the files that are named after one, and those of its room."""

PROMPT = ("tests/laws/test_liveliness.py", "-k", "ctis_are_as_high or waits_for_nothing")
"""The laws of how high CTIs are: ``verify`` asks whether they hold, not whether they are prompt."""


@dataclass(frozen=True)
class Failure:
    """How a fault shows: in the case of that number (0: before any), or in a test; ``how`` says it in a line."""

    number: int
    how: str


def queries() -> dict[str, Any]:
    """The queries that faults are tried with: those of the mutants, some pairs, every operator with its arguments open."""
    from tests.laws.test_operators import OPERATORS
    from tests.mutation.queries import QUERIES

    return {f"query {name}": q for name, q in {**{n: make() for n, make in QUERIES.items()}, **_pairs()}.items()} | {
        f"operator {name}": q for name, q in OPERATORS.items()
    }


def _pairs() -> dict[str, Any]:
    """Queries whose operators feed one another, or whose inputs differ, where one operator alone does not tell."""
    from streamq import testing as t
    from tests.mutation.queries import events, totals

    def numbers(kind: str) -> t.Scenario:
        """A stream of numbers of another type than those of ``events``."""
        return t.stream(columns=f"w {kind}", axis="integer")

    return {
        "hopping over a union": totals(events().union(events()).group_by("k").hopping_window(4, 2)),
        "snapshot of shortened lifetimes": totals(events().extend(-2).group_by("k").snapshot_window()),
        "join of keys of two types": events().join(numbers("bigint"), on=[("v", "w")]),
        "join of keys of two types, the other way": numbers("bigint").join(events(), on=[("w", "v")]),
    }


def tried(query: str, examples: int, spark: bool = False) -> Failure | None:
    """The first case that fails, in-process or, if asked for, on Spark too, as ``verify`` tries them by default."""
    from streamq import testing as t
    from tests.mutation.mutant import IN_PROCESS, ON_SPARK, broken

    try:
        t.verify(queries()[query], profile=replace(ON_SPARK if spark else IN_PROCESS, examples=examples), may_fail=True)
    except t.VerificationFailed as failed:
        return Failure(failed.number, broken(failed.first))
    return None


def tested(file: str) -> Failure | None:
    """The first failure of the nearest tests that need no Spark and no seconds, or of the laws of promptness."""
    named = [path for path in sorted((ROOT / "tests").rglob(f"test_{Path(file).name}")) if path.parent.name != "spark"]
    first = [str(path.relative_to(ROOT)) for path in named]
    near = [str(ROOT / path) for path in dict.fromkeys((*first, *of_room(Path(file).parent), *TESTS))]
    law, *some = PROMPT
    for arguments in (["-m", "not spark and not slow", *near], [str(ROOT / law), *some]):
        noted = _FirstFailure()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            options = ["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *arguments]
            status = pytest.main(options, plugins=[noted])
        if status != pytest.ExitCode.OK:
            return Failure(0, noted.name or f"pytest: {status!r}")
    return None


def of_room(room: Path) -> list[str]:
    """The folder of the tests of a room, or of the room around it; else the tests with a word of the room's name in theirs."""
    rooms = [Path("tests") / part for part in (room.relative_to("streamq"), *room.relative_to("streamq").parents)]
    folders = [str(folder) for folder in rooms if folder != Path("tests") and (ROOT / folder).is_dir()]
    if folders or room == Path("streamq"):
        return folders[:1]
    words = {word.removesuffix("s") for word in room.name.split("_")}
    named = (ROOT / "tests").glob("test_*.py")
    of_words = [path for path in sorted(named) if words & {word.removesuffix("s") for word in path.stem.split("_")}]
    return [str(path.relative_to(ROOT)) for path in of_words]


class _FirstFailure:
    """Notes the test that fails first."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = f"{report.nodeid} cannot be imported"


@contextlib.contextmanager
def seconds_of() -> Iterator[Callable[[], float]]:
    """The seconds of CPU that this process has used since."""
    begun = time.process_time()
    yield lambda: time.process_time() - begun


__all__ = ["Failure", "of_room", "queries", "seconds_of", "tested", "tried"]
