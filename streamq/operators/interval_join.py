"""Overlap joins of two DataFrames: an equi-join over cells of time, for lifetimes of any length; the base of joins of streams.

An event is copied into cells about as wide as it is long, so into a handful whatever its length. If the sides have events of
different tiers of length, a shorter event is also copied into the cells of a longer tier, with a tag by which it meets only
events of that tier. A pair is reported in the cell in which the later of the two starts, so once, and no duplicates need to be
removed. The lengths of lifetimes are measured from the data, in the same job.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.join_arguments import Pairs
from streamq.plan.lowering import lifetime
from streamq.plan.node import Node
from streamq.plan.schema import key_types, quote
from streamq.runtime.deltas import LE, RE
from streamq.time import INFINITY

OTHER_LE, OTHER_RE = "__le2", "__re2"
"""The columns of the right side's lifetime in a joined row."""

TIER = 4
"""The number of doublings of length from one tier to the next: an event is in at most 17 cells of its tier, on average in two."""

FEW = 64
"""The most lifetimes of a key with each of which a point is compared."""

WIDEST = 62
"""The widest cell, as a power of two."""


def bounded_join(
    left: DataFrame,
    right: DataFrame,
    keys: list[tuple[str, str]],
    longest: int,
    *,
    points: tuple[bool, bool],
    condition: Column | None = None,
    how: str = "inner",
) -> DataFrame:
    """Join as :func:`overlap_join` does, if no lifetime lasts longer than ``longest`` ticks: all cells have about that width.

    ``keys`` are pairs of a left and a right column. ``points``: for each side, True if its events are points, each of them
    in one cell. ``how`` is a join type of Spark's; unless it is inner, the left events must be points. Cells stay in the result.
    """
    width = F.lit((longest - 1).bit_length())

    def celled(df: DataFrame, le: str, re: str, cell: str, is_point: bool) -> DataFrame:
        first = F.call_function("shiftright", F.col(le), width)
        if is_point:
            return df.withColumn(cell, first)
        # no lifetime is longer than a cell is wide
        last = F.call_function("shiftright", F.col(re) - 1, width)
        cells = F.when(first == last, F.array(first)).otherwise(F.array(first, last))
        return df.select("*", F.explode(cells).alias(cell))

    ours, theirs = celled(left, LE, RE, "__c1", points[0]), celled(right, OTHER_LE, OTHER_RE, "__c2", points[1])
    on = [F.col(a) == F.col(b) for a, b in keys]
    on.append(F.col("__c1") == F.col("__c2"))
    # ends of points are not read, so Spark does not carry them to the join
    on.append(F.col(LE) <= F.col(OTHER_LE) if points[1] else F.col(LE) < F.col(OTHER_RE))
    on.append(F.col(OTHER_LE) <= F.col(LE) if points[0] else F.col(OTHER_LE) < F.col(RE))
    if not any(points):
        on.append(F.call_function("shiftright", F.greatest(F.col(LE), F.col(OTHER_LE)), width) == F.col("__c1"))
    if condition is not None:
        on.append(condition)
    return ours.join(theirs, on, how)


def tiered_join(
    points: DataFrame,
    lasting: DataFrame,
    keys: list[tuple[str, str]],
    starts: tuple[str, str, str],
    condition: Column | None = None,
) -> DataFrame:
    """Join points with lifetimes of any length, by keys and by cells as wide as the tier of a lifetime's length.

    Where a key has at most :data:`FEW` lifetimes, the key is enough. A lifetime is in one or two cells, a point in one for each
    tier that there is, for which ``lasting`` is read once more. ``keys``: pairs of a column of each. ``starts``: the columns of a
    point's instant, and of the other's start and end.
    """
    at, le, re = map(F.col, starts)
    own = F.ceil(_class(le, re) / TIER) * TIER
    of_key = F.count(F.lit(1)).over(Window.partitionBy(*(b for _, b in keys)))
    tier = F.when((of_key <= FEW) | (own > WIDEST), F.lit(WIDEST)).otherwise(own.cast("int"))
    theirs = lasting.withColumn("__t2", tier)
    tiers = F.broadcast(theirs.agg(F.collect_set("__t2").alias("__tiers")))
    cells = F.sequence(*(F.call_function("shiftright", instant, F.col("__t2")) for instant in (le, re - 1)))
    theirs = theirs.select("*", F.explode(cells).alias("__c2"))
    ours = points.crossJoin(tiers).select("*", F.explode("__tiers").alias("__t1")).drop("__tiers")
    ours = ours.withColumn("__c1", F.call_function("shiftright", at, F.col("__t1")))
    on = [F.col(a) == F.col(b) for a, b in (*keys, ("__t1", "__t2"), ("__c1", "__c2"))]
    on += [le <= at, at < re, *([] if condition is None else [condition])]
    return ours.join(theirs, on).drop("__t1", "__c1", "__t2", "__c2")


