"""The in-process host: the stages of a program over Arrow tables, without Spark; for tests, docs and tiny data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import Invalid
from streamq.compiler.program import Feed, Program, Relation
from streamq.errors import NeedsSpark, TimeError, sentence
from streamq.operators import Edges, Intervals, Physical, Points, Select, Source, Where
from streamq.operators.alter_lifetime import BREACH, AlterLifetime
from streamq.operators.alter_lifetime import RE as AT_END
from streamq.operators.join import INNER
from streamq.operators.join_table import JoinTable
from streamq.plan.expr import Expr
from streamq.plan.schema import Schema, key_types
from streamq.runtime.basket import Baskets, DictStore
from streamq.runtime.columnar import concat, decode, runs, with_column
from streamq.runtime.egress import split_ctis
from streamq.runtime.event import (
    BAD,
    CTI,
    INSERT,
    KEEP,
    KIND,
    LAST_POINT,
    LE,
    NEW_END,
    NO_START,
    OPENS,
    RE,
    RETRACT,
    WEIGHT,
    start_reasons,
)
from streamq.runtime.lifetimes import saturating
from streamq.runtime.overlap import matched_codes
from streamq.runtime.progress import Message, decode_messages
from streamq.runtime.readings import both, together
from streamq.runtime.stage import LATE, PROGRESS, READINGS, SPOKEN, TOTALS, Envelope, kept_rows, relation_of
from streamq.time import INFINITY, MINUS_INFINITY, show_ticks


@dataclass
class LocalRun:
    """A program running in-process: feed it micro-batches, take deltas. State survives in ``stores``, by stage and bucket.

    ``cti`` is the result's, where the program tells it (``Options.ctis``); ``told`` is what the stages said of themselves in
    the last micro-batch that had input (``runtime.readings``); ``restart()`` forgets everything but what a checkpoint would
    hold.
    """

    program: Program
    stores: dict[tuple[int, int], dict[str, bytes]] = field(default_factory=dict)
    late: list[pa.Table] = field(default_factory=list)
    totals: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    static: Mapping[str, pa.Table] = field(default_factory=dict)
    cti: int = MINUS_INFINITY
    told: dict[str, int] = field(default_factory=dict)

    def restart(self) -> LocalRun:
        """The same query, started again from its state."""
        stores = {k: dict(v) for k, v in self.stores.items()}
        return LocalRun(self.program, stores, list(self.late), dict(self.totals), self.static, self.cti)

    def batch(
        self,
        rows: Mapping[str, pa.Table],
        ctis: Iterable[tuple[str | None, int]] = (),
        until: int | None = None,
        wall: int = 0,
    ) -> pa.Table:
        """One micro-batch: raw rows by table name, and CTIs from outside ``(table or None for all, c)``; gives deltas.

        ``wall`` is the time of day, in milliseconds since 1970, of which only the readings tell.
        """
        envelopes: list[Envelope] = []
        readings: list[dict[str, int]] = []
        result: list[pa.Table] = []
        for relation in self.program.sources:
            assert relation.source is not None
            table = rows.get(relation.source.table)
            spoken = [
                Message(relation.name, c=c, until=until) for name, c in ctis if name in (None, relation.source.table)
            ]
            if table is None and not spoken:
                continue
            packer = self.program.packer([relation])
            read = [] if table is None else [source_rows(relation.source, table, self.program.options.streaming)]
            good, told, refused = packer.read_source(read)
            self._late(refused)
            if told is not None:
                spoken.append(told)
            merged = _merged(relation.name, spoken)
            envelopes += self._send(packer, [(relation, g) for g in good], [], merged, result)
        for stage in self.program.stages:
            out: list[Envelope] = []
            for bucket in range(stage.buckets):
                mine = [e for e in envelopes if e[0] == bucket]
                if mine:
                    baskets = Baskets(DictStore(self.stores.setdefault((stage.level, bucket), {})))
                    out += stage.run(bucket, baskets, mine, wall)
            readings += [json.loads(body) for _, number, body in out if number == READINGS]
            envelopes = self._between(stage.level, out, result)
        self.told = together(readings) or self.told
        deltas = _deltas(result, self.program)
        if self.program.options.ctis:
            deltas, cti = split_ctis(deltas)
            self.cti = max(self.cti, cti)
        return deltas

    def finish(self, until: int | None = None) -> pa.Table:
        """The end of every input: ``cti(inf)``, and the bound on windows of lifetimes without an end."""
        return self.batch({}, [(None, INFINITY)], until)

    def _late(self, envelopes: Iterable[Envelope]) -> None:
        self.late += [decode(body) for _, number, body in envelopes if number == LATE]

    def _between(self, level: int, out: list[Envelope], result: list[pa.Table]) -> list[Envelope]:
        """What lies between two stages: raw outputs go through their paths, progress to every bucket, the rest passes."""
        passed = [e for e in out if e[1] == PROGRESS or (e[1] >= 0)]
        self._late(out)
        for bucket, number, body in out:
            if number == TOTALS:
                self.totals[(level, bucket)] = json.loads(body)
        spoken = [m for _, number, body in out if number == SPOKEN for m in decode_messages(body)]
        relations = self.program.made_at(level + 1)
        by_number = {r.number: r for r in relations}
        tables = [(by_number[n], decode(body)) for _, number, body in out if (n := relation_of(number)) is not None]
        packer = self.program.packer(relations)
        done = {f.channel.number for f in self.program.result}
        result += [decode(body) for _, number, body in passed if number in done]
        return [e for e in passed if e[1] not in done] + self._send(packer, tables, spoken, None, result)

    def _send(
        self,
        packer: Any,
        tables: Sequence[tuple[Relation, pa.Table]],
        spoken: Sequence[Message],
        told: Message | None,
        result: list[pa.Table],
    ) -> list[Envelope]:
        lanes: dict[int, list[pa.Table]] = {}
        for relation, table in tables:
            for feed in self.program.feeds_of(relation):
                made = along(feed, relation.schema, table, self.static)
                if feed.channel.kernel < 0:
                    result.append(made)
                elif made.num_rows:
                    lanes.setdefault(feed.channel.number, []).append(made)
        return list(packer.pack(lanes, spoken, told))


def _merged(relation: str, messages: Sequence[Message]) -> Message | None:
    if not messages:
        return None
    until = next((m.until for m in messages if m.until is not None), None)
    c, w, reach = (max(values) for values in zip(*((m.c, m.w, m.furthest) for m in messages), strict=True))
    merged = Message(relation, c=c, w=w, until=until, reach=reach)
    for message in messages:
        merged.invalid |= message.invalid
        merged.looked = both(merged.looked, message.looked)
    return merged


def _deltas(result: list[pa.Table], program: Program) -> pa.Table:
    names = [*program.plan.schema.names, LE, RE, WEIGHT]
    full = []
    for table in result:
        if WEIGHT not in table.column_names:
            table = with_column(table, WEIGHT, np.ones(table.num_rows, np.int64))
        full.append(table.select(names))
    from streamq.runtime.arrow_expr import arrow_type

    kinds = [arrow_type(f.type) for f in program.plan.schema.fields] + [pa.int64()] * 3
    empty = pa.table([pa.array([], k) for k in kinds], names=names)
    return concat([empty, *(t.cast(empty.schema) for t in full)])


def along(feed: Feed, schema: Schema, table: pa.Table, tables: Mapping[str, pa.Table]) -> pa.Table:
    """A relation's rows at the end of a path: what the port takes."""
    keep = pa.array(np.ones(table.num_rows, bool))
    if KIND in table.column_names and KIND not in feed.lifetimes:
        keep = pc.not_equal(table.column(KIND), CTI)
    technical = {n: table.column(n) for n in table.column_names if n.startswith("__")}
    payload = {n: table.column(n) for n in schema.names}
    for step in feed.path.steps:
        if isinstance(step, Where):
            passed = _evaluate(step.predicate, step.input.schema, payload, technical, len(keep))
            keep = pc.and_(keep, pc.fill_null(passed, False))
            # what a filter has dropped must not be evaluated by what follows
            technical = {n: c.filter(keep) for n, c in technical.items()}
            payload = {n: c.filter(keep) for n, c in payload.items()}
            keep = pa.array(np.ones(pc.sum(keep).as_py() or 0, bool))
        elif isinstance(step, AlterLifetime):
            technical, stays = _altered(step, payload, technical, len(keep))
            technical = {n: c.filter(stays) for n, c in technical.items()}
            payload = {n: c.filter(stays) for n, c in payload.items()}
            keep = keep.filter(stays)
        elif isinstance(step, JoinTable):
            payload, at = _joined(step, payload, tables[step.table])
            technical = {n: c.take(at) for n, c in technical.items()}
            keep = keep.take(at)
        elif isinstance(step, Select):
            payload = {n: _evaluate(e, step.input.schema, payload, technical, len(keep)) for n, e in step.columns}
    rows = len(keep)
    made = {n: _evaluate(e, feed.path.schema, payload, technical, rows) for n, e in feed.columns}
    for name in feed.hashed:
        if name in made and pa.types.is_floating(made[name].type):
            # -0.0 and 0.0 are one key, and so is every NaN
            zero, nan = pa.scalar(0.0, made[name].type), pa.scalar(float("nan"), made[name].type)
            made[name] = pc.if_else(
                pc.equal(made[name], zero), zero, pc.if_else(pc.is_nan(made[name]), nan, made[name])
            )
    for name in feed.channel.columns:
        if name in made:
            continue
        if name == RE and RE not in technical:
            made[name] = pc.add(technical[LE], 1)
        elif name == WEIGHT and WEIGHT not in technical:
            made[name] = pa.array(np.ones(rows, np.int64))
        else:
            made[name] = technical[name]
    made[KEEP] = keep
    return kept_rows(pa.table(made), feed.channel.columns)


