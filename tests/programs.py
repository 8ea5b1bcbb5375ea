"""Programs of a single result, for tests of what is below the language."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.plan.node import Node
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import WEIGHT
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.runtime.state.baskets import BinSizes
from tests.judges import kernels


def compiled(
    plan: Node, output: str = OutputForm.FINAL, *, ctis: bool = False, level: Level = MIDDLE, **options: Any
) -> StagedPlan:
    """A plan compiled as it stands, with the default options but for those given."""
    out = Egress(OutputForm(output), ctis=ctis)
    return compile_stages(Results((plan,)), Options(egresses=(out,), level=level, **options), ())


def written_changelog(run: LocalRun, deltas: pa.Table) -> pa.Table:
    """A micro-batch's changelog with the CTIs that have moved in it, of a run whose first result has them."""
    ctis = run.promises[0]
    promised = ctis.append_column(WEIGHT, pa.array([1] * ctis.num_rows, pa.int64()))
    others = {f.name: pa.nulls(ctis.num_rows, f.type) for f in deltas.schema if f.name not in promised.column_names}
    whole = pa.table({**others, **{name: promised.column(name) for name in promised.column_names}})
    return changelog_rows(pa.concat_tables([deltas, whole.select(deltas.column_names)]))


def with_sizes(program: StagedPlan, sizes: BinSizes) -> StagedPlan:
    """The program with these sizes of bins in every kernel that has such."""

    stages = [
        replace(stage, hosted=tuple(replace(h, kernel=kernels.with_sizes(h.kernel, sizes)) for h in stage.hosted))
        for stage in program.stages
    ]
    return replace(program, stages=stages)