def endless_join(
    left: DataFrame,
    right: DataFrame,
    keys: list[tuple[str, str]],
    *,
    points: tuple[bool, bool],
    endless: tuple[bool, bool],
    condition: Column | None = None,
) -> DataFrame:
    """Join as :func:`overlap_join` does, if no event of a side ends, by its keys and the other side's ends.

    ``endless``: for each side, True if none of its events ends; at least one is. ``points`` as in :func:`bounded_join`.
    """
    on = [F.col(a) == F.col(b) for a, b in keys]
    if not all(endless):
        start, (le, re), is_point = (
            (LE, (OTHER_LE, OTHER_RE), points[1]) if endless[0] else (OTHER_LE, (LE, RE), points[0])
        )
        on.append(F.col(start) <= F.col(le) if is_point else F.col(start) < F.col(re))
    if condition is not None:
        on.append(condition)
    return left.join(right, on) if on else left.crossJoin(right)


def common_lifetime(points: tuple[bool, bool], endless: tuple[bool, bool] = (False, False)) -> tuple[Column, Column]:
    """Return the start and end of a joined row's common lifetime.

    ``points`` as in :func:`bounded_join`, ``endless`` as in :func:`endless_join`.
    """
    if all(endless):
        return F.greatest(F.col(LE), F.col(OTHER_LE)), F.lit(INFINITY)
    if any(points):
        start = F.col(LE) if points[0] else F.col(OTHER_LE)
        return start, start + 1
    return F.greatest(F.col(LE), F.col(OTHER_LE)), F.least(F.col(RE), F.col(OTHER_RE))


def overlap_join(
    left: DataFrame, right: DataFrame, keys: list[tuple[str, str]], condition: Column | None = None, outer: bool = False
) -> DataFrame:
    """Join rows of ``left`` and ``right`` that have equal keys and overlapping lifetimes, and satisfy the condition.

    ``left`` has ``__le, __re``, ``right`` ``__le2, __re2``; no other column is in both. NULL keys match nothing. With
    ``outer`` a left row also appears with NULLs once for each of its cells without a partner, so at least once in all.
    """
    facts = F.broadcast(_facts(left, right))
    ours = (
        _celled(left.crossJoin(facts), LE, RE, "__mine", outer)
        .drop("__theirs")
        .withColumnsRenamed({"__tier": "__t1", "__tag": "__g1", "__cell": "__c1"})
    )
    theirs = _celled(right.crossJoin(facts), OTHER_LE, OTHER_RE, "__theirs", False).drop("__base", "__mine")
    theirs = theirs.withColumnsRenamed({"__tier": "__t2", "__tag": "__g2", "__cell": "__c2"})
    on = [F.col(a) == F.col(b) for a, b in keys]
    on += [F.col(f"__{n}1") == F.col(f"__{n}2") for n in "tgc"]
    on += [F.col(LE) < F.col(OTHER_RE), F.col(OTHER_LE) < F.col(RE)]
    later = F.greatest(F.col(LE), F.col(OTHER_LE))
    on.append(F.call_function("shiftright", later, _width(F.col("__t1"))) == F.col("__c1"))
    if condition is not None:
        on.append(condition)
    joined = ours.join(theirs, on, "left" if outer else "inner")
    return joined.drop("__base", *(f"__{n}{i}" for n in "tgc" for i in (1, 2)))


