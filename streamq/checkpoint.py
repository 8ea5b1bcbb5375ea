"""What a checkpoint says of the query that made it, and whether a run may go on from it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamq.errors import CheckpointError, sentence
from streamq.sinks import one_name
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamq.compiler.plan import Node
    from streamq.compiler.program import Program

STATE_VERSION = 7
"""Changes when the layout of the state, or of the identity beside it, does."""

CONTROL_DDL = "source string, cti bigint, until bigint"
"""CTIs from outside, in the control folder; a NULL source is every source."""

SHOWN = 3
"""Lines of a plan that are shown where it has changed."""


@dataclass(frozen=True)
class Claim:
    """A checkpoint that a run may go on from. ending: its stream has been told to end, and a run was cut off before it had."""

    new: bool
    ending: bool = False


def claim(
    spark: SparkSession, checkpoint: str, control: str, plan: Node, program: Program, sinks: Sequence[str] = ()
) -> Claim:
    """Mark a new checkpoint as this query's; one that was there must be, and its stream must not have ended.

    ``plan`` is the query as it was written; ``sinks`` are the folders it writes into, which must not be another checkpoint's.
    Raises CheckpointError, and leaves the checkpoint as it is.
    """
    from streamq.compiler.explain import explained

    path = _identity(checkpoint)
    (part,) = explained(plan, ("logical",))
    written = [one_name(sink) for sink in sinks]
    mine = {"version": STATE_VERSION, "fingerprint": program.fingerprint(), "plan": part.lines, "folders": written}
    kept = _lines(spark, path)
    if not kept:
        # what was cut off while it was marked has done nothing yet
        _refuse_sinks(spark, sinks)
        _write(spark, path, json.dumps(mine))
        return Claim(new=True)
    changed = changes(json.loads(kept[0]), mine)
    if changed:
        hint = "Use a new checkpoint and a new sink, or the query that made this one."
        raise CheckpointError(
            sentence("run", "the checkpoint is another query's", f"changed: {', '.join(changed)}", hint)
        )
    told = spark.read.schema(CONTROL_DDL).parquet(control).where(f"cti = {INFINITY}").limit(1).collect()
    if told and _lines(spark, _ended(checkpoint)):
        hint = "Use a new checkpoint, and a new sink."
        raise CheckpointError(sentence("run", "the checkpoint's stream has ended", "finish was called on it", hint))
    return Claim(new=False, ending=bool(told))


def buckets_kept(spark: SparkSession, checkpoint: str) -> int | None:
    """How many buckets each stage of a checkpoint's state has; None where it is new, or of another version."""
    kept = _lines(spark, _identity(checkpoint))
    found = json.loads(kept[0]) if kept else {}
    return int(_parts(found)["buckets"]) if found.get("version") == STATE_VERSION else None


def mark_ended(spark: SparkSession, checkpoint: str) -> None:
    """The stream has ended, and all its rows are out."""
    _write(spark, _ended(checkpoint), "ended")


def _identity(checkpoint: str) -> str:
    return f"{checkpoint}/streamq/identity"


def _ended(checkpoint: str) -> str:
    return f"{checkpoint}/streamq/ended"


def _refuse_sinks(spark: SparkSession, sinks: Sequence[str]) -> None:
    """Raise CheckpointError for a folder that is not empty.

    Micro-batches of another checkpoint are numbered: Spark leaves out those that are there, and a folder ``batch=N`` would be
    written over. Files of others, the input's perhaps, would be hidden: Spark reads what the sink's log has.
    """
    for sink in sinks:
        for path in (f"{sink}/{trace}" for trace in ("_spark_metadata", "batch=*")):
            if _exists(spark, path):
                wrong, hint = "the sink has micro-batches of another checkpoint", "the checkpoint that it belongs to"
                raise CheckpointError(sentence("run", wrong, f"found {path}", f"Use a new sink, or {hint}."))
        if _exists(spark, f"{sink}/[^._]*"):
            wrong, hint = "the sink has files of others", "Use a new folder: Spark would no longer see them."
            raise CheckpointError(sentence("run", wrong, f"found some in {sink}", hint))


def _exists(spark: SparkSession, path: str) -> bool:
    """Whether there is such a folder; Spark reads nothing of one whose name begins with an underscore."""
    from pyspark.errors import AnalysisException

    try:
        spark.read.format("binaryFile").load(path).select("path").limit(1).collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True


def _lines(spark: SparkSession, path: str) -> list[str]:
    """The lines of a text; none where there is no such file."""
    from pyspark.errors import AnalysisException

    try:
        return [line for (line,) in spark.read.text(path).collect()]
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise


def _write(spark: SparkSession, path: str, text: str) -> None:
    spark.createDataFrame([(text,)], "value string").coalesce(1).write.mode("overwrite").text(path)


@dataclass(frozen=True)
class Kept:
    """What earlier runs have left: totals by ``source|reason``, and the readings of the last micro-batch."""

    totals: dict[str, int]
    told: dict[str, int]


def kept(spark: SparkSession, checkpoint: str, program: Program) -> Kept:
    """What stands in the state of the checkpoint's last micro-batch, by Spark's reader of state."""
    from pyspark.sql import functions as F

    from streamq.runtime.basket import Baskets
    from streamq.runtime.processor import STATE
    from streamq.runtime.readings import together

    totals: dict[str, int] = {}
    told: list[dict[str, int]] = []
    if not _lines(spark, f"{checkpoint}/commits"):
        return Kept({}, {})
    reader = spark.read.format("statestore").option("stateVarName", STATE)
    for stage in program.stages:
        state = reader.option("operatorId", stage.level).load(checkpoint)
        manifests = state.where(F.col("user_map_key.key") == Baskets.MANIFEST).select("user_map_value.chunk")
        for (manifest,) in manifests.collect():
            # Spark numbers operators in an order of its own
            for name, values in json.loads(bytes(manifest))["values"].items():
                if name.startswith("told"):
                    told.append(values)
                for key, n in values.items() if name.startswith("totals") else ():
                    totals[key] = totals.get(key, 0) + n
    return Kept(totals, together(told))


def changes(found: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """What a checkpoint's identity and a query's differ in, in words."""
    if found["version"] != mine["version"]:
        return [f"the layout of state (version {found['version']}, now {mine['version']})"]
    before, now = _parts(found), _parts(mine)
    folders = [" and ".join(m["folders"]) or "no folder" for m in (found, mine)]
    return [
        f"the query ({_plan_change(found['plan'], mine['plan'])})"
        if what == "the query"
        else f"{what} ({_PARTS[what](before[what])}, now {_PARTS[what](now[what])})"
        for what in _PARTS
        if before[what] != now[what]
    ] + ([f"the folders written into ({folders[0]}, now {folders[1]})"] if folders[0] != folders[1] else [])


def _parts(identity: Mapping[str, Any]) -> dict[str, str]:
    return dict(zip(_PARTS, identity["fingerprint"].split("/"), strict=True))


def _plan_change(before: Sequence[str], now: Sequence[str]) -> str:
    """The lines of a plan that are not the other's: ``a; b, now c``."""
    lines = list(difflib.ndiff(before, now))
    gone, new = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return f"{_few(gone)}, now {_few(new)}" if gone or new else "in what its plan does not show"


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
