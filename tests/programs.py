"""Programs of a single result, for tests of what is below the language."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamq.choices import OutputForm
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.plan.node import Node
from streamq.policies import MIDDLE, Level
from streamq.runtime.state.baskets import BinSizes
from tests.judges import kernels


def compiled(
    plan: Node, output: str = OutputForm.FINAL, *, ctis: bool = False, level: Level = MIDDLE, **options: Any
) -> StagedPlan:
    """A plan compiled as it stands, with the default options but for those given."""
    out = Egress(OutputForm(output), ctis=ctis)
    return compile_stages(Results((plan,)), Options(egresses=(out,), level=level, **options), ())


def with_sizes(program: StagedPlan, sizes: BinSizes) -> StagedPlan:
    """The program with these sizes of bins in every kernel that has such."""

    stages = [
        replace(stage, hosted=tuple(replace(h, kernel=kernels.with_sizes(h.kernel, sizes)) for h in stage.hosted))
        for stage in program.stages
    ]
    return replace(program, stages=stages)
