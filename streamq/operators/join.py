"""Join: pairs of events that live at once and agree; semi and anti join: the parts of a lifetime with, or without, a partner."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import types as t

from streamq.errors import AmbiguousColumn, PlanError, TypeMismatch, sentence, unknown_column
from streamq.plan.expr import Col, Expr, as_expr
from streamq.plan.inference import infer
from streamq.plan.lowering import lifetime, spark_expression
from streamq.plan.node import Node, node
from streamq.plan.passes import reads_lifetime, rewrite
from streamq.plan.plain import hint_for
from streamq.plan.resolve import Row, no_expression
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, key_types, quote
from streamq.plan.spark_types import wider
from streamq.plan.tree import show
from streamq.plan.verbs import Verbs, not_a_stream
from streamq.runtime.event import LE, RE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.batch_run import BatchRun
    from streamq.operators.windowed_join import WindowedJoin

INNER, LEFT, SEMI, ANTI = "inner", "left", "semi", "anti"
KINDS = (INNER, LEFT, SEMI, ANTI)

On = str | Sequence[str | tuple[str, str]] | Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


@node
class Join(Node):
    """``how`` is inner, left, semi or anti; ``on`` are pairs of columns that must be equal (NULL equals nothing).

    ``left_names`` and ``right_names`` say what each side's columns are called for ``where`` and in the result; a right
    column that is not named is a key that the left one stands for. ``where`` is part of the condition in every kind.

    CTI: c, the least over the inputs
    Final: inner: pairs of final events; left, semi, anti: settled rows
    State: inner: events not settled, in bins of time by length of life; left, semi, anti: events not settled, and right ones
        that overlap such a left one
    Cost: inner: the pairs that what is new makes, and the bins they lie in; left, semi, anti: the pairs of the events kept
    """

    left: Node
    right: Node
    on: Pairs
    where: Expr | None
    how: str
    left_names: Pairs
    right_names: Pairs

    cases = KINDS

    @property
    def case(self) -> tuple[str, ...]:
        return (self.how,)

    @property
    def title(self) -> str:
        return f"{self.how} join"

    def _schema(self) -> Schema:
        left, right = self.left.schema, self.right.schema
        if left.axis != right.axis:
            raise PlanError(sentence("join", "streams on different time axes", f"found {left.axis} and {right.axis}"))
        check_pairs(self.on, left, right, "join")
        if self.where is not None:
            kind = infer(self.where, self.both, "join")
            if not isinstance(kind, t.BooleanType | t.NullType):
                raise TypeMismatch(
                    sentence("join", "the condition is not boolean", f"found {kind.simpleString()}: {show(self.where)}")
                )
        point = left.shape == POINT or (self.how == INNER and right.shape == POINT)
        made = self.both if self.how in (INNER, LEFT) else left
        return made.with_shape(POINT if point else INTERVAL)

    @property
    def both(self) -> Schema:
        """The columns of a pair: what ``where`` is over, and the result of an inner or left join."""
        ours = [Field(to, self.left.schema.type_of(n)) for n, to in self.left_names]
        theirs = [Field(to, self.right.schema.type_of(n)) for n, to in self.right_names]
        return self.left.schema.with_fields([*ours, *theirs]).with_consumed(self.right.schema)

    def detail(self) -> str:
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in self.on)
        parts = [f"on {keys}"] if keys else ["on no key"]
        if self.where is not None:
            parts.append(f"where {show(self.where)}")
        return ", ".join(parts)


def batch(node: Join, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """An equi-join over cells of time; parts with and without a partner by a sweep over each left event's partners."""
    from pyspark.sql import functions as F

    from streamq.operators.interval_join import OTHER_LE, OTHER_RE, covered_parts, overlap_join, uncovered_parts

    left, right = sides(node, inputs)
    names = [to for _, to in node.left_names], [to for _, to in node.right_names]
    condition = None if node.where is None else spark_expression(node.where, node.both)
    start, end = F.greatest(F.col(LE), F.col(OTHER_LE)), F.least(F.col(RE), F.col(OTHER_RE))
    if node.how != INNER:
        left = left.withColumn("__id", F.monotonically_increasing_id())
    pairs = overlap_join(left, right, key_pairs(node), condition, node.how in (LEFT, ANTI))
    if node.how == INNER:
        return pairs.select(start.alias(LE), end.alias(RE), *(quote(n) for n in (*names[0], *names[1])))
    alone = F.col(OTHER_LE).isNull()
    # beside nobody: an empty piece, so that the event is there
    pieces = pairs.withColumns({"__from": start, "__to": F.when(alone, F.col(LE)).otherwise(end)})
    if node.how == SEMI:
        return renamed(covered_parts(pieces, "__id", names[0]), node)
    parted = uncovered_parts(pieces, "__id")
    if node.how == ANTI:
        gaps = parted.select("*", F.explode("__gaps").alias("__gap")).drop(LE, RE)
        return renamed(
            gaps.select(F.col("__gap.a").alias(LE), F.col("__gap.b").alias(RE), *(quote(n) for n in names[0])), node
        )

    def part(start: Column, end: Column, paired: bool) -> Column:
        return F.struct(start.alias("a"), end.alias("b"), F.lit(paired).alias("paired"))

    lonely = F.transform("__gaps", lambda g: part(g["a"], g["b"], False))
    own = F.when(alone, F.filter(lonely, lambda g: F.lit(False))).otherwise(
        F.array(part(F.col("__from"), F.col("__to"), True))
    )
    every = parted.select("*", F.explode(F.concat(lonely, own)).alias("__part")).drop(LE, RE)
    return every.select(
        F.col("__part.a").alias(LE),
        F.col("__part.b").alias(RE),
        *(quote(n) for n in names[0]),
        *(F.when(F.col("__part.paired"), F.col(quote(n))).alias(n) for n in names[1]),
    )


