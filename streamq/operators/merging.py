"""Partial results of ranges of windows are merged into windows, by the cheapest form their algebra allows.

The batch half of DataCell's "merge" (Liarou, Idreos, Manegold, Kersten: *Enhanced Stream Processing in a DBMS Kernel*,
section 3). An event belongs to the windows ``lo .. hi`` of a hopping grid and to no others, so events that share a
range were aggregated once, and here a window gathers the ranges that hold its index. What a window holds changes only
where a range starts or has ended, at most two places a partial: every form but ``explode`` works at those change
points, and writes a row a window only at the very end. Neither ``n`` nor an empty stretch of time costs anything
before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from streamq.operators.batch_form import BatchChoice, BatchForm
from streamq.plan.partial import Algebra, SparkPartial, WindowFrame
from streamq.runtime.merging_sql import CountAlgebra, SubtractableAlgebra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

__all__ = ["FORMS", "choose_form", "merge_partials"]

FORMS = (BatchForm.DIFFERENCE, BatchForm.BLOCKS, BatchForm.EXPLODE, BatchForm.DYADIC)
"""The forms in which partial results are merged."""


def choose_form(shape: str, n: int, partials: Sequence[SparkPartial]) -> BatchChoice:
    """How to merge, and why, from static facts only.

    ``shape`` is ``"point"`` (lifetimes of one tick, declared) or any other, ``n`` the greatest number of windows a
    point lies in. DIRECT is the only answer that :func:`merge_partials` does not take: aggregate events, without partials.
    The bounds are where the forms were measured to cost the same, at 1 and at 60 events a key and hop.
    """
    exact = all(partial.exact for partial in partials)
    if shape != "point":
        if exact:
            return BatchChoice(form=BatchForm.DIFFERENCE, reason="exact aggregates: added and taken off")
        return BatchChoice(form=BatchForm.DYADIC, reason="ranges of any length")
    if n == 1:
        return BatchChoice(form=BatchForm.DIRECT, reason="every event lies in one window")
    if n <= _FEW:
        return BatchChoice(form=BatchForm.DIRECT, reason=f"n = {n}: too few windows an event for splitting to pay")
    if n <= _SOME:
        return BatchChoice(form=BatchForm.EXPLODE, reason=f"n = {n}: few windows a basic window")
    if exact:
        return BatchChoice(form=BatchForm.DIFFERENCE, reason=f"n = {n}, exact aggregates: added and taken off")
    return BatchChoice(form=BatchForm.BLOCKS, reason=f"n = {n}: a suffix and a prefix a window")


_FEW, _SOME = 3, 8


def merge_partials(
    df: DataFrame,
    keys: Sequence[str],
    partials: Sequence[SparkPartial],
    n: int,
    form: BatchForm,
    divides: bool = True,
) -> DataFrame:
    """One row a window with a member: the keys, ``__i`` bigint (its index), ``__n`` and the partials' columns, types unchanged.

    ``df`` has the keys, ``__lo`` and ``__hi`` bigint (first and last window of the range, inclusive; every range ends), ``__n``
    bigint (events in it, > 0) and the columns of the partials. More than one row of a range is allowed.

    ``n`` is size / hop, rounded up; ``divides``: hop divides size (all forms are right either way).

    ``difference`` takes exact partials, any ranges; ``blocks`` any partials, ranges of declared points; ``explode`` and
    ``dyadic`` any partials, any ranges. All but ``explode`` hash by the keys: the rows of a key go to one task.

    Raises ``ValueError`` if the form does not fit. Under ANSI mode an integer or decimal sum that overflows fails the job.
    """
    if form not in FORMS:
        raise ValueError(f"merge_partials: no form {form!r} for partials; there are {', '.join(FORMS)}")
    if form == BatchForm.DIFFERENCE and not all(partial.exact for partial in partials):
        inexact = ", ".join(partial.name for partial in partials if not partial.exact)
        raise ValueError(f"merge_partials: difference needs exact aggregates; {inexact} cannot be subtracted")
    layout = _Layout.from_frame(df, keys, partials)
    return layout.leave(_FORMS[form](layout.enter(df), layout, n))


# ---------------------------------------------------------------------------------------------------------------------
# Columns: keys, partials and their fields get names of our own, so that nothing the user calls a column can be in the way.
# Expressions are SQL text over those names: Column by Column, building a plan took longer than running a small one.


@dataclass(frozen=True)
class _Part:
    """Fields that merge together, by an algebra."""

    algebra: Algebra
    fields: tuple[str, ...]


@dataclass(frozen=True)
class _Layout:
    """The names outside and inside, and the type each has to have again; nulls: fields that are NULL where a count is 0."""

    keys: Mapping[str, str]
    fields: Mapping[str, tuple[str, DataType]]
    parts: tuple[_Part, ...]
    nulls: Mapping[str, str]

    @classmethod
    def from_frame(cls, df: DataFrame, keys: Sequence[str], partials: Sequence[SparkPartial]) -> _Layout:
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
        """Every field that is merged."""
        return [field for part in self.parts for field in part.fields]

    def enter(self, partials: DataFrame) -> DataFrame:
        keys = [f"{_quoted(name)} AS {inside}" for inside, name in self.keys.items()]
        fields = [f"{_quoted(name)} AS {inside}" for inside, (name, _) in self.fields.items() if inside != "__n"]
        return partials.selectExpr(*keys, "__lo", "__hi", "__n", *fields)

    def leave(self, merged: DataFrame) -> DataFrame:
        keys = [f"{inside} AS {_quoted(name)}" for inside, name in self.keys.items()]
        fields = [f"{self.typed(inside, inside)} AS {_quoted(name)}" for inside, (name, _) in self.fields.items()]
        return merged.selectExpr(*keys, "__i", *fields)

    def typed(self, field: str, value: str) -> str:
        """A merged value in the type its parts have: a sum of decimal(p,s) is a wider decimal."""
        type_ = self.fields[field][1] if field in self.fields else None
        return f"CAST({value} AS {type_.simpleString()})" if isinstance(type_, DecimalType) else value


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _named(expressions: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in expressions.items()]


def _window_clause(by: Sequence[str], order: str = "", rows: str = "") -> str:
    partition = f"PARTITION BY {', '.join(by)}" if by else ""
    ordered = f"ORDER BY {order}" if order else ""
    frame = f"ROWS BETWEEN UNBOUNDED PRECEDING AND {rows}" if rows else ""
    return f"OVER ({partition} {ordered} {frame})"


def _pair(parts: Sequence[_Part], left: str, right: str) -> dict[str, str]:
    """The fields with prefix ``left`` merged with those with prefix ``right``."""
    merged: dict[str, str] = {}
    for part in parts:
        a, b = ([prefix + field for field in part.fields] for prefix in (left, right))
        merged |= zip(part.fields, part.algebra.pair(a, b), strict=True)
    return merged


def _gather(frame: DataFrame, by: Sequence[str], parts: Sequence[_Part]) -> DataFrame:
    """One row a group of ``by``. Moments first learn the group's mean: the group is then sorted, but shuffled once."""
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
    """Adds, with prefix ``target``, the fields with prefix ``source`` merged over the rows so far, and ``also`` others.

    ``rows`` is ``"1 PRECEDING"`` or ``"CURRENT ROW"``: the last row of the frame.
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
    """Added where the range starts, taken off where it has ended; a running sum a key."""
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
    return _spread(ends.selectExpr(*keys, "__i", "__next", *_named(sums)), [*keys, *columns])


def _blocks(partials: DataFrame, layout: _Layout, n: int) -> DataFrame:
    """Panes in blocks of n: a window is a suffix of block k and a prefix of block k + 1, both running merges.

    A pane is in block ``floor(hi / n)``. The windows ``kn + 1 .. kn + n`` are *round* k: they hold the panes of block k
    with ``hi >= i`` and those of block k + 1 with ``lo <= i``, and no others. So a pane tells round k - 1 its value,
    when it enters, and round k the suffix behind it, when it has left: two rows, and a first suffix a block.
    """
    keys, columns, parts = list(layout.keys), layout.columns, layout.parts
    # By the keys alone both passes lie together; without keys the blocks, then the rounds, are what runs in parallel.
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
        # With hop not dividing size a block's last pane may enter in its own round: it is in the first suffix.
        ("CASE WHEN __lo <= __base THEN __lo END", f"__base - {n}L", "true", *columns),
        # Of panes that leave together the last one tells.
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
        # What no later row of the round changes holds to its end; the next round opens with a row of its own.
        __next=f"coalesce(lead(__i) {_window_clause(by, forwards)}, __round + {n + 1}L)",
    )  # fmt: skip
    windows = _pair(parts, "__suffix.suffix", "prefix")
    changes = changes.where("__next > __i").selectExpr(*keys, "__i", "__next", *_named(windows))
    return _spread(changes, [*keys, *columns])


def _explode(partials: DataFrame, layout: _Layout, _n: int) -> DataFrame:
    """A row a partial and window, plainly merged."""
    keys = list(layout.keys)
    rows = partials.selectExpr(*keys, *layout.columns, "explode(sequence(__lo, __hi)) AS __i")
    return _gather(rows, [*keys, "__i"], layout.parts)


def _dyadic(partials: DataFrame, layout: _Layout, _n: int) -> DataFrame:
    """A range is at most two dyadic nodes a level; between two changes a window merges the nodes above it, one a level.

    Node (level, x) stands for the windows ``x * 2**level .. (x + 1) * 2**level - 1``. Nodes and the lookups at change
    points are rows of one table: sorted by node, parts before lookups, a running merge answers every lookup of a node.
    """
    keys, columns, parts = list(layout.keys), layout.columns, layout.parts
    ranges = partials.selectExpr("*", "length(bin(__hi - __lo + 1)) - 1 AS __top")
    changes = ranges.selectExpr("*", "stack(2, true, __lo, false, __hi + 1) AS (__enters, __i)")
    changes = changes.selectExpr(
        "*", f"lead(__i) {_window_clause(keys, '__i')} AS __next", f"max(__top) {_window_clause(keys)} AS __levels"
    )
    changes = changes.selectExpr("*", "coalesce(__next > __i, false) AS __asks").where("__asks OR __enters")
    changes = changes.selectExpr("*", "explode(sequence(0, if(__asks, __levels, __top))) AS __level")
    # What is left of the range on this level, [from, to): the levels below have taken what is not whole here.
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
    return _spread(_gather(answers, [*keys, "__i", "__next"], parts), [*keys, *columns])


def _spread(changes: DataFrame, carried: Sequence[str]) -> DataFrame:
    """The stretches from a change to the next one that hold an event, as one row a window."""
    held = changes.where("__next > __i AND __n > 0")
    return held.selectExpr(*carried, "__i AS __from", "__next").selectExpr(
        *carried, "explode(sequence(__from, __next - 1)) AS __i"
    )


_FORMS = {"difference": _difference, "blocks": _blocks, "explode": _explode, "dyadic": _dyadic}
