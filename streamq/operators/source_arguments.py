"""The arguments of a source: how its rows become items, its columns of keys, ids and orders, and its policy.

Items are defined by expressions, once for DataFrames and Arrow tables. The policy says how the source makes progress, and what
it does with late and with invalid rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.choices import Invalid, check_word, choose_word
from streamq.errors import NeedsSpark, PlanError, column_names
from streamq.operators.alter_lifetime import instant_as_ticks
from streamq.operators.input_table import InputTable
from streamq.operators.step import is_exact
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.lowering import text_literal, to_sql
from streamq.plan.node import INLINE
from streamq.plan.schema import Field, Schema, check_key, check_names, quote
from streamq.progress_policies import GeneratedCtis, ProgressArgument, by_parts, explicit, generate, verbs
from streamq.runtime.arrow.arrow_casts import local_ticks
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.deltas import KIND, LE, NEW_END, NO_START, OPENS, RE, TOO_EARLY, TOO_LATE
from streamq.runtime.kernel import DROP, LATE_POLICIES, LatePolicy
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.time import INFINITY, MINUS_INFINITY, show_ticks

C = TypeVar("C")
I = TypeVar("I", bound="SourceItems[Any]")

_COLUMNS = tuple(
    Field(name, kind)
    for name, kind in (
        (LE, t.LongType()),
        (RE, t.LongType()),
        (NEW_END, t.LongType()),
        (KIND, t.StringType()),
        (OPENS, t.BooleanType()),
    )
)


class SourceItems(ABC, Generic[C]):
    """The items of a table: ``columns`` beside the payload, and a ``reason``, NULL for events.

    ``schema`` has the columns that expressions read. ``zone``: the time zone of times that have none, None for UTC.
    """

    def __init__(self, schema: Schema, zone: str | None):
        self.schema = schema
        self.zone = zone
        self.columns: dict[str, C] = {}

    @abstractmethod
    def evaluated(self, expr: Expr) -> C:
        """Return the values of an expression, one a row; it reads the table's columns and the item columns added so far."""

    @abstractmethod
    def ticks(self, name: str, missing: int | None) -> C:
        """Return a time column in ticks, with ``missing`` for NULL."""

    @abstractmethod
    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        """Set the reason ``why`` on the rows where ``is_wrong`` is true, unless they already have one."""


class ItemRule(ABC):
    """A rule by which rows become items. A source has its rules once, so that their expressions are checked once."""

    @abstractmethod
    def apply(self, items: SourceItems[Any]) -> None:
        """Add a column to the items, or refuse some."""


@dataclass(frozen=True)
class ItemColumn(ItemRule):
    """Adds a column to the items."""

    name: str
    expr: Expr

    def apply(self, items: SourceItems[Any]) -> None:
        items.columns[self.name] = items.evaluated(self.expr)


@dataclass(frozen=True)
class TickColumn(ItemRule):
    """Adds a time column of the table to the items, in ticks, with ``missing`` for NULL."""

    name: str
    column: str
    missing: int | None = None

    def apply(self, items: SourceItems[Any]) -> None:
        items.columns[self.name] = items.ticks(self.column, self.missing)


@dataclass(frozen=True)
class RowRefusal(ItemRule):
    """Refuses the rows where ``is_wrong`` is true, for the reason ``why``, unless they already have one."""

    is_wrong: Expr
    why: Expr

    def apply(self, items: SourceItems[Any]) -> None:
        items.refuse(self.is_wrong, self.why)


def refused_starts(last: int = INFINITY - 1, among: Expr | None = None) -> tuple[RowRefusal, ...]:
    """Return rules that refuse rows whose start is NULL, minus infinity, or after ``last``; all rows, or those of ``among``."""
    reasons = (Col(LE).is_null(), NO_START), (Col(LE) == MINUS_INFINITY, TOO_EARLY), (Col(LE) > last, TOO_LATE)
    return tuple(RowRefusal(is_wrong if among is None else among & is_wrong, Lit(why)) for is_wrong, why in reasons)


