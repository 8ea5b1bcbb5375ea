"""Queries that change in-process: a run of some queries, and others that go on from its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results, choose_egress
from streamq.compiler.stages import compile_stages
from streamq.errors import CheckpointError
from streamq.plan.node import number_sources
from streamq.policies import Level
from streamq.run.prepared_stream import compile_to_fit
from streamq.run.storage.checkpoint import identity_of
from streamq.runtime.hosts.identity import Fit, Identity, fit_to_state
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.testing.history import net, same_history

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


# outputs that change

FORMS: dict[str, dict[str, Any]] = {
    "final": {},
    "changelog": {"output": "changelog"},
    "early": {"output": "changelog", "early": True},
    "upsert": {"output": "upsert"},
    "ctis": {"output": "changelog", "ctis": True},
    "in order": {"output": "changelog", "ctis": True, "level": Level(None)},
}
"""The forms of output, with the options of a run in each."""

Turn = tuple[str, ...]
"""The form of each result; those of one run are equal in all but the output."""


def arguments(turn: Turn) -> dict[str, Any]:
    return {"buckets": 1, **FORMS[turn[0]], "output": [FORMS[form].get("output", "final") for form in turn]}


def outputs_in_turns(
    queries: Sequence[sq.Stream],
    tables: Mapping[str, pa.Table],
    turns: Sequence[Turn],
    static: Mapping[str, pa.Table] | None = None,
) -> list[str]:
    """Run queries whose results change their forms; give, for each change, "goes on" or the error, with which it ends.

    After each turn it has sent what a run in that form throughout has sent. Rows of a changelog that were not final when final
    rows begin are left out: they come again. ``tables`` are the rows of the sources, ``static`` other tables.
    """
    steady = {turn: ChangingRun(*queries, **arguments(turn)) for turn in turns}
    by_turn: dict[Turn, list[list[pa.Table]]] = {turn: [[] for _ in queries] for turn in steady}
    changing = ChangingRun(*queries, **arguments(turns[0]))
    for run in (changing, *steady.values()):
        run.run.static = static or {}
    sent: list[list[pa.Table]] = [[] for _ in queries]
    verdicts = []
    for number, turn in enumerate(turns):
        if number:
            try:
                changing = changing.changed(*queries, **arguments(turn))
            except CheckpointError as error:
                return [*verdicts, str(error)]
            verdicts.append("goes on")
            for place, form in enumerate(turn):
                if form == "final" != turns[number - 1][place]:
                    sent[place] = list(by_turn[turn][place])
        batch = {n: table.slice(*_part(table, number, len(turns))) for n, table in tables.items()}
        is_last = number == len(turns) - 1
        for run, out in ((changing, sent), *((steady[turn], by_turn[turn]) for turn in steady)):
            for part in [run.batch(batch), *([run.finish()] if is_last else [])]:
                for tables_so_far, table in zip(out, part, strict=True):
                    tables_so_far.append(table)
        # what has been sent does not go back into order
        if is_last or len({"in order" in earlier for earlier in turns[: number + 1]}) == 1:
            for place, so_far in enumerate(sent):
                difference = same_history(net(so_far), net(by_turn[turn][place]))
                assert difference is None, f"{turns[: number + 1]}, result {place + 1}\n{difference}"
    return verdicts


def _part(table: pa.Table, number: int, of: int) -> tuple[int, int]:
    """The offset and the length of a part of a table."""
    begin, end = (table.num_rows * at // of for at in (number, number + 1))
    return begin, end - begin
