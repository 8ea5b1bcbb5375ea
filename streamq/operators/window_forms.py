"""The batch forms of windows: partial results of ranges of windows are merged, others are copied, evaluated, or run in order.

Snapshot aggregates are computed without copying members into windows: of events that do not end by merging them in order, of
others as running sums if these can be subtracted.

Merging is the batch half of DataCell's "merge" (Liarou, Idreos, Manegold, Kersten: *Enhanced Stream Processing in a DBMS Kernel*,
section 3). An event belongs to the windows ``lo .. hi`` of a hopping grid and to no others. Events of one range have been
aggregated to one partial result; a window merges the partial results whose range contains its index. The content of windows
changes only where a range starts or has ended, at most two places per partial result. Every form but ``explode`` works at
those change points and writes a row per window only at the end; until then neither ``n`` nor an empty stretch of time costs
anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import DataType, DecimalType

from streamq.operators.grid_factory import partial_fields
from streamq.operators.operator import BatchChoice, BatchForm, BatchForms, shown_costs
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import Aggregates, expand, not_merged
from streamq.plan.expr import Col
from streamq.plan.lowering import lifetime, spark_expression
from streamq.plan.partial import Algebra, SparkPartial, WindowFrame, are_exact, spark_partials
from streamq.plan.schema import INTERVAL, Field, Schema, quote
from streamq.runtime.deltas import LE, RE
from streamq.runtime.partials.merging_sql import CountAlgebra, SubtractableAlgebra
from streamq.time import INFINITY
from streamq.windows import Window
from streamq.windows.batch_events import COUNT, ENDS, HI, INDEX, LO, STARTS

MANY_WINDOWS = 4
"""The number of windows of an event from which on a batch costs less without copies of it."""


@dataclass(frozen=True, kw_only=True)
class WindowForms:
    """The choice of a batch form for ``aggregates`` of events of ``source``.

    ``is_grouped``: there are keys of groups. ``endless``: no event ends.
    """

    aggregates: Aggregates
    source: Schema
    window: Window
    is_grouped: bool
    endless: bool

    def forms(self) -> BatchForms:
        """Return the forms, one of which computes all aggregates.

        Snapshots of events that do not end are merged in their order, for distinct counts the first event of each value; others
        are running sums if all aggregates are exact,
        else evaluated, as windows by numbers are: to copy their members their events would be read several times. Other windows
        copy their members, or are evaluated if Spark lacks one of the aggregates, or if the groups' events are in many windows
        each, of which no aggregate needs copies. But landmark windows with a period are copied if all aggregates merge: Spark
        adds up the copies before it sends them.
        """
        refused = {**self._refused_merging(), **self._refused_copies()}
        return BatchForms(cheapest=self._cheapest(refused), refused=refused)

    def _cheapest(self, refused: dict[BatchForm, str]) -> BatchChoice:
        """Return the form of the least cost; ``refused``: the forms that are not possible."""
        is_piecewise = self.window.traits.is_piecewise
        if is_piecewise and BatchForm.RUNNING not in refused:
            return BatchChoice(form=BatchForm.RUNNING, reason="no event ends: merged in the order of starts")
        if is_piecewise and BatchForm.DIFFERENCE not in refused:
            return BatchChoice(form=BatchForm.DIFFERENCE, reason="exact aggregates: added and taken off")
        if BatchForm.DIRECT in refused:
            return BatchChoice(form=BatchForm.EVALUATED, reason=refused[BatchForm.DIRECT])
        number = self.window.traits.windows_of_a_point
        copies = any(aggregate.function.copies_members for _, aggregate in self.aggregates)
        are_added_first = not self._not_merged and number < INFINITY
        # without keys one task would have to evaluate all events
        if number >= MANY_WINDOWS and self.is_grouped and not copies and not are_added_first:
            windows = f"{number} windows" if number < INFINITY else "all later windows"
            return BatchChoice(
                form=BatchForm.EVALUATED, reason=f"each event is in {windows}, which costs less without copies"
            )
        return BatchChoice(form=BatchForm.DIRECT, reason="Spark aggregates copies of the members")

    @property
    def _not_merged(self) -> str:
        """The aggregates that do not merge, as text; "" if all do."""
        return not_merged(self.aggregates, self.source)

    def _refused_copies(self) -> dict[BatchForm, str]:
        """Return the reason against copies of members, if they take several readings, or Spark lacks one of the aggregates."""
        if several_readings := why_not_copied(self.window):
            return {BatchForm.DIRECT: several_readings}
        functions = [aggregate.function for _, aggregate in self.aggregates]
        lacking = next((function for function in functions if not function.has_spark_form), None)
        return {} if lacking is None else {BatchForm.DIRECT: f"Spark has no aggregate for {lacking.name}"}

    def _refused_merging(self) -> dict[BatchForm, str]:
        """Return the reasons against the forms that merge partial results."""
        off_grid = "its windows are not on a grid"
        if self.window.traits.is_piecewise:
            in_order = CountOfFirsts.from_aggregates(self.aggregates, self.source)
            reasons = {
                **dict.fromkeys((BatchForm.EXPLODE, BatchForm.BLOCKS, BatchForm.DYADIC), off_grid),
                BatchForm.RUNNING: _in_spark(in_order.aggregates, in_order.schema)[0]
                or ("" if self.endless else "its events may end"),
                BatchForm.DIFFERENCE: self._refused_difference(),
            }
            return {form: reason for form, reason in reasons.items() if reason}
        unsplit = (off_grid if self.window.traits.grid is None else self._not_merged) or "its windows are not split"
        return {form: unsplit for form in BatchForm if form not in (BatchForm.DIRECT, BatchForm.EVALUATED)}

    def _refused_difference(self) -> str:
        unmerged, partials = _in_spark(self.aggregates, self.source)
        return unmerged or not_subtracted(partials)


def _in_spark(aggregates: Aggregates, source: Schema) -> tuple[str, list[SparkPartial]]:
    """Return why Spark cannot merge the aggregates, "" if it can, and the partial results of which it merges them."""
    if unmerged := not_merged(aggregates, source):
        return unmerged, []
    partials = spark_partials(expand(aggregates, source).partials)
    return ("partial results that Arrow makes and merges", []) if partials is None else ("", partials)


@dataclass(frozen=True)
class CountOfFirsts:
    """Aggregates of events that do not end, of which the distinct counts are counts of the first event of each value.

    ``counted``: the aggregates of which a column of ``schema`` says whether an event is such a first one, by that column.
    """

    aggregates: Aggregates
    schema: Schema
    counted: Mapping[str, Aggregate]

    @classmethod
    def from_aggregates(cls, aggregates: Aggregates, source: Schema) -> CountOfFirsts:
        """Return the aggregates over events of the schema ``source`` with the columns of first events added to it."""
        counted: dict[str, Aggregate] = {}
        restated = []
        for name, aggregate in aggregates:
            column = f"__first_{len(counted)}"
            of_firsts = aggregate.function.of_firsts(Col(column))
            restated.append((name, aggregate if of_firsts is None else of_firsts))
            if of_firsts is not None:
                counted[column] = aggregate
        fields = (Field(column, t.BooleanType()) for column in counted)
        return cls(tuple(restated), source.with_fields([*source.fields, *fields]), counted)

    def marked(self, df: DataFrame, source: Schema, keys: Sequence[str]) -> DataFrame:
        """Add the columns of first events to the events ``df``, which are of the schema ``source``."""
        columns = {}
        for column, aggregate in self.counted.items():
            values = [spark_expression(argument, source) for argument in aggregate.args]
            passes = [F.lit(True) if aggregate.where is None else spark_expression(aggregate.where, source)]
            counts = reduce(
                and_, (F.coalesce(is_met, F.lit(False)) for is_met in (*passes, *(v.isNotNull() for v in values)))
            )
            same = Over.partitionBy(*(quote(k) for k in keys), counts, *values).orderBy(LE)
            columns[column] = counts & (F.row_number().over(same) == 1)
        return df.withColumns(columns) if columns else df


def why_not_copied(window: Window) -> str:
    """Return the reason against copies of events into their windows, by :meth:`Window.copies`; "" if one reading is enough."""
    needs_several = window.traits.counting.n or window.traits.is_piecewise
    return f"to copy members of {window.name} windows, events are read several times" if needs_several else ""


def snapshots(
    source: Schema, keys: tuple[str, ...], aggregates: Aggregates, df: DataFrame, form: BatchForm
) -> DataFrame:
    """Return one row for each snapshot with members: the keys, the aggregates, ``__wle`` and ``__wre``.

    ``df`` has the events, of the schema ``source``. Each event is a partial result
    over the instants of its lifetime; the stretches with the same members are the snapshots. ``form``: DIFFERENCE, of exact
    partial results, or RUNNING, of events that do not end.
    """
    quoted = [quote(k) for k in keys]
    df = df.select(*lifetime(source), *(quote(n) for n in source.names))
    if form is BatchForm.RUNNING:
        in_order = CountOfFirsts.from_aggregates(aggregates, source)
        df = in_order.marked(df, source, keys)
        source, aggregates = in_order.schema, in_order.aggregates
    split = expand(aggregates, source)
    partials = spark_partials(split.partials)
    assert partials is not None and (form is BatchForm.RUNNING or are_exact(partials))
    values = {name: spark_expression(expr, source) for name, expr in split.arguments}
    columns = [column for partial in partials for column in partial.of_event(values)]
    ranges = (F.col(LE).alias(LO), (F.col(RE) - 1).alias(HI), F.lit(1).cast("bigint").alias(COUNT))
    stretches = running_stretches if form is BatchForm.RUNNING else merge_stretches
    rows = stretches(df.select(*quoted, *ranges, *columns), keys, partials)
    rows = rows.withColumnsRenamed({INDEX: STARTS, NEXT: ENDS})
    rows = rows.withColumn(ENDS, F.coalesce(ENDS, F.lit(INFINITY)))
    fields = [Field(k, source.type_of(k)) for k in keys]
    fields += partial_fields(split.partials)
    inner = source.with_fields(fields).with_shape(INTERVAL)
    return rows.select(*quoted, STARTS, ENDS, *(spark_expression(e, inner).alias(name) for name, e in split.outputs))


NEXT = "__next"
"""The column with the first window after a stretch of windows with the same members."""

FORMS = (BatchForm.DIFFERENCE, BatchForm.BLOCKS, BatchForm.EXPLODE, BatchForm.DYADIC)
"""The forms in which partial results are merged."""


def choose_form(
    shape: str, n: int, partials: Sequence[SparkPartial], per_event: float | None = None, most: int | None = None
) -> BatchChoice:
    """Choose the form in which to merge, and give the reason.

    ``shape``: ``"point"`` (declared lifetimes of one tick) or any other. ``n``: the greatest number of windows that contain one
    point. ``per_event``: how many partial results there are for an event, at most 1; ``most``: the most windows of an event; None
    if that is not known. DIRECT means to aggregate events without partials; :func:`merge_partials` does not take it. Points take
    the form with the least cost by :func:`costs_an_event`.
    """
    exact = not not_subtracted(partials)
    if shape != "point":
        if exact:
            return BatchChoice(form=BatchForm.DIFFERENCE, reason="exact aggregates: added and taken off")
        if most is not None and most <= MOST_COPIES:
            reason = f"at most {most} windows an event: partial results copied into them"
            return BatchChoice(form=BatchForm.EXPLODE, reason=reason)
        return BatchChoice(form=BatchForm.DYADIC, reason="ranges of any length")
    if n == 1:
        return BatchChoice(form=BatchForm.DIRECT, reason="every event lies in one window")
    costs = costs_an_event(n, USUAL if per_event is None else per_event, exact)
    form = min(costs, key=lambda form: costs[form])
    reasons = {
        BatchForm.DIRECT: f"n = {n}: too few windows an event for splitting to pay",
        BatchForm.EXPLODE: f"n = {n}: partial results copied into their windows",
        BatchForm.DIFFERENCE: f"n = {n}, exact aggregates: added and taken off",
        BatchForm.BLOCKS: f"n = {n}: a suffix and a prefix a window",
    }
    return BatchChoice(form=form, reason=reasons[form] + shown_costs(per_event, "partial results", costs))


def not_subtracted(partials: Sequence[SparkPartial]) -> str:
    """Return why partial results cannot be subtracted from running sums, as text; "" if they can: all are exact."""
    inexact = dict.fromkeys(partial.title for partial in partials if not partial.exact)
    return f"{', '.join(inexact)} cannot be subtracted exactly" if inexact else ""


MOST_COPIES = 64
"""The windows of an event up to which partial results of lifetimes are copied; nodes cost twice as much."""

USUAL = 0.125
"""The partial results an event where no rows are expected: one for 8 events of a group and basic window. Were it
one for 20, partial results would be copied into 4 windows, which costs twice what copying the events does where these are few;
where they are many, copying them costs a sixth more."""


def costs_an_event(n: int, per_event: float, exact: bool) -> dict[BatchForm, float]:
    """Return the cost of each form for points, an event; 1 is an event copied into one of its ``n`` windows, of a few groups.

    A copy costs more the more windows there are to keep apart. A form that splits pays for each partial result: it is copied
    into ``n`` windows (EXPLODE), or shuffled and sorted (DIFFERENCE, and BLOCKS, which sorts twice). The numbers are fitted to
    runs of each form over 1 M rows with 2 to 60 windows an event and 60, 10, 1 and 0.1 events a group and hop
    (``python -m benchmarks batch_forms``).
    """
    costs = {BatchForm.DIRECT: n * (1 + 7 * per_event), BatchForm.EXPLODE: 1.8 + per_event * (40 + 3 * n)}
    if exact:
        return {**costs, BatchForm.DIFFERENCE: 1.8 + per_event * 55}
    return {**costs, BatchForm.BLOCKS: 5.8 + per_event * 80}


def merge_partials(
    df: DataFrame, keys: Sequence[str], partials: Sequence[SparkPartial], n: int, form: BatchForm
) -> DataFrame:
    """Return one row per window with members: the keys, ``__i`` (bigint, its index), ``__n`` and the partials' columns.

    ``df`` has the keys, ``__lo`` and ``__hi`` (bigint, first and last window of the range, inclusive; no range is endless),
    ``__n`` (bigint, the number of events, > 0) and the columns of the partials, whose types do not change. A range may have
    several rows. ``n`` is size / hop, rounded up.

    ``difference`` needs exact partials, ``blocks`` ranges of declared points; ``explode`` and ``dyadic`` merge any partials over
    any ranges. All but ``explode`` hash by the keys: the rows of a key go to one task.

    Raises ``ValueError`` for any other form, and for ``difference`` over inexact partials; ranges are not checked. Under ANSI
    mode an integer or decimal sum that overflows fails the job.
    """
    if form not in FORMS:
        raise ValueError(f"merge_partials: no form {form!r} for partials; there are {', '.join(FORMS)}")
    if form == BatchForm.DIFFERENCE and not are_exact(partials):
        inexact = ", ".join(partial.name for partial in partials if not partial.exact)
        raise ValueError(f"merge_partials: difference needs exact aggregates; {inexact} cannot be subtracted")
    layout = _Layout.from_frame(df, keys, partials)
    stretches = _FORMS[form](layout.enter(df), layout, n)
    return layout.leave(stretches if form == BatchForm.EXPLODE else _spread(stretches, layout))


def merge_stretches(df: DataFrame, keys: Sequence[str], partials: Sequence[SparkPartial]) -> DataFrame:
    """Return the result of ``difference`` with a row for each stretch ``__i .. __next - 1`` of windows with the same members."""
    layout = _Layout.from_frame(df, keys, partials)
    return layout.leave(_occupied(_difference(layout.enter(df), layout, 1)), NEXT)


def running_stretches(df: DataFrame, keys: Sequence[str], partials: Sequence[SparkPartial]) -> DataFrame:
    """Return a row for each stretch ``__i .. __next - 1`` with the same members, of events that do not end.

    ``df`` has a partial result for each event, as for :func:`merge_partials`; its ``__hi`` is not read. The last stretch of a
    key has no end: its ``__next`` is NULL.
    """
    layout = _Layout.from_frame(df, keys, partials)
    by, order = list(layout.keys), "__lo"
    also = {"__i": "__lo", "__next": f"lead(__lo) {_window_clause(by, order)}"}
    rows = _running(layout.enter(df), layout.parts, by, order, source="", target="so_far", rows="CURRENT ROW", **also)
    # of events that start together the last one has merged all
    rows = rows.where("NOT __next <=> __i")
    columns = [f"so_far{column} AS {column}" for column in layout.columns]
    return layout.leave(rows.selectExpr(*by, "__i", "__next", *columns), NEXT)


# ---------------------------------------------------------------------------------------------------------------------
# Columns: keys and fields get internal names, so that no column name of the user's can clash with them.
# Expressions are SQL text over those names: building a plan from Column objects took longer than running a small one.


@dataclass(frozen=True)
class _Part:
    """Fields that an algebra merges together."""

    algebra: Algebra
    fields: tuple[str, ...]


@dataclass(frozen=True)
class _Layout:
    """The internal names of keys and fields, with their outer names, and the types to restore.

    ``nulls`` maps a field to a count: the field is NULL if the count is 0.
    """

    keys: Mapping[str, str]
    fields: Mapping[str, tuple[str, DataType]]
    parts: tuple[_Part, ...]
    nulls: Mapping[str, str]

    @classmethod
    def from_frame(cls, df: DataFrame, keys: Sequence[str], partials: Sequence[SparkPartial]) -> _Layout:
        """Return the layout of partial results in a frame whose columns have their outer names."""
        types = {field.name: field.dataType for field in df.schema.fields}
        fields = {"__n": ("__n", types["__n"])}
        parts = [_Part(CountAlgebra(), ("__n",))]
        nulls: dict[str, str] = {}
        for number, partial in enumerate(partials):
            inside = {name: f"__{number}_{at}" for at, name in enumerate(partial.columns)}
            fields |= {field: (name, types[name]) for name, field in inside.items()}
            parts += [_Part(algebra, tuple(inside[n] for n in columns)) for algebra, columns in partial.algebras]
            nulls |= {inside[column]: inside[count] for column, count in partial.null_over_none.items()}
        return cls({f"__k{number}": key for number, key in enumerate(keys)}, fields, tuple(parts), nulls)

    @property
    def columns(self) -> list[str]:
        """All fields that are merged, by internal name."""
        return [field for part in self.parts for field in part.fields]

    def enter(self, partials: DataFrame) -> DataFrame:
        """Rename the frame's columns to the internal names."""
        keys = [f"{_quoted(name)} AS {inside}" for inside, name in self.keys.items()]
        fields = [f"{_quoted(name)} AS {inside}" for inside, (name, _) in self.fields.items() if inside != "__n"]
        return partials.selectExpr(*keys, "__lo", "__hi", "__n", *fields)

    def leave(self, merged: DataFrame, *others: str) -> DataFrame:
        """Rename merged columns back to the outer names, with the types from before merging; ``others`` stay as they are."""
        keys = [f"{inside} AS {_quoted(name)}" for inside, name in self.keys.items()]
        fields = [f"{self.typed(inside, inside)} AS {_quoted(name)}" for inside, (name, _) in self.fields.items()]
        return merged.selectExpr(*keys, "__i", *others, *fields)

    def typed(self, field: str, value: str) -> str:
        """Cast a merged value to the type of its parts, if that is a decimal: a sum of decimal(p,s) is a wider decimal."""
        type_ = self.fields[field][1] if field in self.fields else None
        return f"CAST({value} AS {type_.simpleString()})" if isinstance(type_, DecimalType) else value


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _named(expressions: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in expressions.items()]


