"""Physical sources: inserts, retractions and CTIs; rows, items and definitions, and the model of what they admit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import CountReason, Invalid
from streamq.errors import InvalidEvent
from streamq.plan.schema import Field
from streamq.progress_policies import ExplicitCtis
from streamq.runtime.deltas import CTI, INSERT, RETRACT
from streamq.sources.physical import Physical
from streamq.testing.arrival import (
    Item,
    Scale,
    comparable,
    comparable_payload,
    count_distinct,
    end_or_none,
    end_ticks,
    start_of,
)
from streamq.testing.drawn_lifetimes import DuplicateFilter, arranged, copies, forbids_overlap, lifetimes, with_ctis
from streamq.testing.intent import Draw
from streamq.testing.oracle.run import Run, column, defines, events_of, keyed, no_start, payload_of, representatives
from streamq.testing.oracle.values import keys, listed, payload, same
from streamq.testing.program_text import column_lists, string
from streamq.testing.sources.room import Admission, ArrivalPlan, Reach, SourceModel, SourceRoom
from streamq.time import INFINITY


@dataclass
class _Event:
    """An event of a physical stream: its end in the source, and the pieces of it that the query reads.

    A retraction moves the end of the last piece. ``gone``: the event was dropped, and so will be further retractions of it.
    """

    start: int
    end: int
    payload: Mapping[str, Any]
    pieces: list[tuple[int, int]]
    gone: bool = False


class PhysicalModel(SourceModel[Physical]):
    """Inserts and retractions; a micro-batch is a bag in which inserts count before retractions.

    ``live``: the events by :meth:`name`. ``waiting``: retractions whose event has not come, each with True if it was late.
    """

    def __init__(self, source: Physical):
        super().__init__(source)
        self.live: dict[Any, _Event] = {}
        self.waiting: list[tuple[Item, bool]] = []

    def name(self, item: Item) -> Any:
        """Return the key by which a retraction is matched with its event: the id or, without ids, the start and the payload."""
        return comparable(item.payload[self.source.id]) if self.source.id else (item.start, comparable_payload(item))

    def repeated(self, events: Sequence[Item]) -> int:
        """Count repeated inserts and, of events that would leave an end more often than they reach it, repeated retractions.

        Return 0 for a source without ids.
        """
        if self.source.id is None:
            return 0
        repetitions = 0
        by_id: dict[Any, list[Item]] = {}
        for item in events:
            if item.kind != CTI:
                by_id.setdefault(comparable(item.payload[self.source.id]), []).append(item)
        for items in by_id.values():
            inserts, moves = ([i for i in items if i.kind == kind] for kind in (INSERT, RETRACT))
            totals = Counter(i.new_end for i in moves)
            totals.subtract(i.end for i in moves)
            totals.update(i.end for i in inserts[:1])
            repetitions += len(inserts) - count_distinct(inserts)
            repetitions += len(moves) - count_distinct(moves) if min(totals.values()) < 0 else 0
        return repetitions

    def unmatched(self, events: Sequence[Item]) -> int:
        """Count retractions of an end that their event never had."""
        names = [(i.payload[self.source.id] if self.source.id else (i.start, comparable_payload(i)), i) for i in events]
        ends = {(comparable(n), end_ticks(i.end if i.kind == INSERT else i.new_end)) for n, i in names}
        return sum(i.kind == RETRACT and (comparable(n), end_ticks(i.end)) not in ends for n, i in names)

    def is_plain(self, events: Sequence[Item]) -> bool:
        """True if no two inserts have one id (without ids: one start and payload), and their retractions follow in order.

        In order, each retraction names the end that the item before it set. Retractions of an event without any insert are plain.
        """
        inserts = [self.name(item) for item in events if item.kind == INSERT]
        ends: dict[Any, int] = {}
        moved = set(inserts)
        for item in events:
            name = self.name(item)
            if item.kind == RETRACT and name in moved and ends.get(name) != end_ticks(item.end):
                return False
            ends[name] = end_ticks(item.end if item.kind == INSERT else item.new_end)
        return len(moved) == len(inserts)

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Process the inserts of a micro-batch, then its retractions."""
        for item in items:
            if item.kind == INSERT:
                self._insert(item, at)
        for item in items:
            if item.kind == RETRACT:
                self._retract(item, at)

    def _insert(self, item: Item, at: Reach) -> None:
        """Add an event, in place of an earlier one of its name; count a late one, and drop it or let it start at c.

        One that has ended at c or before counts as dropped in either case.
        """
        start, end = start_of(item), end_ticks(item.end)
        event = _Event(start, end, item.payload, [(start, end)])
        self.live[self.name(item)] = event
        if start >= at.c:
            return
        self.admitted.late += 1
        if not self._acts(start, at):
            event.gone, event.pieces = True, []
            self._count(CountReason.DROPPED, item, at.c)
            return
        event.pieces = [(at.c, max(at.c, end))]
        self._count(CountReason.ADJUSTED if end > at.c else CountReason.DROPPED, item, at.c)

    def _retract(self, item: Item, at: Reach) -> None:
        """Move the end of the named event, or wait for it; a late retraction is dropped, or takes effect from c on.

        Late ones are counted, as adjusted or dropped, and so are all retractions of a dropped event, as dropped. A retraction
        that is dropped still moves the end that later ones name.
        """
        event = self.live.get(self.name(item))
        end, new_end = end_ticks(item.end), end_ticks(item.new_end)
        if event is None or event.end != end:
            self._wait(item, at)
            return
        event.end = new_end
        late = item.sync < at.c
        self.admitted.late += late
        if event.gone:
            self._count(CountReason.DROPPED, item, at.c)
            return
        if late and not self._acts(item.sync, at):
            # the part from c on would be an event of its own, which is dropped, so later retractions of it are too
            event.gone = end < at.c <= new_end
            self._count(CountReason.DROPPED, item, at.c)
            return
        start, own_end = event.pieces[-1]
        if late:
            new_end = max(new_end, at.c)
        if own_end <= at.c and min(end, own_end) < at.c:
            # a piece that ended before c is settled; the part from c on is a new piece, which later retractions move
            event.pieces.append((at.c, new_end))
            if late and new_end == at.c:
                self._count(CountReason.DROPPED, item, at.c)
                return
        else:
            event.pieces[-1] = (start, max(start, new_end))
        if late:
            self._count(CountReason.ADJUSTED, item, at.c)

    def _wait(self, item: Item, at: Reach) -> None:
        """Keep a retraction whose event has not come; count it as dropped if it is late and the policy does not adjust it.

        If c has passed the end that it names, it takes effect at once.
        """
        late = item.sync < at.c
        self.admitted.late += late
        acts = not late or self._acts(item.sync, at)
        if acts and end_ticks(item.end) >= at.c:
            self.waiting.append((item, late))
        elif acts:
            self._begin(item, at)
        else:
            self._count(CountReason.DROPPED, item, at.c)

    def _pass(self, at: Reach) -> None:
        """Give up waiting for the events of retractions whose end c has passed; at the end of the input, of all.

        Such a retraction takes effect from c on if its event could come in time by the source's own CTI; else it counts as
        invalid, or as dropped if it was late itself.
        """
        over = [(item, late) for item, late in self.waiting if end_ticks(item.end) < at.c or at.c == INFINITY]
        self.waiting = [pair for pair in self.waiting if pair not in over]
        for item, late in over:
            if end_ticks(item.end) >= at.promised < INFINITY:
                # by the source's own CTI the event could still have come in time
                self.admitted.late += 1
                self._begin(item, at)
            else:
                self._count(*(CountReason.DROPPED, item, at.c) if late else (CountReason.INVALID, item))

    def _begin(self, item: Item, at: Reach) -> None:
        """Admit the part from c on of an event whose insert did not come in time, so that only its retraction is known.

        Counts the retraction as adjusted; as dropped if no part is left.
        """
        start, end = start_of(item), end_ticks(item.new_end)
        self.live[self.name(item)] = _Event(start, end, item.payload, [(at.c, max(at.c, end))])
        self._count(CountReason.ADJUSTED if end > at.c else CountReason.DROPPED, item, at.c)

    def end(self) -> Admission:
        """End the input; return what the source admits, with each piece of an event that is not empty as an event."""
        super().end()
        for event in self.live.values():
            for start, end in event.pieces:
                if start < end:
                    until = None if end == INFINITY else end
                    self.admitted.events.append(Item(INSERT, start, until, payload=event.payload))
        return self.admitted


