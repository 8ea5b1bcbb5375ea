"""``python -m tests.mutation [name ...]``: those mutants, or all, once, and their rows in the table of docs/mutants.md."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.mutant import Mutant, broken, caught
from tests.mutation.mutants import MUTANTS

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"
RULER = "| --- | --- | --- | --- | --- | --- |\n"


def row(mutant: Mutant) -> str:
    """What caught it, as a row of the table."""
    begun = time.monotonic()
    failed = caught(mutant)
    seconds = round(time.monotonic() - begun)
    where = f"{mutant.query} (Spark)" if mutant.spark else mutant.query
    cells = (mutant.name, mutant.wrong, where, broken(failed.first), str(failed.number), str(seconds or "< 1"))
    return f"| {' | '.join(cells)} |"


def main(names: Sequence[str]) -> None:
    """Rewrite those rows of the page, and leave out those of mutants that are gone."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(RULER)
    table, gap, below = rest.partition("\n\n")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()}
    for name in names or MUTANTS:
        rows[name] = row(MUTANTS[name])
        print(rows[name], flush=True)
    lines = "\n".join(rows[name] for name in MUTANTS if name in rows)
    PAGE.write_text(head + RULER + lines + gap + below, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