class SqlItems(SourceItems[str]):
    """The items of a DataFrame, as SQL over the columns of its table."""

    def __init__(self, schema: Schema, zone: str | None):
        super().__init__(schema, zone)
        self._refusals: list[tuple[str, str]] = []

    def evaluated(self, expr: Expr) -> str:
        return to_sql(expr, lambda name: self.columns.get(name) or quote(name))

    def ticks(self, name: str, missing: int | None) -> str:
        """Return a time column of the table in ticks, with ``missing`` (None: NULL) for NULL."""
        ticks = self.evaluated(instant_as_ticks(Col(name), self.schema.type_of(name)))
        if self.zone is not None:
            ticks = f"unix_micros(to_utc_timestamp(timestamp_micros({ticks}), '{self.zone}'))"
        return ticks if missing is None else f"coalesce({ticks}, {missing}L)"

    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        """Refuse the rows where ``is_wrong`` is true, not NULL, and no earlier rule has refused the row."""
        self._refusals.append((self.evaluated(is_wrong), self.evaluated(why)))

    @property
    def refusal(self) -> RefusedRows:
        """The rows that the rules refuse."""
        whens = (f"WHEN {is_wrong} THEN {why}" for is_wrong, why in self._refusals)
        return RefusedRows(" OR ".join(is_wrong for is_wrong, _ in self._refusals), f"CASE {' '.join(whens)} END")


class ComparedItems(SourceItems[None]):
    """No items: it finds out whether Arrow makes those of a table as Spark does."""

    is_exact = True

    def evaluated(self, expr: Expr) -> None:
        self.is_exact &= is_exact(expr, self.schema)

    def ticks(self, name: str, missing: int | None) -> None:
        """Do nothing: instants are alike."""

    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        self.evaluated(is_wrong)
        self.evaluated(why)


@dataclass(frozen=True)
class RefusedRows:
    """The rows of a DataFrame that are no events, as SQL: where ``is_wrong`` is true, not NULL, and why, a text.

    The text is NULL for events.
    """

    is_wrong: str
    why: str

    @classmethod
    def single(cls, is_wrong: str, why: str) -> Self:
        """Return the rows that are refused for one reason, ``why``."""
        return cls(is_wrong, f"CASE WHEN {is_wrong} THEN {text_literal(why)} END")


class TableArrays(dict[str, pa.Array]):
    """The columns of an Arrow table in one piece, by name; each is read from the table when it is first asked for."""

    def __init__(self, table: pa.Table):
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> pa.Array:
        array = self[name] = self.table.column(name).combine_chunks()
        return array


