"""The room of physical sources: inserts, retractions and CTIs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import Invalid
from streamq.errors import InvalidEvent, sentence
from streamq.operators import Physical
from streamq.plan.schema import Field
from streamq.progress.explicit import ExplicitCtis
from streamq.runtime.event import CTI, INSERT, RETRACT
from streamq.testing.arrival import Item, comparable_payload, count_distinct, end_ticks
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.expressions import keys, listed, payload, same
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column, events_of, keyed, no_start, payload_of, representatives
from streamq.testing.program_text import string
from streamq.testing.python_values import comparable
from streamq.testing.sources.physical_model import PhysicalModel
from streamq.testing.sources.room import Arriving, Draw, SourceRoom
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.testing.scale import Scale


@defines(Physical)
def physical(node: Physical, inputs: Sequence[str], run: Run) -> str:
    """Count lifetimes: an insert adds one, a retraction adds one of the new lifetime and subtracts one of the lifetime it names.

    With ids, a retraction names its event by id and end, and start and payload are the insert's; without ids, by start, end and
    payload. An id names one event: equal inserts of an id count once, and of different ones only the least by start, end,
    payload is valid. If some end of an event would have a negative count, equal retractions of it count once as well. A
    negative count is an error of the source; under ``invalid="drop"`` the retractions that arrived last are dropped, with those
    that depend on them. Empty lifetimes and CTIs are dropped.
    """
    kind, start = f"lower({column(node, node.kind)})", column(node, node.start)
    end, new_end = (f"coalesce({column(node, name)}, {INFINITY})" for name in (node.end, node.new_end))
    rows = events_of(node, run, f"""
        SELECT n, {kind} = 'insert' AS inserts, {listed(f"{start} AS le", f"{end} AS re", f"{new_end} AS new_re")}, CASE
            WHEN {kind} IS NULL OR {kind} NOT IN ('insert', 'retract') THEN 'neither insert, retract nor cti'
            {no_start(start)}
            WHEN NOT {start} < {end} THEN 'end before start'
            WHEN {kind} = 'retract' AND {new_end} < {start} THEN 'new end before start' END AS bad
            {"".join(f", {column}" for column in payload_of(node))}
        FROM {run.source(node)} WHERE {kind} IS DISTINCT FROM 'cti'""")  # fmt: skip
    names, columns = keys(node.schema), payload(node.schema)
    key = [c for c, f in zip(names, node.payload, strict=True) if f.name == node.id] if node.id else names
    rows = keyed(node, run, rows)
    if node.id:
        rows = _one_event_per_id(node, run, rows, key)
    values = [] if node.id else representatives(node)

    def counted(rows: str) -> str:
        return run.table(f"""
            SELECT {listed("le", "re", *key, *values)}, sum(w) AS w FROM (
                SELECT *, CASE WHEN inserts THEN 1 ELSE -1 END AS w FROM {rows}
                UNION ALL SELECT * REPLACE (new_re AS re), 1 FROM {rows} WHERE NOT inserts
            ) GROUP BY {listed("le", "re", *key)}""")  # fmt: skip

    totals = counted(rows)
    while run.value(f"SELECT count(*) FROM {totals} WHERE w < 0"):
        if node.policy.invalid_in(False) == Invalid.FAIL:
            wrong = "a retraction that matches nothing"
            raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", wrong))
        place = f"row_number() OVER (PARTITION BY {listed('inserts', 'le', 're', *key)} ORDER BY n DESC)"
        rows = run.table(f"""
            SELECT a.* EXCLUDE (place) FROM (SELECT *, {place} AS place FROM {rows}) a
            JOIN {totals} b ON {same(["le", "re", *key])} WHERE a.inserts OR a.place > -b.w""")  # fmt: skip
        totals = counted(rows)
    living = run.table(f"SELECT * EXCLUDE (w), unnest(range(CAST(w AS BIGINT))) AS copy FROM {totals}")
    if not node.id:
        return f"SELECT {listed('le', 're', *columns)} FROM {living} WHERE le < re"
    return f"""
        SELECT {listed("a.le", "a.re", *(f"b.{c}" for c in columns))}
        FROM {living} a JOIN {rows} b ON {same(key)} AND b.inserts WHERE a.le < a.re"""


def _one_event_per_id(node: Physical, run: Run, rows: str, key: list[str]) -> str:
    """Return rows in which each id names one event: without repetitions, and with the insert's start in retractions."""
    names = keys(node.schema)
    values = [c for c in payload(node.schema) if c not in names]
    columns = listed("inserts", "le", "re", "new_re", *names, *values)
    order = listed("le", "re", *(f"{c} NULLS FIRST" for c in names))
    inserts = events_of(node, run, f"""
        SELECT *, CASE WHEN row_number() OVER (PARTITION BY {listed(*key)} ORDER BY {order}) > 1
            THEN 'two events of one id' END AS bad
        FROM (SELECT min(n) AS n, inserts, le, re, CAST(NULL AS BIGINT) AS new_re, {listed(*names, *representatives(node))}
            FROM {rows} WHERE inserts GROUP BY {listed("inserts", "le", "re", *names)})""")  # fmt: skip
    moves = run.table(f"""
        SELECT a.n, false AS inserts, coalesce(b.le, a.le) AS le, a.re, a.new_re,
            {listed(*(f"a.{c}" for c in (*names, *values)))},
            row_number() OVER (PARTITION BY {listed(*(f"a.{c}" for c in key), "a.re", "a.new_re")} ORDER BY a.n) AS turn
        FROM {rows} a LEFT JOIN {inserts} b ON {same(key)} WHERE NOT a.inserts""")  # fmt: skip
    ids = listed(*key)
    torn = run.table(f"""
        SELECT DISTINCT {ids} FROM (
            SELECT {ids}, re AS instant, 1 AS w FROM {inserts}
            UNION ALL SELECT {ids}, re, -1 FROM {moves}
            UNION ALL SELECT {ids}, new_re, 1 FROM {moves}
        ) GROUP BY {listed(ids, "instant")} HAVING sum(w) < 0""")  # fmt: skip
    return run.table(f"""
        SELECT n, {columns} FROM {inserts}
        UNION ALL SELECT n, {columns} FROM {moves} a
        WHERE turn = 1 OR NOT EXISTS (SELECT 1 FROM {torn} b WHERE {same(key)})""")