def _window_clause(by: Sequence[str], order: str = "", rows: str = "") -> str:
    """Return an OVER clause: partitions ``by`` columns, ordered, up to the row ``rows``; without ``rows`` it has no frame."""
    partition = f"PARTITION BY {', '.join(by)}" if by else ""
    ordered = f"ORDER BY {order}" if order else ""
    frame = f"ROWS BETWEEN UNBOUNDED PRECEDING AND {rows}" if rows else ""
    return f"OVER ({partition} {ordered} {frame})"


def _pair(parts: Sequence[_Part], left: str, right: str) -> dict[str, str]:
    """Return expressions that merge the fields with prefix ``left`` with those with prefix ``right``, by field."""
    merged: dict[str, str] = {}
    for part in parts:
        a, b = ([prefix + field for field in part.fields] for prefix in (left, right))
        merged |= zip(part.fields, part.algebra.pair(a, b), strict=True)
    return merged


def _gather(frame: DataFrame, by: Sequence[str], parts: Sequence[_Part]) -> DataFrame:
    """Merge the rows of each group of ``by`` into one.

    Moments first need the group's mean: the group is then sorted, but still shuffled only once.
    """
    first: dict[str, str] = {}
    merged: dict[str, str] = {}
    for part in parts:
        beforehand, columns = part.algebra.gathered(part.fields, _window_clause(by))
        first |= beforehand
        merged |= columns
    frame = frame.selectExpr("*", *_named(first)) if first else frame
    return frame.groupBy(*by).agg(*map(F.expr, _named(merged)))