class ArrowItems(SourceItems[pa.Array]):
    """The items of an Arrow table."""

    def __init__(self, schema: Schema, zone: str | None, table: pa.Table):
        super().__init__(schema, zone)
        self.table = table
        self.arrays = ChainMap(self.columns, TableArrays(table))
        self.reason: Any = pa.nulls(table.num_rows, pa.string())

    def evaluated(self, expr: Expr) -> pa.Array:
        """Return the values of an expression; an item column is read before a column of the table of that name."""
        return evaluate(expr, self.schema, self.arrays, self._lifetime, self.table.num_rows)

    def ticks(self, name: str, missing: int | None) -> pa.Array:
        """Return a time column in ticks, ``missing`` for NULL; raise NeedsSpark for a type that Arrow has no instants of."""
        column = self.table.column(name).combine_chunks()
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz="UTC"))
        elif not pa.types.is_integer(column.type):
            wrong = f"column {name!r} of type {column.type} in-process"
            raise NeedsSpark("source", wrong, "", "Use integers or timestamps.")
        ticks = column.cast(pa.int64())
        if self.zone is not None:
            ticks = local_ticks(ticks, self.zone)
        return ticks if missing is None else pc.fill_null(ticks, missing)

    def refuse(self, is_wrong: Expr, why: Expr) -> None:
        """Set the reason to ``why`` where ``is_wrong`` is true, not NULL, and no earlier rule has refused the row."""
        if not self.table.num_rows:
            return
        is_refused = self.evaluated(is_wrong)
        if pc.any(is_refused).as_py():
            is_first = pc.and_(pc.is_null(self.reason), pc.fill_null(is_refused, False))
            self.reason = pc.if_else(is_first, self.evaluated(why), self.reason)

    def reason_with_lifetime(self, axis: str) -> Any:
        """Return the reasons, NULL for events; the first, which is the one raised, shows its item's start and end."""
        at = pc.index(pc.is_valid(self.reason), True).as_py()
        if at < 0:
            return self.reason
        ticks = {n: self.columns[c][at].as_py() for n, c in (("start", LE), ("end", RE)) if c in self.columns}
        shown = ", ".join(
            f"{n} {'NULL' if v is None or (n, v) == ('end', INFINITY) else show_ticks(v, axis)}"
            for n, v in ticks.items()
        )
        is_first = pa.array(np.arange(len(self.reason)) == at)
        return pc.if_else(is_first, f"{self.reason[at].as_py()} ({shown})", self.reason)

    def _lifetime(self, part: str) -> pa.Array:
        raise AssertionError(part)


class ItemRules:
    """The rules of a source over a table with the columns ``fields``, in order, whose times without a zone are of ``zone``."""

    def __init__(self, fields: tuple[Field, ...], rules: Iterable[ItemRule], zone: str | None = None):
        self.zone = zone
        self.schema = Schema((*fields, *_COLUMNS), "integer")
        self.rules = tuple(rules)

    @property
    def is_exact(self) -> bool:
        """True if Arrow makes the items as Spark does."""
        return self._applied(ComparedItems(self.schema, self.zone)).is_exact

    def in_sql(self) -> SqlItems:
        """Return the items of a DataFrame that has the table's columns."""
        return self._applied(SqlItems(self.schema, self.zone))

    def in_arrow(self, table: pa.Table) -> ArrowItems:
        """Return the items of an Arrow table."""
        return self._applied(ArrowItems(self.schema, self.zone, table))

    def _applied(self, items: I) -> I:
        """Apply all rules to the items, in order, and return them."""
        for rule in self.rules:
            rule.apply(items)
        return items


def key_columns(
    key: str | Sequence[str], fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str, what: str = "key"
) -> tuple[str, ...]:
    """Return the key's columns; raise PlanError if one is consumed, or if a payload column has a name of the lifetime's.

    ``fields``: all columns of the table; ``consumed``: those that are no payload; ``what``: the key's name in errors. A key of no
    columns is returned as such. Raises UnknownColumn, and TypeMismatch for values that cannot be compared.
    """
    keys = column_names(key, verb, f"the {what}")
    schema = Schema(fields, "integer")
    for column in keys:
        check_key(schema.require(column, verb), column, verb)
        if column in consumed:
            wrong = f"column {column!r} is of the {what} and is consumed"
            raise PlanError(verb, wrong, "", f"Give it another {what}.")
    check_names([f.name for f in fields if f.name not in consumed], verb)
    return keys


