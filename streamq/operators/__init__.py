"""The operators: nodes, verbs, and forms in batch, as a stream and over groups."""

from __future__ import annotations

from streamq.operators.alter_lifetime import AlterLifetime
from streamq.operators.bags import Except, Union
from streamq.operators.clip import Clip, ToSignal
from streamq.operators.expansion import Explode, JoinTable
from streamq.operators.join import Join, WindowedJoin
from streamq.operators.latest_windows import LatestAggregate, LatestPairs, LatestWindows
from streamq.operators.merge_partials import MergePartials
from streamq.operators.operator import Operator
from streamq.operators.per_window import WindowSpan
from streamq.operators.scan import Scan
from streamq.operators.select import Attempt, Select, Where
from streamq.operators.source import Source
from streamq.operators.spans import Chop, DistinctIds, LastRows
from streamq.operators.top_k import TopK
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.node import NODES


def written_operators() -> list[type[Operator]]:
    """Return the operators of which users' queries consist, sorted by name; only the rewriter makes the others."""
    kinds = (NODES[name] for name in sorted(NODES))
    rewritten = Attempt | LatestAggregate | MergePartials | WindowSpan
    return [k for k in kinds if issubclass(k, Operator) and not issubclass(k, rewritten)]


__all__ = [
    "AlterLifetime", "Attempt", "Chop", "Clip", "DistinctIds", "Except", "Explode", "Join", "JoinTable",
    "LastRows", "LatestPairs", "LatestWindows", "MergePartials", "Scan", "Select", "Source", "ToSignal", "TopK", "Union",
    "Where", "WindowAggregate", "WindowSpan", "WindowedJoin", "written_operators",
]  # fmt: skip
