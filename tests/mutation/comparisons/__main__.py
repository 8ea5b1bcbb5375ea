"""``python -m tests.mutation.comparisons [path ...]``: plant small faults one at a time, try them, list those that survive."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

# what streamq imports is loaded once, by the process that starts the others; streamq itself by each of them
import duckdb  # noqa: F401
import hypothesis  # noqa: F401
import lark  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.functions  # noqa: F401
import pytest  # noqa: F401

from tests.mutation.comparisons.equivalent import Equivalents, key
from tests.mutation.comparisons.faults import ROOT, Fault, faults_of
from tests.mutation.comparisons.runs import SURVIVES, TESTS, Notes, Settings, Trials, Verdict
from tests.mutation.comparisons.trying import queries

RUNTIME = (
    "bins", "built_in_partials", "columnar", "consistency", "lateness", "lifetimes", "overlap", "progress", "progress_map",
    "range_partials", "repetitions", "replacements", "result_rows", "stage", "values",
)  # fmt: skip


def targets() -> list[str]:
    """The modules in which faults are planted."""
    rooms = ("runtime/evaluators", "runtime/kernels", "aggregates")
    folders = [path for room in rooms for path in sorted((ROOT / "streamq" / room).glob("*.py"))]
    files = [str(path.relative_to(ROOT)) for path in folders if path.name != "__init__.py"]
    rooms = ("streamq/operators/member_operator.py", "streamq/operators/evaluation.py")
    return [*files, *(f"streamq/runtime/{name}.py" for name in RUNTIME), *rooms]


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
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.comparisons", description=__doc__)
    parser.add_argument("paths", nargs="*", help="modules or folders below the project; all targets if there is none")
    parser.add_argument("--sample", type=int, help="try so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn (default: 0)")
    parser.add_argument("-n", type=int, default=1, help="processes at once (default: 1)")
    parser.add_argument("--minutes", type=float, help="begin no other trial after so many")
    parser.add_argument("--examples", type=int, default=Settings.examples, help="cases of each of the nearest queries")
    parser.add_argument("--nearest", type=int, default=Settings.nearest, help="queries tried with a few cases at first")
    parser.add_argument("--thorough", type=int, default=Settings.thorough, help="queries tried with all their cases")
    parser.add_argument("--query", action="append", help="try with this query only (again for more), not with all")
    parser.add_argument("--no-tests", action="store_true", help="go by verify alone")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--unreached", action="store_true", help="only list statements with faults that no query runs")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "streamq-faults",
                        help="folder for verdicts, which are good as long as no source changes")  # fmt: skip
    options = parser.parse_args(arguments)
    equivalents = Equivalents.read()
    for entry in equivalents.stale():
        print(f"equivalent.toml: nothing matches {entry}")
    faults = chosen(options.paths, options.sample, options.seed)
    if options.list:
        print("\n".join(map(str, faults)))
        return 0
    faults = [fault for fault in faults if not equivalents.reason(fault)]
    # failing cases are looked for here, and not kept
    os.environ.pop("STREAMQ_FAILURES", None)
    settings = Settings(
        nearest=options.nearest, examples=options.examples, thorough=options.thorough, tests=not options.no_tests
    )
    trials = Trials(Notes(options.cache), settings, options.n)
    for name, reach in trials.reach(targets(), options.query or _names()):
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
    from tests.mutation.comparisons.processes import in_processes

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
