"""What a checkpoint says of the query that made it, and whether a run may go on from it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamq.errors import CheckpointError, sentence
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamq.compiler.plan import Node
    from streamq.compiler.program import Program

STATE_VERSION = 5
"""Changes when the layout of the state, or of the identity beside it, does."""

CONTROL_DDL = "source string, cti bigint, until bigint"
"""CTIs from outside, in the control folder; a NULL source is every source."""

SHOWN = 3
"""Lines of a plan that are shown where it has changed."""


def claim(spark: SparkSession, checkpoint: str, control: str, plan: Node, program: Program) -> bool:
    """Whether the checkpoint is a new one, which is marked; one that was there is this query's, and not finished.

    ``plan`` is the query as it was written. Raises CheckpointError, and leaves the checkpoint as it is.
    """
    from pyspark.errors import AnalysisException

    from streamq.compiler.explain import explained

    path = f"{checkpoint}/streamq/identity"
    (part,) = explained(plan, ("logical",))
    mine = {"version": STATE_VERSION, "fingerprint": program.fingerprint(), "plan": part.lines}
    try:
        found = json.loads(spark.read.text(path).collect()[0][0])
    except AnalysisException:
        spark.createDataFrame([(json.dumps(mine),)], "value string").coalesce(1).write.text(path)
        return True
    changed = changes(found, mine)
    if changed:
        hint = "Use a new checkpoint, or the query that made this one."
        raise CheckpointError(
            sentence("run", "the checkpoint is another query's", f"changed: {', '.join(changed)}", hint)
        )
    ended = spark.read.schema(CONTROL_DDL).parquet(control).where(f"cti = {INFINITY}").limit(1).collect()
    if ended:
        raise CheckpointError(
            sentence("run", "the checkpoint's stream has ended", "finish was called on it", "Use a new checkpoint.")
        )
    return False


def totals_kept(spark: SparkSession, checkpoint: str, program: Program) -> dict[str, int]:
    """The totals in the state of the checkpoint's last micro-batch, by Spark's reader of state."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from streamq.runtime.basket import Baskets
    from streamq.runtime.processor import STATE

    totals: dict[str, int] = {}
    try:
        commits = spark.read.text(f"{checkpoint}/commits").limit(1).collect()
    except AnalysisException:
        commits = []
    if not commits:
        return totals
    reader = spark.read.format("statestore").option("stateVarName", STATE)
    for stage in program.stages:
        state = reader.option("operatorId", stage.level).load(checkpoint)
        manifests = state.where(F.col("user_map_key.key") == Baskets.MANIFEST).select("user_map_value.chunk")
        for (manifest,) in manifests.collect():
            for name, values in json.loads(bytes(manifest))["values"].items():
                for key, n in values.items() if name.startswith("totals") else ():
                    totals[key] = totals.get(key, 0) + n
    return totals


def changes(found: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """What a checkpoint's identity and a query's differ in, in words."""
    if found["version"] != mine["version"]:
        return [f"the layout of state (version {found['version']}, now {mine['version']})"]
    before, now = (dict(zip(_PARTS, m["fingerprint"].split("/"), strict=True)) for m in (found, mine))
    return [
        f"the query ({_plan_change(found['plan'], mine['plan'])})"
        if what == "the query"
        else f"{what} ({_PARTS[what](before[what])}, now {_PARTS[what](now[what])})"
        for what in _PARTS
        if before[what] != now[what]
    ]


def _plan_change(before: Sequence[str], now: Sequence[str]) -> str:
    """The lines of a plan that are not the other's: ``a; b, now c``."""
    lines = list(difflib.ndiff(before, now))
    gone, new = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return f"{_few(gone)}, now {_few(new)}" if gone or new else "the policies of its sources"


def _few(lines: Sequence[str]) -> str:
    more = [f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "; ".join([*lines[:SHOWN], *more]) or "nothing"


_PARTS: Mapping[str, Callable[[str], str]] = {
    "the query": str,
    "output": repr,
    "buckets": str,
    "late_sink": lambda given: "given" if given == "1" else "none",
    "ctis": lambda given: str(given == "1"),
}
"""The parts of a fingerprint, and how each is shown."""