def _altered(
    step: AlterLifetime, payload: Mapping[str, Any], technical: Mapping[str, Any], rows: int
) -> tuple[dict[str, Any], pa.Array]:
    """The technical columns with the new lifetimes, and which events have one."""
    le = _array(technical[LE]).to_numpy()
    re = _array(technical[RE]).to_numpy() if RE in technical else le + 1
    source = step.input.schema
    start, length = step.start, step.length
    if start.expr is not None:
        made = _evaluate(start.expr, source, payload, technical, rows)
        gone = made.is_null().to_numpy(zero_copy_only=False)
        at = pc.fill_null(made, INFINITY).to_numpy(zero_copy_only=False)
        if start.within is not None and (early := at < saturating(le, -start.within)).any():
            found = f"found start {at[early][0]} of an event at {le[early][0]}"
            raise TimeError(sentence("alter_lifetime", BREACH, found))
    else:
        gone = np.zeros(rows, bool)
        at = saturating(re if start.anchor == AT_END else le, start.by)
    match length.kind:
        case "fixed":
            lasts = np.full(rows, length.by)
        case "given":
            assert length.expr is not None
            found = _evaluate(length.expr, source, payload, technical, rows)
            lasts = pc.fill_null(found, INFINITY).to_numpy(zero_copy_only=False)
        case _:
            with np.errstate(over="ignore"):
                long = re - le
            # a difference that overflows is longer than the axis: durations saturate
            long = np.where(long < 0, INFINITY, long)
            lasts = np.where(re == INFINITY, INFINITY, saturating(long, length.by))
    end = np.where(lasts == INFINITY, INFINITY, saturating(at, lasts))
    stays = ~gone & (lasts > 0) & (at < INFINITY) & (end > at)
    return {**technical, LE: pa.array(at), RE: pa.array(end)}, pa.array(stays)