def sides(node: Join | WindowedJoin, inputs: list[DataFrame]) -> tuple[DataFrame, DataFrame]:
    """The inputs under the pair's names, keys as ``__k*`` and ``__j*`` in a common type, the right lifetime under its own."""
    from pyspark.sql import functions as F

    from streamq.operators.interval_join import OTHER_LE, OTHER_RE

    ours = [F.col(quote(n)).alias(to) for n, to in node.left_names]
    theirs = [F.col(quote(n)).alias(to) for n, to in node.right_names]
    kinds = key_types(node.left.schema, node.right.schema, node.on)
    for i, ((a, b), common) in enumerate(zip(node.on, kinds, strict=True)):
        ours.append(F.col(quote(a)).cast(common).alias(f"__k{i}"))
        theirs.append(F.col(quote(b)).cast(common).alias(f"__j{i}"))
    left = inputs[0].select(*lifetime(node.left.schema), *ours)
    le, re = lifetime(node.right.schema)
    return left, inputs[1].select(le.alias(OTHER_LE), re.alias(OTHER_RE), *theirs)


def key_pairs(node: Join | WindowedJoin) -> list[tuple[str, str]]:
    """The key columns of :func:`sides`."""
    return [(f"__k{i}", f"__j{i}") for i in range(len(node.on))]


def renamed(df: DataFrame, node: Join) -> DataFrame:
    """A part of a left event under the left stream's own names."""
    return df.withColumnsRenamed({to: n for n, to in node.left_names if n != to})