def _facts(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return one row: ``__base``, the width of a cell of tier 0 as a power of two, and for each side the cells of each tier.

    ``__mine[tier]`` and ``__theirs[tier]`` are lists of (tier, tag), the kinds of cells into which an event of that tier is
    copied: tag 0 to meet events of its own tier, 1 if the left event is the shorter one, 2 if the right one is. A kind is listed
    only if the other side has events to meet there.
    """
    lengths = _lengths(left, LE, RE, 0).unionAll(_lengths(right, OTHER_LE, OTHER_RE, 1))
    mean = F.coalesce(F.round(F.avg(F.when(F.col("c") < WIDEST, F.col("c")))), F.lit(0)) + 1
    cells = lengths.agg(
        mean.cast("int").alias("__base"),
        *(F.collect_set(F.when(F.col("side") == side, F.col("c"))).alias(f"c{side}") for side in (0, 1)),
    )
    cells = cells.withColumns({f"t{side}": F.array_distinct(F.transform(f"c{side}", _tier)) for side in (0, 1)})
    tiers = F.sequence(F.lit(0), F.lit(-(-WIDEST // TIER)))

    def places(others: str, tag: int) -> Column:
        """Return, for each tier, the kinds of cells for an event of it; ``others``: the column of the other side's tiers."""

        def meeting_places(own: Column) -> Column:
            equal = F.transform(F.filter(others, lambda t: t == own), lambda t: _place(t, 0))
            longer = F.transform(F.filter(others, lambda t: t > own), lambda t: _place(t, tag))
            shorter = F.transform(F.slice(F.filter(others, lambda t: t < own), 1, 1), lambda t: _place(own, 3 - tag))
            return F.concat(equal, longer, shorter)

        return F.transform(tiers, meeting_places)

    return cells.select("__base", places("t1", 1).alias("__mine"), places("t0", 2).alias("__theirs"))


def _place(tier: Column, tag: int) -> Column:
    return F.struct(tier.cast("int").alias("t"), F.lit(tag).alias("g"))


def _lengths(df: DataFrame, le: str, re: str, side: int) -> DataFrame:
    return df.select(F.lit(side).alias("side"), _class(F.col(le), F.col(re)).alias("c"))


def _class(le: Column, re: Column) -> Column:
    """Return the length of a lifetime as the exponent of a power of two, rounded up."""
    length = F.when(re == INFINITY, F.lit(float(1 << WIDEST))).otherwise(re.cast("double") - le.cast("double"))
    return F.least(F.ceil(F.log2(length)).cast("int"), F.lit(WIDEST))


def _tier(c: Column) -> Column:
    """Return the tier whose cells are at least a sixteenth as wide as a lifetime of length ``2**c``."""
    return F.greatest(F.lit(0), F.ceil((c - F.col("__base") - TIER) / TIER)).cast("int")


def _width(tier: Column) -> Column:
    return F.least(F.lit(WIDEST), F.col("__base") + tier * TIER).cast("int")


def _celled(df: DataFrame, le: str, re: str, places: str, outer: bool) -> DataFrame:
    """Copy each row into its cells, with columns ``__tier, __tag, __cell``.

    ``places``: the column with the kinds of cells for each tier, which is dropped. ``outer``: a row that meets nobody is kept,
    with NULLs.
    """
    explode = F.explode_outer if outer else F.explode
    start, last = F.col(le), F.when(F.col(re) == INFINITY, F.lit(INFINITY)).otherwise(F.col(re)) - 1
    own = _tier(_class(start, F.col(re)))
    df = df.select("*", explode(F.element_at(places, own + 1)).alias("__at")).drop(places)
    width = _width(F.col("__at.t"))
    cells = F.sequence(F.call_function("shiftright", start, width), F.call_function("shiftright", last, width))
    df = df.select("*", explode(cells).alias("__cell"))
    return df.select(
        *(F.col(quote(n)) for n in df.columns if n != "__at"),
        F.col("__at.t").alias("__tier"),
        F.col("__at.g").alias("__tag"),
    )


def covered_parts(pieces: DataFrame, owner: str, columns: list[str]) -> DataFrame:
    """Return, for each owner, the union of its pieces ``[__from, __to)`` as maximal intervals, with the owner's ``columns``."""
    order = Window.partitionBy(owner).orderBy("__from")
    before = F.max("__to").over(order.rowsBetween(Window.unboundedPreceding, -1))
    new = F.when(before.isNull() | (before < F.col("__from")), 1).otherwise(0)
    df = pieces.withColumn("__new", new)
    df = df.withColumn("__island", F.sum("__new").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    whole = F.first(F.struct(*(F.col(quote(n)) for n in columns))).alias("__kept")
    islands = df.groupBy(owner, "__island").agg(F.min("__from").alias(LE), F.max("__to").alias(RE), whole)
    return islands.select(LE, RE, *(F.col("__kept")[n].alias(n) for n in columns))


def uncovered_parts(pieces: DataFrame, owner: str) -> DataFrame:
    """Add ``__gaps`` to each piece, a list: the uncovered part of its owner's lifetime right before it, unless it is empty.

    The owner's lifetime is ``[__le, __re)``; its last piece also has the uncovered part after it, unless that is empty.
    """
    order = Window.partitionBy(owner).orderBy("__from")
    before = F.coalesce(F.max("__to").over(order.rowsBetween(Window.unboundedPreceding, -1)), F.col(LE))
    reached = F.max("__to").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    last = F.lead(F.col("__from")).over(order).isNull()
    df = pieces.withColumns({"__before": before, "__reached": reached, "__last": last})

    def gap(start: Column, end: Column) -> Column:
        return F.struct(start.alias("a"), end.alias("b"))

    both = F.array(
        gap(F.col("__before"), F.col("__from")),
        gap(F.col("__reached"), F.when(F.col("__last"), F.col(RE)).otherwise(F.col("__reached"))),
    )
    return df.withColumn("__gaps", F.filter(both, lambda g: g["a"] < g["b"])).drop("__before", "__reached", "__last")


class Pairing(EvaluatedOperator):
    """An operator over pairs of events with equal key columns ``on``.

    ``left_names`` and ``right_names`` map each side's columns to their names in a pair.
    """

    left: Node
    right: Node
    on: Pairs
    left_names: Pairs
    right_names: Pairs

    def sides(self, inputs: Sequence[DataFrame]) -> tuple[DataFrame, DataFrame]:
        """Return both inputs with the pair's column names, keys as ``__k*`` (left) and ``__j*`` (right) in a common type.

        The right lifetime is in columns OTHER_LE and OTHER_RE.
        """
        ours = [F.col(quote(n)).alias(to) for n, to in self.left_names]
        theirs = [F.col(quote(n)).alias(to) for n, to in self.right_names]
        kinds = key_types(self.left.schema, self.right.schema, self.on)
        for i, ((a, b), common) in enumerate(zip(self.on, kinds, strict=True)):
            ours.append(F.col(quote(a)).cast(common).alias(f"__k{i}"))
            theirs.append(F.col(quote(b)).cast(common).alias(f"__j{i}"))
        left = inputs[0].select(*lifetime(self.left.schema), *ours)
        le, re = lifetime(self.right.schema)
        return left, inputs[1].select(le.alias(OTHER_LE), re.alias(OTHER_RE), *theirs)

    @property
    def key_pairs(self) -> list[tuple[str, str]]:
        """The pairs of key columns that :meth:`sides` adds."""
        return [(f"__k{i}", f"__j{i}") for i in range(len(self.on))]

    def pairs_with_keys(self, is_keyed: Sequence[bool], keys: tuple[str, ...]) -> tuple[Pairs, Pairs, Pairs]:
        """Return ``on``, the left and the right names for inputs of which ``is_keyed`` also have the ``keys`` of a group.

        If both have them, they must be equal in a pair and are columns of the left side; else they are columns of the side that
        has them.
        """
        same = tuple((key, key) for key in keys)
        if all(is_keyed):
            return (*self.on, *same), (*self.left_names, *same), self.right_names
        if is_keyed[0]:
            return self.on, (*self.left_names, *same), self.right_names
        return self.on, self.left_names, (*self.right_names, *same)