class PhysicalRoom(SourceRoom[Physical]):
    """The room of :class:`Physical`."""

    kind = Physical
    simplicity = 3
    shapes = ("physical", "physical_ids")
    items = (INSERT, RETRACT, CTI)
    model = PhysicalModel
    usual_progress = ExplicitCtis()
    late_by_start = False

    def id_of(self, source: Physical) -> str | None:
        return source.id

    def row(self, source: Physical, item: Item) -> dict[str, Any]:
        times = {source.start: item.start, source.end: item.end, source.new_end: item.new_end}
        return {source.kind: item.kind, **times}

    def late_row(self, source: Physical, item: Item) -> dict[str, Any]:
        return {"kind": item.kind, "start": item.start, "end": item.end, "new_end": item.new_end}

    def repeated(self, source: Physical, events: Sequence[Item]) -> int:
        """Count repeated inserts and, of events that would leave an end more often than they reach it, repeated retractions."""
        if source.id is None:
            return 0
        repetitions = 0
        by_id: dict[Any, list[Item]] = {}
        for item in events:
            if item.kind != CTI:
                by_id.setdefault(comparable(item.payload[source.id]), []).append(item)
        for items in by_id.values():
            inserts, moves = ([i for i in items if i.kind == kind] for kind in (INSERT, RETRACT))
            totals = Counter(i.new_end for i in moves)
            totals.subtract(i.end for i in moves)
            totals.update(i.end for i in inserts[:1])
            repetitions += len(inserts) - count_distinct(inserts)
            repetitions += len(moves) - count_distinct(moves) if min(totals.values()) < 0 else 0
        return repetitions

    def unmatched(self, source: Physical, events: Sequence[Item]) -> int:
        """Count retractions of an end that their event never had."""
        names = [(i.payload[source.id] if source.id else (i.start, comparable_payload(i)), i) for i in events]
        ends = {(comparable(n), end_ticks(i.end if i.kind == INSERT else i.new_end)) for n, i in names}
        return sum(i.kind == RETRACT and (comparable(n), end_ticks(i.end)) not in ends for n, i in names)

    def is_plain(self, source: Physical, events: Sequence[Item]) -> bool:
        """True if inserts come before their retractions, and no two events of one start are equal in all columns."""
        model = PhysicalModel(source)
        inserts = [model.name(item) for item in events if item.kind == INSERT]
        ends: dict[Any, int] = {}
        moved = set(inserts)
        for item in events:
            name = model.name(item)
            if item.kind == RETRACT and name in moved and ends.get(name) != end_ticks(item.end):
                return False
            ends[name] = end_ticks(item.end if item.kind == INSERT else item.new_end)
        return len(moved) == len(inserts)

    def starts(self, source: Physical, run: Run) -> str:
        names = (source.kind, source.start, source.end, source.new_end)
        kind, start, end, new_end = (column(source, name) for name in names)
        return f"""
            SELECT {start} AS t FROM {run.source(source)}
            WHERE lower({kind}) IN ('insert', 'retract') AND ({end} <= {start}) IS DISTINCT FROM true
            AND (lower({kind}) = 'retract' AND {new_end} < {start}) IS DISTINCT FROM true"""

    def ctis(self, source: Physical, run: Run) -> str:
        kind, start = column(source, source.kind), column(source, source.start)
        return f"SELECT {start} AS t FROM {run.source(source)} WHERE lower({kind}) = '{CTI}'"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Physical:
        times = tuple(Field(n, time) for n in ("start", "end", "new_end"))
        columns = (Field("kind", t.StringType()), *times, *fields, *ids)
        id = ids[0].name if ids else None
        return Physical(name, columns, kind="kind", start="start", end="end", new_end="new_end", id=id)

    def arriving(self, draw: Draw, source: Physical, how: Arriving) -> list[Item]:
        # imported here to avoid a cycle: events are drawn at a scale, which imports the rooms
        from streamq.testing import events

        physical = events.physical(
            how.payloads,
            how.intent,
            how.scale,
            explicit=how.explicit,
            id=how.id,
            numbered=how.number,
            causal=how.causal,
        )
        items: list[Item] = draw(physical)
        return items

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        short = draw(st.sampled_from([0, 0, 1])) * scale.step
        last = max((time for item in items for time in item.times), default=scale.anchor)
        end = last + 3 * scale.step
        item: Item = draw(
            st.sampled_from(
                [
                    Item(INSERT, start, start - short, payload=payload),
                    Item(INSERT, None, start, payload=payload),
                    # no event has this end
                    Item(RETRACT, start, end, end - 2 * scale.step, payload),
                    Item(RETRACT, start, end, start - scale.step, payload),
                ]
            )
        )
        return item

    def written(self, source: Physical) -> tuple[str, list[str]]:
        names = ("kind", "start", "end", "new_end")
        roles = {name: getattr(source, name) for name in names if getattr(source, name) != name}
        roles |= {"id": source.id} if source.id else {}
        return "sq.physical", [f"{name}={string(column)}" for name, column in roles.items()]