def _joined(step: JoinTable, payload: Mapping[str, Any], table: pa.Table) -> tuple[dict[str, Any], pa.Array]:
    """The payload with the columns of matching rows of a static table, and which event each row is of."""
    from streamq.runtime.arrow_expr import arrow_type

    ours, theirs = {}, {}
    schema = Schema(step.columns, step.schema.axis)
    for i, ((a, b), common) in enumerate(zip(step.on, key_types(step.input.schema, schema, step.on), strict=True)):
        ours[f"k{i}"] = _key(_array(payload[a]), arrow_type(common))
        theirs[f"k{i}"] = _key(_array(table.column(b)), arrow_type(common))
    mine, others = matched_codes(pa.table(ours), pa.table(theirs), [(k, k) for k in ours])
    order = np.argsort(others, kind="stable")
    low, high = np.searchsorted(others[order], mine, "left"), np.searchsorted(others[order], mine, "right") - 1
    at, place = runs(low, np.where(mine >= 0, high, low - 1))
    row = pa.array(order[place])
    if step.how != INNER:
        alone = np.setdiff1d(np.arange(len(mine)), at)
        at, row = np.concatenate([at, alone]), pa.concat_arrays([row, pa.nulls(len(alone), pa.int64())])
    events = pa.array(at)
    made = {n: _array(c).take(events) for n, c in payload.items()}
    return {**made, **{to: _array(table.column(n)).take(row) for n, to in step.names}}, events