def _running(
    frame: DataFrame,
    parts: Sequence[_Part],
    by: Sequence[str],
    order: str,
    source: str,
    target: str,
    rows: str,
    **also: str,
) -> DataFrame:
    """Add fields with prefix ``target``: those with prefix ``source`` merged over all rows up to ``rows``, in ``order``.

    ``rows``, the last row of the frame, is ``"1 PRECEDING"`` or ``"CURRENT ROW"``. ``also``: other columns to add, by name.
    """
    so_far = WindowFrame(
        _window_clause(by, order, "1 PRECEDING"), _window_clause(by, order, rows), rows == "CURRENT ROW"
    )
    sums = dict(also)
    steps: dict[str, str] = {}
    for part in parts:
        columns, targets = ([prefix + field for field in part.fields] for prefix in (source, target))
        first, second = part.algebra.running(columns, targets, so_far)
        sums |= first
        steps |= second
    frame = frame.selectExpr("*", *_named(sums))
    return frame.selectExpr("*", *_named(steps)) if steps else frame


# ---------------------------------------------------------------------------------------------------------------------
# The forms


def _difference(partials: DataFrame, layout: _Layout, _n: int) -> DataFrame:
    """Merge by a running sum per key: add a partial where its range starts, subtract it where the range has ended."""
    keys, columns = list(layout.keys), layout.columns
    # Generators keep the partitioning, unpivot (an Expand) would forget it.
    ends = partials.selectExpr(*keys, *columns, "stack(2, true, __lo, false, __hi + 1) AS (__enters, __i)")
    so_far = _window_clause(keys, "__i", "CURRENT ROW")
    running = {
        part.fields[0]: part.algebra.entered_less_left(part.fields[0], so_far)
        for part in layout.parts
        if isinstance(part.algebra, SubtractableAlgebra)
    }
    ends = ends.selectExpr(*keys, "__i", *_named({**running, "__next": f"lead(__i) {_window_clause(keys, '__i')}"}))
    nulls = layout.nulls
    sums = {field: f"CASE WHEN {nulls[field]} > 0 THEN {field} END" if field in nulls else field for field in columns}
    return ends.selectExpr(*keys, "__i", "__next", *_named(sums))