@defines(Physical)
def physical(node: Physical, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the events that are left, by counts of lifetimes.

    An insert adds one, a retraction adds one of the new lifetime and subtracts one of the lifetime it names.

    With ids, a retraction names its event by id and end, and start and payload are the insert's; without ids, by start, end and
    payload. An id names one event: equal inserts of an id count once, and of different ones only the least by start, end,
    payload is valid. If some end of an event would have a negative count, equal retractions of it count once as well. A
    negative count raises InvalidEvent, as other invalid rows do; under ``invalid="drop"`` the retractions that arrived last are
    dropped, with those that depend on them. Empty lifetimes and CTIs are dropped.
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
        """Return the table of lifetimes by key with their counts ``w``: inserts, less retractions from it, plus those to it."""
        return run.table(f"""
            SELECT {listed("le", "re", *key, *values)}, sum(w) AS w FROM (
                SELECT *, CASE WHEN inserts THEN 1 ELSE -1 END AS w FROM {rows}
                UNION ALL SELECT * REPLACE (new_re AS re), 1 FROM {rows} WHERE NOT inserts
            ) GROUP BY {listed("le", "re", *key)}""")  # fmt: skip

    totals = counted(rows)
    while run.value(f"SELECT count(*) FROM {totals} WHERE w < 0"):
        if node.policy.invalid_in(False) == Invalid.FAIL:
            wrong = "a retraction that matches nothing"
            raise InvalidEvent(f"source {node.shown_name()}", "a row is no event", wrong)
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
    """Return rows in which each id names one event: equal inserts count once, and retractions have the start of their insert.

    Equal retractions count once where some end of the event would else have a negative count. ``key``: the columns of the id.
    Raises InvalidEvent for different inserts of an id, unless ``invalid`` drops them; then the least stays.
    """
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
        return {source.kind: _written_kind(item), **times}

    def late_row(self, source: Physical, item: Item) -> dict[str, Any]:
        return {"kind": item.kind, "start": item.start, "end": item.end, "new_end": item.new_end}

    def starts(self, source: Physical, run: Run) -> str:
        """Return a query for the starts ``t`` of inserts and retractions whose ends are in order; NULL for a row without one."""
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
        """Return a physical source with these fields, whose ids, if there are any, are in the first of ``ids``."""
        times = tuple(Field(n, time) for n in ("start", "end", "new_end"))
        columns = (Field("kind", t.StringType()), *times, *fields, *ids)
        id = ids[0].name if ids else None
        return Physical(name, columns, kind="kind", start="start", end="end", new_end="new_end", id=id)

    def arriving(self, source: Physical, how: ArrivalPlan) -> st.SearchStrategy[list[Item]]:
        return physical_items(how)

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        """Draw an insert without a start or a lifetime, or a retraction of an end that no event has."""
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
        """Return ``sq.physical`` and, as text, the columns with other names than by default, the id, and those beside."""
        names = ("kind", "start", "end", "new_end")
        roles = {name: getattr(source, name) for name in names if getattr(source, name) != name}
        roles |= {"id": source.id} if source.id else {}
        arguments = [f"{name}={string(column)}" for name, column in roles.items()]
        return "sq.physical", [*arguments, *column_lists(beside=source.beside)]


@st.composite
def physical_items(draw: Draw, how: ArrivalPlan) -> list[Item]:
    """Draw inserts, chains of retractions that shorten, extend, open or delete, corrections of deleted events, and CTIs.

    They are in order of arrival, with CTIs only if ``how`` is explicit. A deleted event may come again at another start. With
    ids each event has its own, and its items may be delivered again.
    """
    id, intent, scale = how.id, how.intent, how.scale
    lengths, ends = (
        (["shorten"], ["delete"])
        if forbids_overlap(intent)
        else (["shorten", "extend", "step", "meet", "pass", "pass"], ["delete", "delete", "open"])
    )
    moves = st.one_of(
        st.tuples(st.sampled_from(lengths), st.integers(0, 12)), st.tuples(st.sampled_from(ends), st.just(0))
    )
    most = 0 if intent.speculation is False else 3
    moved = st.lists(moves, max_size=most, min_size=1 if intent.speculation else 0)
    chained: list[tuple[int, Item]] = []
    chain = 0
    once = DuplicateFilter(intent)
    spans = draw(lifetimes(intent, scale))
    if intent.overlap is None and intent.pattern is None and draw(st.sampled_from([False, True])):
        spans = _in_pairs(spans)
    confined = forbids_overlap(intent) or intent.pattern is not None
    moving = most > 0 and not confined and draw(st.sampled_from([False, False, False, True]))
    instants = sorted({time for span in spans for time in span if time < INFINITY} | set(scale.edges(scale.anchor)))
    for start, end in spans:
        payload, chosen = draw(how.payloads), draw(moved)
        if moving and draw(st.booleans()):
            chosen = [("delete", 0)]
        if not once.is_new(Item(INSERT, start, payload=payload)):
            continue
        for copy in range(draw(copies(intent))):
            own_payload = {**payload, id: how.number(chain)} if id else payload
            # a copy is mostly not retracted; else both copies change, each in its own way
            copy_moves = draw(moved) if copy and draw(st.booleans()) else ()
            others = [other for at, other in spans if at == start and other not in (end, start + scale.step, INFINITY)]
            items = _chain(start, end, copy_moves if copy else chosen, own_payload, scale, instants, others)
            if id:
                items = _before_repetition(items)
                items += _redelivered(items, draw(st.integers(0, len(items) - 1))) if draw(copies(intent)) > 1 else []
            chained += [(chain, item) for item in items]
            chain += 1
        last = items[-1]
        if last.kind == RETRACT and last.new_end == start and (moving or draw(st.booleans())):
            # move the event: insert it again a step before or after another event's start, often past the nearest one
            other = draw(st.sampled_from(spans))[0]
            nearest = _neighbours(start, spans)
            if nearest and draw(st.booleans()):
                other = draw(st.sampled_from(nearest))
            to = other + draw(st.sampled_from([-1, 1])) * scale.step
            moved_to = Item(INSERT, to, end_or_none(end if end == INFINITY else end - start + to), payload=payload)
            if to != start and not confined and once.is_new(Item(INSERT, to, payload=payload)):
                own_payload = {**payload, id: how.number(chain)} if id else payload
                # it belongs to the chain of its deletion, which it follows
                chained.append((chain - 1, replace(moved_to, payload=own_payload)))
                chain += 1
        elif last.kind == RETRACT and last.new_end == start and draw(st.booleans()):
            # correct the deleted event: insert it with another payload, or with one column changed
            corrected = draw(how.payloads)
            if id is None and draw(st.booleans()):
                corrected = {**payload, **_single_column(corrected, draw(st.integers(0, len(corrected) - 1)))}
            if once.is_new(Item(INSERT, start, payload=corrected)):
                own_payload = {**corrected, id: how.number(chain)} if id else corrected
                chained.append((chain, Item(INSERT, start, last.end, payload=own_payload)))
                chain += 1
    causal = draw(st.sampled_from([False, False, True])) if how.causal is None else how.causal
    items = draw(arranged(chained, intent, causal))
    return draw(with_ctis(items, intent, scale)) if how.explicit else items


def _chain(
    start: int,
    end: int,
    moved: Sequence[tuple[str, int]],
    payload: Mapping[str, Any],
    scale: Scale,
    instants: Sequence[int],
    others: Sequence[int],
) -> list[Item]:
    """Return an insert and its retractions, each of which names the end that the item before it set.

    ``moved`` lists (kind of move, by) for each retraction; one that would change nothing is left out, a deletion is the last.
    ``instants`` are starts and ends of all events, ``others`` the finite ends of events with the same start.
    """
    items = [Item(INSERT, start, end_or_none(end), payload=payload)]
    step, unit = scale.step, scale.units[0]
    for kind, by in moved:
        by, to = max(by, int(scale.is_coarse)), end
        if kind == "shorten" and end - start > step:
            to = start + step + (by * unit if end == INFINITY else by * unit % (end - start - step) // step * step)
        elif kind == "extend" and end < INFINITY:
            to = end + step + by * unit
        elif kind == "step" and end < INFINITY:
            # a small move, mostly within the same window
            to = max(start + step, end + (by % 4 - 1) * step)
        elif kind == "pass" and others:
            # move the end past that of another event of this start
            other = others[by % len(others)]
            to = other + step if end <= other else max(start + step, other - step)
        elif kind in ("meet", "pass") and (after := [time for time in instants if time > start]):
            to = after[by % len(after)]
        elif kind == "open":
            to = INFINITY
        elif kind == "delete":
            to = start
        if to != end:
            items.append(Item(RETRACT, start, end_or_none(end), end_or_none(to), payload))
        end = to
        if end == start:
            break
    return items


def _in_pairs(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the lifetimes with every second one moved, at its length, to the start of the one before it.

    So only their ends order them.
    """
    paired = []
    for i, (start, end) in enumerate(spans):
        to = spans[i - 1][0] if i % 2 else start
        paired.append((to, end if end == INFINITY else end - start + to))
    return paired


def _neighbours(start: int, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the greatest start before an event's and the least one after it, as far as they exist."""
    before, after = ([at for at, _ in spans if at < start], [at for at, _ in spans if at > start])
    return [*([max(before)] if before else []), *([min(after)] if after else [])]


def _single_column(payload: Mapping[str, Any], which: int) -> dict[str, Any]:
    """Return the payload's column at position ``which``."""
    return dict([list(payload.items())[which]])


def _before_repetition(items: list[Item]) -> list[Item]:
    """Return the items before the first retraction that equals an earlier one; with ids it would count as a repetition."""
    moves = [(item.end, item.new_end) for item in items]
    first = next((i for i, move in enumerate(moves) if i and move in moves[1:i]), len(items))
    return items[:first]


def _redelivered(items: list[Item], since: int) -> list[Item]:
    """Return the items of an event that are delivered again: those from ``since`` on.

    If the event had one end twice, only its insert is delivered again.
    """
    ends = [items[0].end, *(item.new_end for item in items[1:])]
    return items[since:] if len(set(ends)) == len(ends) else items[:1]


def _written_kind(item: Item) -> str:
    """Return an item's kind as its row writes it: in small letters or, for a third of the items, in capitals."""
    style = len(repr(item)) % 6
    return item.kind.upper() if style == 0 else item.kind.capitalize() if style == 1 else item.kind