class JoinVerbs(Verbs):
    """``join`` and ``left_anti_join``."""

    def join(
        self,
        other: Self,
        on: On = (),
        where: Callable[[Any, Any], Any] | Expr | None = None,
        how: str = INNER,
        *,
        suffixes: tuple[str, str] | None = None,
    ) -> Self:
        """Pairs of events of two streams that agree while both live: ``[max(starts), min(ends))``, the columns of both.

        ``on``: a column name, several, ``(left, right)`` pairs or a mapping, that must be equal; NULL equals nothing. None:
        any two events that live at once. ``where``: a function of two events, or an expression over the columns of the
        pair; it is part of the condition in every kind of join. ``how``: "inner"; "left": also the parts of a left lifetime
        without a partner, with NULLs; "semi", "anti": the maximal parts of a left lifetime with, or without, one.
        ``suffixes`` bring equal names apart, ``("_l", "_r")``; keys of one name are one column.

        Raises UnknownColumn, TypeMismatch for keys of different types, AmbiguousColumn for clashing names without suffixes.
        (SEMANTICS section 2; Barga et al., CEDR.)

        ::

            left    a [1,6)
            right   x [2,4)  y [5,9)
            inner   ax [2,4)  ay [5,6)       anti   a [1,2) a [4,5)

        >>> import streamq as sq
        >>> l = sq.events([(1, 6, {"k": 1, "v": "a"})])
        >>> r = sq.events([(2, 4, {"k": 1, "w": "x"}), (5, 9, {"k": 1, "w": "y"})])
        >>> l.join(r, on="k").show()
        k  v  w  start  end
        1  a  x      2    4
        1  a  y      5    6
        >>> l.join(r, on="k", how="anti").show()
        k  v  start  end
        1  a      1    2
        1  a      4    5
        """
        if how not in KINDS:
            raise PlanError(sentence("join", f"no kind {how!r}", f"there are: {', '.join(KINDS)}"))
        keys, condition, *names = paired(self.plan, other, on, where, suffixes, how, "join")
        return self._derive(Join(self.plan, other.plan, keys, condition, how, *names), other)

    def left_anti_join(self, other: Self, on: On = (), where: Callable[[Any, Any], Any] | Expr | None = None) -> Self:
        """The parts of this stream's lifetimes during which no event of the other agrees: ``join(..., how="anti")``.

        ::

            calls   [1,9)
            pauses  [3,5)
            result  [1,3)  [5,9)

        >>> import streamq as sq
        >>> calls, pauses = sq.events([(1, 9, {"k": 1})]), sq.events([(3, 5, {"k": 1})])
        >>> calls.left_anti_join(pauses, on="k").show()
        k  start  end
        1      1    3
        1      5    9
        """
        return self.join(other, on, where, ANTI)


def paired(
    left: Node,
    other: object,
    on: On,
    where: Callable[[Any, Any], Any] | Expr | None,
    suffixes: tuple[str, str] | None,
    how: str,
    verb: str,
) -> tuple[Pairs, Expr | None, Pairs, Pairs]:
    """What a verb was given, as fields of a node over pairs: the keys, the condition, each side's names in the result."""
    if not isinstance(other, Verbs):
        not_a_stream(verb, other)
    keys = pairs(on, verb)
    left_names, right_names = result_names(left, other.plan, keys, suffixes, how, verb)
    condition = None if where is None else over_pair(where, left, other.plan, left_names, right_names, keys, verb)
    return keys, condition, left_names, right_names


def pairs(on: On, verb: str) -> Pairs:
    """Key columns as pairs (left, right)."""
    if isinstance(on, str):
        return ((on, on),)
    if isinstance(on, Mapping):
        return tuple((str(a), str(b)) for a, b in on.items())
    made: list[Any] = []
    for part in on if isinstance(on, list | tuple) else [on]:
        if isinstance(part, str):
            made.append((part, part))
        elif isinstance(part, tuple) and len(part) == 2 and all(isinstance(p, str) for p in part):
            made.append(part)
        else:
            raise PlanError(
                sentence(
                    verb,
                    "a key is a column name or a pair of them",
                    f"found {part!r}",
                    hint_for(part, 'Write on="k" or on=[("a", "b")].'),
                )
            )
    return tuple(made)


def check_pairs(on: Pairs, left: Schema, right: Schema, verb: str) -> None:
    """Raise for key columns that do not exist or cannot be equal."""
    from streamq.plan.keys import check_key

    for a, b in on:
        ours, theirs = left.require(a, verb), right.require(b, verb)
        if wider(ours, theirs) is None:
            raise TypeMismatch(
                sentence(
                    verb,
                    f"keys {a!r} and {b!r} of different types",
                    f"found {ours.simpleString()} and {theirs.simpleString()}",
                    "Cast one of them.",
                )
            )
        check_key(ours, a, verb, "match")