def _blocks(partials: DataFrame, layout: _Layout, n: int) -> DataFrame:
    """Merge panes in blocks of n: a window is a suffix of block k and a prefix of block k + 1, both running merges.

    A pane is in block ``floor(hi / n)``. The windows ``kn + 1 .. kn + n`` are *round* k: they contain the panes of block k with
    ``hi >= i`` and those of block k + 1 with ``lo <= i``, and no others. So a pane of block k makes two rows: one adds its value
    to round k - 1 when the pane enters, the other sets the suffix after it in round k when it has left. Each block also has a
    row for its first suffix.
    """
    keys, columns, parts = list(layout.keys), layout.columns, layout.parts
    # With keys, both passes need only one shuffle, by them; without, first the blocks and then the rounds run in parallel.
    panes = partials.repartition(*keys) if keys else partials
    panes = panes.selectExpr("*", f"__hi - pmod(__hi, {n}L) AS __base")
    by, backwards = [*keys, "__base"], "__hi DESC"
    panes = _running(
        panes, parts, by, backwards, source="", target="behind", rows="1 PRECEDING",
        __later=f"lag(__hi) {_window_clause(by, backwards)}", __earlier=f"lead(__hi) {_window_clause(by, backwards)}",
    )  # fmt: skip
    behind = [layout.typed(column, f"behind{column}") for column in columns]
    whole = [layout.typed(column, value) for column, value in _pair(parts, "", "behind").items()]
    rows = [
        # If hop does not divide size, a block's last pane may enter in its own round: it is in the first suffix.
        ("CASE WHEN __lo <= __base THEN __lo END", f"__base - {n}L", "true", *columns),
        # Of panes that leave together only the last one makes a row.
        ("CASE WHEN NOT __hi <=> __later THEN __hi + 1 END", "__base", "false", *behind),
        ("CASE WHEN __earlier IS NULL AND __hi > __base THEN __base + 1 END", "__base", "false", *whole),
    ]
    names = ["__i", "__round", "__enters", *columns]
    stacked = f"stack({len(rows)}, {', '.join(value for row in rows for value in row)}) AS ({', '.join(names)})"
    changes = panes.selectExpr(*keys, stacked).where("__i IS NOT NULL")
    suffix = ", ".join(f"{column} AS suffix{column}" for column in columns)
    changes = changes.selectExpr(
        *keys, "__i", "__round", f"CASE WHEN NOT __enters THEN struct({suffix}) END AS __told",
        *(f"CASE WHEN __enters THEN {column} END AS own{column}" for column in columns),
    )  # fmt: skip
    by, forwards = [*keys, "__round"], "__i"
    changes = _running(
        changes, parts, by, forwards, source="own", target="prefix", rows="CURRENT ROW",
        __suffix=f"last(__told, true) {_window_clause(by, forwards, 'CURRENT ROW')}",
        # The last row of a round holds to its end; the next round starts with a row of its own.
        __next=f"coalesce(lead(__i) {_window_clause(by, forwards)}, __round + {n + 1}L)",
    )  # fmt: skip
    windows = _pair(parts, "__suffix.suffix", "prefix")
    return changes.where("__next > __i").selectExpr(*keys, "__i", "__next", *_named(windows))


