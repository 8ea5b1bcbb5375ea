"""Rows that arrive at a source, micro-batch by micro-batch: the events that are left of all, and what is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.time import INFINITY
from tests.programs import compiled

Row = tuple[Any, ...]


@dataclass
class Arrivals:
    """A run of one source with columns ``columns``, whose payload ``id`` tells its events apart."""

    source: sq.Stream
    columns: str
    buckets: int = 1
    level: Level = MIDDLE
    ctis: bool = False
    run: LocalRun = field(init=False)
    weights: Counter[Row] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        plan = number_sources(self.source.plan)[0]
        how: dict[str, Any] = {"buckets": self.buckets, "level": self.level, "ctis": self.ctis}
        self.run = LocalRun(compiled(plan, OutputForm.CHANGELOG, late_output=True, **how))

    def send(self, *rows: Row, c: int | None = None) -> list[Row]:
        """Send a micro-batch, perhaps a CTI after it, and return the deltas as (start, end, id, weight); no end is None."""
        (name,) = self.source.tables
        ctis = [] if c is None else [(None, c)]
        deltas = self.run.batch({name: t.table(self.columns, list(rows))}, ctis).to_pylist()
        sent = [(r[LE], None if r[RE] == INFINITY else r[RE], r["id"], r[WEIGHT]) for r in deltas]
        for *event, weight in sent:
            self.weights[tuple(event)] += weight
        assert all(weight >= 0 for weight in self.weights.values())
        return sorted(sent, key=repr)

    @property
    def events(self) -> list[Row]:
        """The events that are left, as (start, end, id)."""
        return sorted(self.weights.elements(), key=repr)

    @property
    def counted(self) -> dict[str, int]:
        """What has been set aside, by reason."""
        totals = Counter[str]()
        for counts in self.run.totals.values():
            totals.update({name.partition("|")[2]: n for name, n in counts.items()})
        return dict(+totals)

    @property
    def set_aside(self) -> list[dict[str, Any]]:
        """The rows of the late output."""
        return [row for table in self.run.late for row in table.to_pylist()]
