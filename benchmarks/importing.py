"""The cost of ``import streamq`` beside importing its dependencies: processor time of fresh processes, in turn, in one run.

* import: ``import streamq``, which loads no module of the language yet;
* names: every public name, which is all that a script can use;
* answer: a first query over literal events, answered in-process.

Each is compared with ``import pyspark.sql, pyarrow.compute``. Exits with 1 if the import takes more than ``LIMIT`` times as long.
Prints a table and writes JSON. ``python -m benchmarks.importing --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 1.2
BELOW = "pyspark.sql, pyarrow.compute"

PROGRAMS = {
    BELOW: f"import {BELOW}",
    "import": "import streamq",
    "names": "from streamq import *",
    "answer": "import streamq as sq; sq.events([(1, 3, {'v': 1})]).tumbling_window(2).select(n=sq.count()).to_arrow()",
}


def seconds(program: str, environment: dict[str, str]) -> float:
    """Return the processor time of a fresh process that runs the program, including its own start."""
    code = f"{program}\nimport time; print(time.process_time())"
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return float(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="how often each is run, in turn")
    parser.add_argument("--json", default="importing.json")
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory(prefix="streamq-bench-") as bytecode:
        # compile once, because an installed package has its bytecode
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for program in PROGRAMS.values():
            seconds(program, environment)
        for _ in range(args.rounds):
            for name, program in PROGRAMS.items():
                times[name].append(seconds(program, environment))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: medians[name] / medians[BELOW] for name in PROGRAMS}
    for name in PROGRAMS:
        print(f"{name:32} {medians[name] * 1000:6.0f} ms   {ratios[name]:5.2f}")
    Path(args.json).write_text(json.dumps({"seconds": times, "ratios": ratios}, indent=2))
    if ratios["import"] > LIMIT:
        sys.exit(f"import streamq takes more than {LIMIT} times as long as import {BELOW}")


if __name__ == "__main__":
    main()