def _explode(partials: DataFrame, layout: _Layout, _n: int) -> DataFrame:
    """Copy each partial into the windows of its range and merge by window."""
    keys = list(layout.keys)
    rows = partials.selectExpr(*keys, *layout.columns, "explode(sequence(__lo, __hi)) AS __i")
    return _gather(rows, [*keys, "__i"], layout.parts)


def _dyadic(partials: DataFrame, layout: _Layout, _n: int) -> DataFrame:
    """Cut ranges into dyadic nodes, at most two per level; a window merges the nodes that contain it, one per level.

    Node (level, x) stands for the windows ``x * 2**level .. (x + 1) * 2**level - 1``. Between two change points the result does
    not change, so nodes are looked up at change points only. Nodes and lookups are rows of one table: sorted by node, parts
    before lookups, a running merge answers each lookup of a node.
    """
    keys, columns, parts = list(layout.keys), layout.columns, layout.parts
    ranges = partials.selectExpr("*", "length(bin(__hi - __lo + 1)) - 1 AS __top")
    changes = ranges.selectExpr("*", "stack(2, true, __lo, false, __hi + 1) AS (__enters, __i)")
    changes = changes.selectExpr(
        "*", f"lead(__i) {_window_clause(keys, '__i')} AS __next", f"max(__top) {_window_clause(keys)} AS __levels"
    )
    changes = changes.selectExpr("*", "coalesce(__next > __i, false) AS __asks").where("__asks OR __enters")
    changes = changes.selectExpr("*", "explode(sequence(0, if(__asks, __levels, __top))) AS __level")
    # The rest of the range on this level, [from, to): lower levels have taken the parts that are no whole node here.
    changes = changes.selectExpr("*", "-shiftright(-__lo, __level) AS __from", "shiftright(__hi + 1, __level) AS __to")
    is_whole = "__enters AND __from < __to"
    rows = [
        (f"CASE WHEN {is_whole} AND __from & 1 = 1 THEN __from END", "false"),
        (f"CASE WHEN {is_whole} AND __to & 1 = 1 THEN __to - 1 END", "false"),
        ("CASE WHEN __asks THEN shiftright(__i, __level) END", "true"),
    ]
    places = f"stack({len(rows)}, {', '.join(value for row in rows for value in row)}) AS (__node, __look)"
    nodes = changes.selectExpr(*keys, "__level", "__i", "__next", *columns, places).where("__node IS NOT NULL")
    nodes = nodes.selectExpr(
        *keys, "__level", "__node", "__look", "__i", "__next",
        *(f"CASE WHEN NOT __look THEN {column} END AS own{column}" for column in columns),
    )  # fmt: skip
    by = [*keys, "__level", "__node"]
    answers = _running(nodes, parts, by, "__look", source="own", target="node", rows="CURRENT ROW")
    answers = answers.where("__look AND node__n > 0")
    answers = answers.selectExpr(*keys, "__i", "__next", *(f"node{column} AS {column}" for column in columns))
    return _gather(answers, [*keys, "__i", "__next"], parts)


def _occupied(stretches: DataFrame) -> DataFrame:
    """Return the stretches of windows, from a change point to ``__next``, the next one, that hold an event.

    A change point without a next one makes no row.
    """
    return stretches.where("__next > __i AND __n > 0")


def _spread(stretches: DataFrame, layout: _Layout) -> DataFrame:
    """Return one row per window of the stretches that hold an event."""
    carried = [*layout.keys, *layout.columns]
    return (
        _occupied(stretches)
        .selectExpr(*carried, "__i AS __from", "__next")
        .selectExpr(*carried, "explode(sequence(__from, __next - 1)) AS __i")
    )


_FORMS = {"difference": _difference, "blocks": _blocks, "explode": _explode, "dyadic": _dyadic}
