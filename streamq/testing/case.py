"""Cases: a query, what arrives at its sources and how that is cut; the concrete trees of the test framework (section 4)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streamq.compiler.operators import Source
from streamq.compiler.plan import Node, nodes
from streamq.stream import Stream
from streamq.testing.arrival import Item, table
from streamq.testing.oracle import oracle

Arrival = tuple[tuple[str, Item], ...]


@dataclass(frozen=True)
class Case:
    """A query and what arrives: ``arrival`` holds (source, item) in order, ``cut`` the lengths of its micro-batches.

    ``static`` are the tables that the query looks up, by name; ``until`` bounds windows of lifetimes without an end.
    ``tables`` are all rows by source, ``batches`` the same by micro-batch, ``answer()`` is the history to expect.
    """

    plan: Node
    arrival: Arrival
    cut: tuple[int, ...]
    until: int | None = None
    static: Mapping[str, pa.Table] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, Source]:
        """The plan's sources by name."""
        return {node.table: node for node in nodes(self.plan) if isinstance(node, Source)}

    @property
    def tables(self) -> dict[str, pa.Table]:
        """All rows of each source in order of arrival, and the static tables."""
        return {**self._tables(self.arrival), **self.static}

    @property
    def batches(self) -> list[dict[str, pa.Table]]:
        """The micro-batches in order; each has a table for every source, maybe an empty one."""
        ends = list(itertools.accumulate(self.cut))
        return [self._tables(self.arrival[b - n : b]) for b, n in zip(ends, self.cut, strict=True)]

    def _tables(self, arrival: Sequence[tuple[str, Item]]) -> dict[str, pa.Table]:
        return {name: table(node, [item for of, item in arrival if of == name]) for name, node in self.sources.items()}

    @property
    def latest(self) -> int:
        """The greatest finite instant that arrives; 0 if there is none."""
        return max((time for _, item in self.arrival for time in item.times), default=0)

    @property
    def query(self) -> Stream:
        """The query over its rows as literal tables."""
        return Stream(self.plan, self.tables)

    def answer(self, expressions: str = "translated") -> pa.Table:
        """The oracle's history of the plan's answer; ``expressions`` as :func:`streamq.testing.oracle.oracle` takes it."""
        return oracle(self.plan, self.tables, self.until, expressions)

    def with_cut(self, *cut: int) -> Case:
        """The same rows cut otherwise; with no lengths, after every row."""
        return replace(self, cut=cut or (1,) * len(self.arrival))

    def __repr__(self) -> str:
        found = nodes(self.plan)
        names = {node.digest: f"q{i}" for i, node in enumerate(found)}
        lines = ["Case of"]
        for node in found:
            inputs = ", ".join(names[c.digest] for c in node.children)
            lines.append(f"  {names[node.digest]} = {node.title}({inputs}) {node.detail()}".rstrip())
            if isinstance(node, Source):
                lines[-1] += f"; {node.policy}"
        rows = iter(self.arrival)
        for n in self.cut:
            lines.append("  micro-batch")
            lines += [f"    {name} {shown(item)}" for name, item in itertools.islice(rows, n)]
        return "\n".join(lines) + (f"\n  until {self.until}" if self.until is not None else "")


def shown(item: Item) -> str:
    """``insert [1, 5) v=3``."""
    end = "inf" if item.end is None else item.end
    moved = f" -> {'inf' if item.new_end is None else item.new_end}" if item.kind == "retract" else ""
    lifetime = f"[{item.start}, {end})" if item.kind in ("insert", "retract") else str(item.start)
    payload = ", ".join(f"{name}={value!r}" for name, value in item.payload.items())
    return f"{item.kind} {lifetime}{moved} {payload}".rstrip()


__all__ = ["Arrival", "Case", "shown"]