def check_suffixes(suffixes: tuple[str, str] | None, verb: str) -> None:
    """Raise for suffixes that are not a pair of strings."""
    if suffixes is None:
        return
    if not isinstance(suffixes, list | tuple) or len(suffixes) != 2 or not all(isinstance(s, str) for s in suffixes):
        raise PlanError(
            sentence(verb, "suffixes are two strings", f"found {suffixes!r}", 'Write suffixes=("_l", "_r").')
        )


def result_names(
    left: Node, right: Node, keys: Pairs, suffixes: tuple[str, str] | None, how: str, verb: str
) -> tuple[Pairs, Pairs]:
    """What the columns of each side are called in the result; keys of one name are one column, the left one."""
    check_suffixes(suffixes, verb)
    check_pairs(keys, left.schema, right.schema, verb)
    shared = {a for a, b in keys if a == b}
    theirs = [n for n in right.schema.names if n not in shared]
    lower = {n.lower() for n in theirs}
    clash = [n for n in left.schema.names if n.lower() in lower]
    if clash and suffixes is None and how in (INNER, LEFT):
        raise AmbiguousColumn(
            sentence(
                verb,
                "columns of both streams have equal names",
                f"found {', '.join(clash)}",
                'Bring them apart with suffixes=("_l", "_r"), or rename them first.',
            )
        )
    # a semi or anti join hands on the left columns under their own names; the suffixes are for the condition only
    one, two = suffixes if suffixes is not None else ("", "__right")
    clashing = {n.lower() for n in clash}
    ours = tuple((n, n + one if n.lower() in clashing else n) for n in left.schema.names)
    named = tuple((n, n + two if n.lower() in clashing else n) for n in theirs)
    seen: set[str] = set()
    for name in [to for _, to in (*ours, *named)]:
        if name.lower() in seen:
            raise AmbiguousColumn(
                sentence(
                    verb, f"column {name!r} twice in the result", "", "Choose other suffixes, or rename one first."
                )
            )
        seen.add(name.lower())
    return ours, named


def over_pair(
    where: Callable[[Any, Any], Any] | Expr,
    left: Node,
    right: Node,
    left_names: Pairs,
    right_names: Pairs,
    keys: Pairs,
    verb: str,
) -> Expr:
    """A condition on two events as an expression over the columns of the pair."""
    ours, theirs = dict(left_names), dict(right_names)
    theirs |= {b: ours[a] for a, b in keys if b not in theirs}
    if callable(where) and not isinstance(where, Expr):
        try:
            inspect.signature(where).bind(None, None)
        except TypeError as error:
            wrong = sentence(verb, "the condition takes two events", f"{error}", "Write lambda left, right: ...")
            raise PlanError(wrong) from None
        # two proxies of equal plans (a self-join) must stay apart
        made = where(_Side(left, verb, ours), _Side(right, verb, theirs))
        if isinstance(made, bool | None):
            raise no_expression(made, verb)
        given = as_expr(made)
    else:
        given = as_expr(where)
    known = {*ours.values(), *theirs.values()}
    consumed = left.schema.with_consumed(right.schema).consumed

    def place(found: Expr) -> Expr | None:
        if not isinstance(found, Col):
            return None
        if found.origin == _PAIR:
            return Col(found.name)
        if found.origin == left.digest:
            return Col(ours[found.name])
        if found.origin == right.digest:
            return Col(theirs[found.name])
        if found.name not in known:
            unknown_column(verb, found.name, sorted(known), consumed=consumed)
        return Col(found.name)

    made = rewrite(given, place)
    if reads_lifetime(made, "start", "end", "duration"):
        raise PlanError(
            sentence(
                verb,
                "the condition reads a lifetime",
                f"found {show(made)}",
                "Put it into the payload first: with_columns(at=sq.start()).",
            )
        )
    return made


_PAIR = "pair"


class _Side(Row):
    """One event of a pair in a lambda."""

    def __init__(self, plan: Node, verb: str, names: Mapping[str, str]):
        super().__init__(plan, verb)
        self._names = names

    def __getitem__(self, name: str) -> Expr:
        super().__getitem__(name)
        return Col(self._names[name], _PAIR)
