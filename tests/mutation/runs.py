"""Faults tried one at a time: first with the queries that reach them, then with the nearest tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.mutation.faults import ROOT, Fault
from tests.mutation.planting import plant
from tests.mutation.processes import Ended, Speaker, Task, in_processes
from tests.mutation.reach import Reach, measured, probed
from tests.mutation.trying import Failure, queries, tested, tried

PACKAGES = ("streamq", "tests")
"""What a process with a fault imports afresh."""

PATIENCE = 10.0
"""How many times as long as without a fault something may take."""

TESTS_TAKE = 40.0
"""Seconds of CPU that the nearest tests take."""

VERIFY, TESTS, TIME, CRASH, SURVIVES = "verify", "tests", "time", "crash", "survives"
"""Verdicts: what catches a fault; TIME: it does not end, CRASH: the process ends by itself."""


@dataclass(frozen=True)
class Settings:
    """How hard a fault is tried.

    ``few`` cases of each of the ``nearest`` queries come first, as most faults show there, then ``examples`` cases of the
    ``thorough`` nearest; ``tests``: whether the nearest tests are run for what is left.
    """

    few: int = 10
    nearest: int = 6
    examples: int = 200
    thorough: int = 4
    tests: bool = True


NO_TESTS = Settings(tests=False)


@dataclass(frozen=True)
class Verdict:
    """What catches a fault: ``by`` VERIFY with the case ``number`` of the query ``name``, by TESTS with the test of that name.

    ``reached`` is the share of cases of the nearest query that run the statement; ``seconds`` those of the whole trial.
    """

    by: str
    name: str = ""
    number: int = 0
    how: str = ""
    reached: float = 0.0
    seconds: float = 0.0


class Trials:
    """Trials of faults, so many processes at once."""

    def __init__(self, settings: Settings, at_once: int = 1):
        self.settings, self.at_once = settings, at_once
        self.reaches: dict[str, Reach] = {}
        self.right: dict[str, int] = {}

    def reach(self, files: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, Reach]]:
        """What each query reaches; those that are wrong without a fault are left out of the trials."""
        tasks: list[tuple[Any, Task]] = [(name, _Measure(name, self.settings.few, tuple(files))) for name in names]
        for name, ended in in_processes(tasks, self.at_once):
            if ended.result is None:
                raise RuntimeError(f"{name}: {ended.reason}")
            reach = Reach(**ended.result)
            if not reach.wrong:
                self.reaches[name] = reach
                self.right[name] = self.settings.few
            yield name, reach

    def nearest(self, fault: Fault) -> list[tuple[str, float]]:
        """The queries whose cases run the statement of a fault most often in a second, and the share of those that do.

        Of a fault of the table, the query that must show it.
        """
        if fault.query:
            return [(f"query {fault.query}", 1.0)]
        shares = {n: r.of(fault.file, fault.statement, bool(fault.function)) for n, r in self.reaches.items()}
        reached = [name for name, share in shares.items() if share]
        best = sorted(reached, key=lambda name: -shares[name] / max(self.reaches[name].seconds, 0.05))
        # those with named columns and those with all arguments open see different things: in turn
        kinds = [[n for n in best if n.startswith(kind)] for kind in ("query ", "operator ")]
        turns = [name for i in range(len(best)) for kind in kinds for name in kind[i : i + 1]]
        return [(name, shares[name]) for name in turns[: self.settings.nearest]]

    def verdicts(self, faults: Sequence[Fault], seconds: float | None = None) -> Iterator[tuple[Fault, Verdict]]:
        """Try each fault; after so many seconds no other is begun."""
        begun = time.monotonic()
        tasks: list[tuple[Any, Task]] = [(fault, _Try(fault, self._steps(fault), self.settings)) for fault in faults]
        while tasks:
            again: list[tuple[Any, Task]] = []
            in_time = (task for task in tasks if seconds is None or time.monotonic() - begun < seconds)
            for fault, ended in in_processes(in_time, self.at_once):
                verdict = self._verdict(fault, ended)
                if verdict.by == VERIFY and not fault.query and not self._is_right(verdict.name, verdict.number):
                    again.append((fault, _Try(fault, self._steps(fault), self.settings)))
                    continue
                yield fault, verdict
            tasks = again

    def _steps(self, fault: Fault) -> tuple[tuple[str, int, float], ...]:
        if fault.query:
            # Spark starts, and plans each query
            return ((f"query {fault.query}", self.settings.examples, 1_200.0 if fault.spark else 600.0),)
        names = [name for name, _ in self.nearest(fault)]
        few, many = self.settings.few, self.settings.examples
        steps = [(name, few) for name in names] + [(name, many) for name in names[: self.settings.thorough]]
        return tuple((name, n, PATIENCE * n * self.reaches[name].seconds + 30) for name, n in steps)

    def _verdict(self, fault: Fault, ended: Ended) -> Verdict:
        reached = max((share for _, share in self.nearest(fault)), default=0.0)
        if ended.result is not None:
            return Verdict(**ended.result, reached=reached)
        reason = ended.reason.strip().splitlines()[-1]
        return Verdict(TIME if reason == "does not end" else CRASH, str(ended.last), how=reason, reached=reached)

    def _is_right(self, name: str, number: int) -> bool:
        """Whether so many cases of a query are right without a fault; a query that is not is left out from now on."""
        if number <= self.right.get(name, 0):
            return True
        ((_, ended),) = in_processes([(name, _Try(None, ((name, number, 600.0),), NO_TESTS))], 1)
        is_right = ended.result is not None and ended.result["by"] == SURVIVES
        if is_right:
            self.right[name] = number
        else:
            self.reaches.pop(name, None)
        return is_right


@dataclass(frozen=True)
class _Measure:
    """Measures the reach of a query over instrumented modules."""

    query: str
    cases: int
    files: tuple[str, ...]

    def __call__(self, speaker: Speaker) -> Any:
        speaker.say(self.query, 900.0)
        plant({file.removesuffix(".py").replace("/", "."): probed(file) for file in self.files}, PACKAGES)
        return asdict(measured(self.query, self.cases))


@dataclass(frozen=True)
class _Try:
    """Tries one fault, or, with None, none: (query, cases, seconds of CPU) in turn, then the tests."""

    fault: Fault | None
    steps: tuple[tuple[str, int, float], ...]
    settings: Settings

    def __call__(self, speaker: Speaker) -> Any:
        begun = time.monotonic()
        speaker.say("import", 60.0)
        if self.fault is not None:
            path = str(ROOT / self.fault.file)
            plant({self.fault.module: compile(self.fault.source, path, "exec", dont_inherit=True)}, PACKAGES)
        else:
            plant({}, PACKAGES)
        result = self._result(speaker)
        return {**result, "seconds": round(time.monotonic() - begun, 1)}

    def _result(self, speaker: Speaker) -> dict[str, Any]:
        try:
            queries()
        except Exception as error:
            return {"by": CRASH, "name": "import", "how": repr(error)}
        for name, cases, seconds in self.steps:
            speaker.say(name, seconds)
            try:
                failure = tried(name, cases, self.fault is not None and self.fault.spark)
            except Exception as error:
                failure = Failure(0, repr(error)[:200])
            if failure is not None:
                return {"by": VERIFY, "name": name, "number": failure.number, "how": failure.how}
        if self.settings.tests and self.fault is not None:
            speaker.say("tests", PATIENCE * TESTS_TAKE)
            failure = tested(self.fault.file)
            if failure is not None:
                return {"by": TESTS, "name": failure.how}
        return {"by": SURVIVES}


__all__ = ["CRASH", "SURVIVES", "TESTS", "TIME", "VERIFY", "Settings", "Trials", "Verdict"]
