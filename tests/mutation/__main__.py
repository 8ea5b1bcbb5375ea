"""``python -m tests.mutation [name ...]``: try those faults of ``faults.toml``, or all, and say what catches each."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.mutation.comparisons.trying import tested
from tests.mutation.mutant import broken, caught
from tests.mutation.mutants import MUTANTS


def main(names: Sequence[str]) -> int:
    """Try ``verify`` of the fault's query first, then the nearest tests; return 1 if a fault survives both."""
    survivors = 0
    for name in names or MUTANTS:
        mutant = MUTANTS[name]
        try:
            failed = caught(mutant)
        except AssertionError:
            with mutant.in_place():
                failure = tested(mutant.edits[0].file)
            survivors += failure is None
            print(f"{name}: {'survives' if failure is None else failure.how}", flush=True)
        else:
            print(f"{name}: case {failed.number}, {broken(failed.first)}", flush=True)
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