def id_columns(
    id: str | Sequence[str] | None, fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the id's columns, checked like those of a key; empty for None, PlanError for an id of no columns."""
    ids = () if id is None else key_columns(id, fields, consumed, verb, "id")
    if id is not None and not ids:
        raise PlanError(verb, "no id", "", 'Name the column: id="trip_id".')
    return ids


def order_columns(
    order_by: str | Sequence[str], fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the columns by which items of one instant act; raise as for a key if one is consumed or cannot be compared."""
    order = column_names(order_by, verb, "order_by")
    schema = Schema(fields, "integer")
    for column in order:
        check_key(schema.require(column, verb), column, verb, "order")
        if column in consumed:
            hint = "Give columns in which items of one instant differ, such as the position in the log."
            raise PlanError(verb, f"column {column!r} is in order_by and is consumed", "", hint)
    return order


def beside_columns(
    beside: str | Sequence[str], table: InputTable, taken: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the columns that are beside the events, those of the table's connector first.

    ``taken``: the columns of which the source makes events: times, key, id. Raises UnknownColumn, and PlanError for one of these,
    or for a column that comes twice.
    """
    of_table = tuple(name for name in table.beside if name not in taken)
    columns = (*of_table, *(name for name in column_names(beside, verb, "beside") if name not in of_table))
    schema = Schema(table.columns, "integer")
    for column in columns:
        schema.require(column, verb)
        if column in taken:
            wrong = f"column {column!r} makes the events, so it cannot be beside them"
            raise PlanError(verb, wrong, "", "Leave it out of beside.")
        if columns.count(column) > 1:
            raise PlanError(verb, f"column {column!r} is in beside twice", "", "Name it once.")
    return columns


@dataclass(frozen=True, kw_only=True)
class SourcePolicy:
    """A source's progress, and its policies for late and for invalid rows.

    ``late`` and ``invalid`` may be passed as strings; ``invalid`` is None if the user has not chosen one.
    """

    progress: ProgressPolicy = field(default=GeneratedCtis(), metadata=INLINE)
    late: LatePolicy = DROP
    invalid: Invalid | None = None

    def __post_init__(self) -> None:
        """Replace words by the policies that they name."""
        if isinstance(self.late, str):
            object.__setattr__(self, "late", LATE_POLICIES[self.late])
        object.__setattr__(self, "invalid", None if self.invalid is None else Invalid(self.invalid))

    def invalid_in(self, streaming: bool) -> Invalid:
        """Return the policy for rows that are no events: the user's choice, else a batch fails and a stream drops them."""
        return self.invalid or (Invalid.DROP if streaming else Invalid.FAIL)

    def shown(self, axis: str) -> str:
        """Return the policy as explain shows it, without default late and invalid: ``generate(delay=5 minutes), late=adjust``."""
        late = [] if self.late is DROP else [f"late={self.late.name}"]
        invalid = [] if self.invalid is None else [f"invalid={self.invalid}"]
        return ", ".join([self.progress.shown(axis), *late, *invalid])

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the policy for a plan whose tables are renamed: ``names`` maps old to new."""
        return replace(self, progress=self.progress.renamed(names))

    @property
    def progress_columns(self) -> dict[str, str]:
        """The carried columns of the source's items that progress reads, by the names of the payload's columns."""
        parts = self.progress.parts
        return {} if parts is None else parts.carried_columns


def source_policy(
    verb: str,
    axis: str,
    progress: ProgressArgument | None,
    late: str,
    invalid: str | None,
    *,
    parts: tuple[str, ...] = (),
    explicit_by_default: bool = False,
) -> SourcePolicy:
    """Return the policy that a source's arguments ask for; raise PlanError, at the user's line, for any that does not fit.

    ``verb`` made the source, for errors. Without ``progress`` CTIs are generated, or explicit if that is the default; generated
    ones are of each of the ``parts`` in which rows are in order, if there are any. Times of ``progress`` that do not fit the axis
    raise TimeError.
    """
    if progress is None:
        progress = explicit() if explicit_by_default else generate()
    anything: object = progress
    if not isinstance(anything, ProgressArgument):
        *others, last = (f"sq.{verb}(...)" for verb in verbs())
        wrong = f"progress is {', '.join(others)} or {last}"
        raise PlanError(verb, wrong, f"found {progress!r}")
    check_word(late, list(LATE_POLICIES), "late", verb)
    return SourcePolicy(
        progress=by_parts(progress.policy(axis), parts),
        late=LATE_POLICIES[late],
        invalid=None if invalid is None else choose_word(Invalid, invalid, "invalid", verb),
    )
