"""Queries that change in-process: a run of some queries, and others that go on from its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results, choose_egress
from streamq.compiler.stages import compile_stages
from streamq.plan.node import number_sources
from streamq.run.prepared_stream import compile_to_fit
from streamq.run.storage.checkpoint import identity_of
from streamq.runtime.hosts.identity import Fit, Identity, fit_to_state
from streamq.runtime.state.baskets import Baskets, DictStore

Outputs = str | Sequence[str]
"""The output of all queries, or that of each."""


class ChangingRun:
    """A run in-process, of queries that may be replaced by others between two micro-batches."""

    def __init__(self, *queries: sq.Stream, output: Outputs = "final", ctis: bool = False, **options: Any):
        written, settings = _settings(queries, output, ctis, {"buckets": 2, **options})
        plan = number_sources(written)[0]
        program = compile_stages(plan, settings)
        self.run = LocalRun(program, identity=identity_of(program))

    def changed(self, *queries: sq.Stream, output: Outputs = "final", ctis: bool = False, **options: Any) -> Self:
        """Let other queries go on; raise CheckpointError, in the name of ``run``, if they do not fit."""
        fit, program, identity = self._fit(queries, output, ctis, options)
        fit.check("run")
        self.run = replace(self.run.go_on(program), identity=identity)
        return self

    def fit(self, *queries: sq.Stream, output: Outputs = "final", ctis: bool = False, **options: Any) -> Fit:
        """Return how other queries fit the state."""
        return self._fit(queries, output, ctis, options)[0]

    def _fit(self, queries: Sequence[sq.Stream], output: Outputs, ctis: bool, options: dict[str, Any]) -> Any:
        written, settings = _settings(queries, output, ctis, {"buckets": 2, **options})
        stored = self.identity
        program, identity = compile_to_fit(number_sources(written)[0], settings, stored)
        return fit_to_state(stored, identity), program, identity

    @property
    def identity(self) -> Identity:
        """The identity whose state it is."""
        assert self.run.identity is not None
        return self.run.identity

    @property
    def scopes(self) -> set[str]:
        """The names of all scopes in the state."""
        return {name for store in self.run.stores.values() for name in Baskets(DictStore(store)).scopes}

    def batch(self, rows: dict[str, pa.Table], **how: Any) -> list[pa.Table]:
        """Run a micro-batch; return the deltas of each result."""
        self.run.batch(rows, **how)
        return self.run.deltas

    def finish(self) -> list[pa.Table]:
        """End the input; return the deltas of each result."""
        self.run.finish()
        return self.run.deltas


def _settings(queries: Sequence[sq.Stream], output: Outputs, ctis: bool, options: dict[str, Any]) -> Any:
    """Return the queries under one root, and the options of their run."""
    plans = [query.plan for query in queries]
    outputs = [output] * len(plans) if isinstance(output, str) else output
    egresses = tuple(
        choose_egress(plan, OutputForm(out), ctis=ctis and out == "changelog", verb="run")
        for plan, out in zip(plans, outputs, strict=True)
    )
    return Results.from_plans(plans), Options(egresses=egresses, **options)
