"""Faults in rooms drawn at random, each tried with the first query that a user of what it is in would write.

``python -m tests.mutation.rooms`` tries all of ``rooms.toml``, ``--set 2`` those of one set, ``name ...`` some; ``--tests`` runs
the nearest tests for what ``verify`` misses, in a minute of CPU. ``--draw 20 --seed 30`` names rooms for faults to come, weighted
by their lines, none more often than twice. Faults are written down before anybody looks at what catches them.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamq import testing as t
from tests.mutation.comparisons.processes import Speaker, in_processes
from tests.mutation.mutant import ROOT, Edit, Mutant, broken, caught

ROOMS = (
    "operators", "sources", "windows", "runtime", "runtime/evaluators", "runtime/kernels", "runtime/state",
    "patterns", "patterns/operators", "aggregates", "functions", "compiler/rules",
    "compiler", "plan", "user_code", "runtime/user_code", ".",
)  # fmt: skip

MINUTE, ON_SPARK, TESTS = 60.0, 600.0, 400.0
"""Seconds of CPU that ``verify`` has, in-process and with Spark, and those that tests have."""


@dataclass(frozen=True)
class Entry:
    """A fault of a set; ``caught``: whether verify catches it, so that it is a mutant as any other."""

    number: int
    mutant: Mutant
    caught: bool

    @property
    def room(self) -> str:
        """The folder of its module."""
        return str(Path(self.mutant.edits[0].file).parent)


def entries() -> list[Entry]:
    """All that are written down."""
    text = (Path(__file__).parent / "rooms.toml").read_text(encoding="utf-8")
    return [
        Entry(
            fault["set"],
            Mutant(
                fault["name"],
                fault["wrong"],
                fault["query"],
                edits=(Edit(fault["file"], fault["old"], fault["new"]),),
                spark=fault.get("spark", False),
            ),
            fault.get("caught", False),
        )
        for fault in tomllib.loads(text)["fault"]
    ]


MUTANTS = tuple(entry.mutant for entry in entries() if entry.caught)


def drawn(seed: int, many: int) -> Iterator[str]:
    """Yield modules drawn by a seed."""
    paths = [p for room in ROOMS for p in sorted((ROOT / "streamq" / room).glob("*.py")) if p.name != "__init__.py"]
    lines = [len(p.read_text(encoding="utf-8").splitlines()) for p in paths]
    source, times = random.Random(seed), Counter[Path]()
    while times.total() < many:
        (path,) = source.choices(paths, lines)
        if times[path] < 2:
            times[path] += 1
            yield str(path.relative_to(ROOT))


@dataclass(frozen=True)
class _Try:
    """Tries a fault in a process that has it."""

    mutant: Mutant
    tests: bool

    def __call__(self, speaker: Speaker) -> str:
        from tests.mutation.comparisons.trying import tested

        begun = time.process_time()
        if self.mutant.spark:
            # a JVM reserves more than it uses
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        speaker.say("verify", ON_SPARK if self.mutant.spark else MINUTE)
        if not self.tests:
            try:
                failed: t.VerificationFailed = caught(self.mutant)
            except AssertionError as survives:
                return f"survives: {survives}"
            return f"caught, case {failed.number}, {broken(failed.first)}, {time.process_time() - begun:.0f} s"
        speaker.say("tests", TESTS)
        with self.mutant.in_place():
            failure = tested(self.mutant.edits[0].file)
        return "survives tests" if failure is None else f"caught by {failure.how}"


def tried(some: Sequence[Entry], tests: bool) -> Iterator[tuple[Entry, str]]:
    """Yield each fault with what has become of it; what is not caught in a minute is not caught."""
    tasks: list[tuple[Any, Any]] = [(entry, _Try(entry.mutant, tests)) for entry in some]
    for entry, ended in in_processes(tasks, 1):
        yield entry, ended.result or f"survives: {ended.reason.strip().splitlines()[-1]}"


def main(arguments: Sequence[str]) -> None:
    """Draw rooms, or try faults and say how many of each room are caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.rooms", description=__doc__)
    parser.add_argument("names", nargs="*", help="of faults; all if there is none")
    parser.add_argument("--set", type=int, help="those of one set only")
    parser.add_argument("--local", action="store_true", help="those alone that show without Spark")
    parser.add_argument("--tests", action="store_true", help="run the nearest tests for what verify misses")
    parser.add_argument("--draw", type=int, help="only draw so many rooms")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn (default: 0)")
    options = parser.parse_args(arguments)
    if options.draw is not None:
        print("\n".join(drawn(options.seed, options.draw)))
        return
    chosen = [e for e in entries() if options.set in (None, e.number) and not (options.local and e.mutant.spark)]
    chosen = [e for e in chosen if not options.names or e.mutant.name in options.names]
    counts: dict[str, Counter[str]] = {}
    missed = []
    for entry, became in tried(chosen, tests=False):
        print(f"{entry.mutant.name}: {became}", flush=True)
        counts.setdefault(entry.room, Counter())[became.split()[0].strip(":,")] += 1
        missed += [entry] if became.startswith("survives") else []
    for room, count in sorted(counts.items()):
        print(f"{room}: {count['caught']} of {count.total()}")
    print(f"verify: {sum(count['caught'] for count in counts.values())} of {len(chosen)}")
    for entry, became in tried(missed, tests=True) if options.tests else ():
        print(f"{entry.mutant.name}: {became}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
