"""``python -m tests.mutation [path ...]``: plant faults one at a time, try them, list those that survive.

They are those that rules make in the modules of the paths, or with ``--table`` those of ``faults.toml``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

# what streamq imports is loaded once, by the process that starts the others; streamq itself by each of them
import duckdb  # noqa: F401
import hypothesis  # noqa: F401
import lark  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.functions  # noqa: F401
import pytest  # noqa: F401

from tests.mutation.equivalent import Equivalents, key
from tests.mutation.faults import ROOT, Fault, faults_of, faults_of_table
from tests.mutation.runs import SURVIVES, TESTS, Settings, Trials, Verdict
from tests.mutation.trying import queries

ROOMS = ("runtime", "runtime/arrow", "runtime/evaluators", "runtime/kernels", "runtime/time", "aggregates")
MODULES = (
    "runtime/hosts/result_rows.py", "runtime/hosts/stage.py", "runtime/partials/built_in_partials.py",
    "runtime/partials/range_partials.py", "runtime/state/bins.py", "operators/member_operator.py", "operators/evaluation.py",
)  # fmt: skip
LEFT_OUT = ("__init__.py", "rendering.py", "fdlibm.py")
"""Modules without an answer of a query: text for people, and a library's functions."""


def targets() -> list[str]:
    """The modules in which faults are planted."""
    files = [
        path for room in ROOMS for path in sorted((ROOT / "streamq" / room).glob("*.py")) if path.name not in LEFT_OUT
    ]
    return [*(str(path.relative_to(ROOT)) for path in files), *(f"streamq/{name}" for name in MODULES)]


def chosen(paths: Sequence[str], sample: int | None, seed: int) -> list[Fault]:
    """The faults of the targets below the paths, or so many of them, drawn by the seed.

    A fault is drawn by what it is: one elsewhere, that comes or goes with a change of the code, moves none of the others.
    """
    files = [f for f in targets() if not paths or any(f.startswith(path) for path in paths)]
    faults = [fault for file in files for fault in faults_of(file)]
    if sample is None:
        return faults
    return sorted(faults, key=lambda fault: sha256(f"{seed} {key(fault)}".encode()).digest())[:sample]


def main(arguments: Sequence[str]) -> int:
    """Try them; the exit status is 1 where one survives that is not listed as equivalent, or an entry there is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="*", help="modules or folders below the project; all targets if there is none")
    parser.add_argument("--table", nargs="*", metavar="NAME", help="try the faults of faults.toml, or some by name")
    parser.add_argument("--sample", type=int, help="try so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn (default: 0)")
    parser.add_argument("-n", type=int, default=1, help="processes at once (default: 1)")
    parser.add_argument("--minutes", type=float, help="begin no other trial after so many")
    parser.add_argument("--no-tests", action="store_true", help="go by verify alone")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--unreached", action="store_true", help="only list statements with faults that no query runs")
    options = parser.parse_args(arguments)
    equivalents = Equivalents.read()
    for entry in equivalents.stale():
        print(f"equivalent.toml: nothing matches {entry}")
    of_table = options.table is not None
    if of_table:
        faults = [fault for fault in faults_of_table() if not options.table or fault.what in options.table]
    else:
        faults = chosen(options.paths, options.sample, options.seed)
    if options.list:
        print("\n".join(map(str, faults)))
        return 0
    faults = [fault for fault in faults if not equivalents.reason(fault)]
    # failing cases are looked for here, and not kept
    os.environ.pop("STREAMQ_FAILURES", None)
    trials = Trials(Settings(tests=not options.no_tests), options.n)
    for name, reach in [] if of_table else trials.reach(targets(), _names()):
        if reach.wrong:
            print(f"left out, for it is wrong without a fault: {name}: {reach.wrong}", flush=True)
    if options.unreached:
        print("\n".join(dict.fromkeys(_place(fault) for fault in faults if not trials.nearest(fault))))
        return 0
    verdicts: list[tuple[Fault, Verdict]] = []
    seconds = None if options.minutes is None else 60 * options.minutes
    for fault, verdict in trials.verdicts(faults, seconds):
        verdicts.append((fault, verdict))
        print(f"{len(verdicts)}/{len(faults)} {_shown(verdict)}: {fault}", flush=True)
    survivors = report(verdicts, len(faults))
    return 1 if survivors or equivalents.stale() else 0


def _names() -> list[str]:
    """The names of the queries, from a process of its own: this one does not load streamq."""
    from tests.mutation.processes import in_processes

    ((_, ended),) = in_processes([("names", lambda speaker: list(queries()))], 1)
    if ended.result is None:
        raise RuntimeError(ended.reason)
    return list(ended.result)


def _place(fault: Fault) -> str:
    statement = (ROOT / fault.file).read_text(encoding="utf-8").splitlines()[fault.statement - 1].strip()
    return f"{fault.file}:{fault.statement} {fault.function}: {statement}"


def _shown(verdict: Verdict) -> str:
    where = f" {verdict.name}" if verdict.name else ""
    number = f", case {verdict.number}" if verdict.number else ""
    how = f", {verdict.how}" if verdict.how else ""
    return f"{verdict.by}{where}{number}{how} [{verdict.seconds} s]"


def report(verdicts: Sequence[tuple[Fault, Verdict]], wanted: int) -> int:
    """Say what caught how many, and list those that verify does not catch; how many nothing catches."""
    counts = Counter(verdict.by for _, verdict in verdicts)
    print(f"\n{len(verdicts)} of {wanted} tried: {', '.join(f'{n} {by}' for by, n in counts.most_common())}")
    for by, title in ((TESTS, "Caught by tests only"), (SURVIVES, "Survivors")):
        some = [(fault, verdict) for fault, verdict in verdicts if verdict.by == by]
        print(f"\n{title}: {len(some)}")
        for fault, verdict in some:
            reached = (
                f"reached by {verdict.reached:.0%} of the nearest query's cases" if verdict.reached else "not reached"
            )
            print(f"{fault}\n  {reached}{f'; {verdict.name}' if verdict.name else ''}")
    return counts[SURVIVES]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