def _key(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # -0.0 and 0.0 are one key
    made = column.cast(kind)
    return pc.add(made, pa.scalar(0.0, kind)) if pa.types.is_floating(kind) else made


def _evaluate(expr: Expr, schema: Schema, payload: Mapping[str, Any], technical: Mapping[str, Any], rows: int) -> Any:
    from streamq.runtime.arrow_expr import evaluate

    def lifetime(part: str) -> Any:
        le = _array(technical[LE])
        re = _array(technical[RE]) if RE in technical else pc.add(le, 1)
        endless = pc.equal(re, INFINITY)
        if part == "start":
            return le.cast(_axis(schema))
        if part == "end":
            return pc.if_else(endless, None, re).cast(_axis(schema))
        # a difference that overflows is longer than the axis: durations saturate
        long = pc.subtract(re, le)
        return pc.if_else(endless, None, pc.if_else(pc.less(long, 0), INFINITY, long))

    return evaluate(expr, schema, {n: _array(c) for n, c in payload.items()}, lifetime, rows)


def _axis(schema: Schema) -> pa.DataType:
    from streamq.runtime.arrow_expr import arrow_type

    return arrow_type(schema.axis_type)


def _array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def source_rows(source: Source, table: pa.Table, streaming: bool) -> pa.Table:
    """Raw rows of a literal table as a source hands them on: lifetimes in ticks, payload, and why a row is no event.

    Under ``invalid="fail"`` the reason says the row's lifetime as well.
    """
    rows = table.num_rows
    payload = {f.name: table.column(f.name) for f in source.payload}

    def ticks(name: str, missing: int | None = None) -> Any:
        column = _array(table.column(name))
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)):
            raise NeedsSpark(
                sentence(
                    "source", f"column {name!r} of type {column.type} in-process", "", "Use integers or timestamps."
                )
            )
        made = (
            column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            if pa.types.is_timestamp(column.type)
            else column.cast(pa.int64())
        )
        return made if missing is None else pc.fill_null(made, missing)

    reason: Any = pa.nulls(rows, pa.string())

    def refuse_starts(last: int = INFINITY - 1) -> None:
        nonlocal reason
        reason = pc.coalesce(reason, start_reasons(technical[LE], last))

    def refuse(condition: Any, why: str) -> None:
        nonlocal reason
        reason = pc.if_else(pc.and_(pc.is_null(reason), pc.fill_null(condition, False)), why, reason)

    match source:
        case Points(time=time):
            technical: dict[str, Any] = {LE: ticks(time)}
            refuse_starts(LAST_POINT)
        case Intervals(start=start, end=end):
            technical = {LE: ticks(start), RE: ticks(end, INFINITY)}
            refuse_starts()
            refuse(pc.less_equal(technical[RE], technical[LE]), "end not after start")
        case Edges():
            schema = Schema(source.columns, source.schema.axis)
            columns = {f.name: table.column(f.name) for f in source.columns}
            opens = pc.fill_null(
                _evaluate(_same(source.edge, source.open), schema, columns, {LE: pa.nulls(rows, pa.int64())}, rows),
                False,
            )
            closes = pc.fill_null(
                _evaluate(_same(source.edge, source.close), schema, columns, {LE: pa.nulls(rows, pa.int64())}, rows),
                False,
            )
            technical = {LE: ticks(source.time), OPENS: opens}
            refuse_starts()
            refuse(pc.invert(pc.or_(opens, closes)), "neither a start nor an end")
        case Physical():
            kind = pc.utf8_lower(_array(table.column(source.kind)))
            technical = {
                KIND: kind,
                LE: ticks(source.start),
                RE: ticks(source.end, INFINITY),
                NEW_END: ticks(source.new_end, INFINITY),
            }
            known = pc.fill_null(pc.is_in(kind, pa.array([INSERT, RETRACT, CTI])), False)
            refuse(pc.invert(known), "a kind that is not insert, retract or cti")
            refuse(pc.is_null(technical[LE]), NO_START)
            reason = pc.coalesce(reason, pc.if_else(pc.equal(kind, CTI), None, start_reasons(technical[LE])))
            refuse(pc.and_(pc.not_equal(kind, CTI), pc.less_equal(technical[RE], technical[LE])), "end not after start")
            refuse(pc.and_(pc.equal(kind, RETRACT), pc.less(technical[NEW_END], technical[LE])), "new end before start")
        case _:
            raise NeedsSpark(sentence("source", f"no in-process form of {type(source).__name__}"))
    if source.policy.invalid_in(streaming) == Invalid.FAIL:
        reason = _with_lifetime(reason, technical, source.schema.axis)
    return pa.table({**technical, **payload, BAD: reason})


def _with_lifetime(reason: Any, technical: Mapping[str, Any], axis: str) -> Any:
    """The first reason with the row's start and end: it is the one that is told."""
    at = pc.index(pc.is_valid(reason), True).as_py()
    if at < 0:
        return reason
    parts = {
        name: technical[column][at].as_py() for name, column in (("start", LE), ("end", RE)) if column in technical
    }
    shown = ", ".join(
        f"{n} {'NULL' if v is None or (n, v) == ('end', INFINITY) else show_ticks(v, axis)}" for n, v in parts.items()
    )
    return pc.if_else(pa.array(np.arange(len(reason)) == at), f"{reason[at].as_py()} ({shown})", reason)


def _same(column: str, value: Expr) -> Expr:
    from streamq.plan.expr import Col

    return Col(column).eq_null_safe(value)
