"""Built-in functions, each composed of its Spark form, Arrow form, type, totality and notation; and the parts that rooms share.

The parts are the types of operands that are accepted, the rules for the types of calls, as in Spark, and arithmetic that checks
for overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.function import (
    ArrowForm,
    Compute,
    Function,
    Notation,
    Operand,
    OperandCheck,
    OperandRows,
    Show,
    Text,
    UnfitOperands,
    Value,
    rows_before_null,
)
from streamq.plan.spark_types import FLOATING, INTEGRAL, as_decimal, comparable, is_numeric, wider
from streamq.runtime.arrow.arrow_casts import can_cast, cast
from streamq.runtime.arrow.arrow_types import BITS, OVERFLOW, Outcome, RowError, arrow_type, is_null, is_valid, rowwise

if TYPE_CHECKING:
    from streamq.plan.function import Mask


COMPUTED_ALIKE = (*INTEGRAL, t.DoubleType)
"""The numbers with which Arrow and the JVM compute alike: each operation on doubles rounds by IEEE 754."""

Result = Callable[[Sequence[Operand]], DataType | None]
"""The type of a call from its operands; as :meth:`streamq.plan.function.Function.result_type`."""
Total = Callable[[Sequence[Operand], DataType | None], bool]
"""True if no row can make a call fail; as :meth:`streamq.plan.function.Function.is_total`."""


@dataclass(frozen=True, eq=False)
class BuiltIn(Function):
    """A function of Spark's; ``spark`` is its form there, if not the function of that name in ``pyspark.sql.functions``.

    ``result`` is its type, or computes it; ``total``: True if no row makes it fail once its type is known, or a function.
    ``exact``: True if Arrow computes it exactly as Spark on integers and doubles, and, if it only selects among its operands,
    on operands of one type. ``names_fields``: the result's fields have the names of the arguments, which therefore keep theirs.
    """

    name: str
    spark: Callable[..., Column] | None = None
    result: DataType | Result | None = None
    arrow: ArrowForm | None = None
    total: bool | Total = False
    deterministic: bool = True
    cheap: bool = False
    selects: bool = False
    shown: Callable[[Sequence[Text]], Text] | None = None
    notation: Notation | None = None
    names_fields: bool = False
    exact: bool = False

    @property
    def identity(self) -> str:
        return self.name

    def on_spark(self, *arguments: Any) -> Column:
        if self.spark is not None:
            return self.spark(*arguments)
        return getattr(functions, self.name)(*arguments)

    def result_type(self, operands: Sequence[Operand]) -> DataType | None:
        return self.result(operands) if callable(self.result) else self.result

    def is_total(self, operands: Sequence[Operand], result: DataType | None) -> bool:
        return self.total(operands, result) if callable(self.total) else self.total and result is not None

    def is_exact(self, operands: Sequence[DataType], result: DataType) -> bool:
        if not self.exact:
            return False
        if all(isinstance(kind, COMPUTED_ALIKE) for kind in (*operands, *(() if self.selects else (result,)))):
            return True
        return self.selects and all(kind == operands[0] for kind in operands)

    def shown_over(self, arguments: Sequence[Text]) -> Text:
        return super().shown_over(arguments) if self.shown is None else self.shown(arguments)


def in_arrow(
    name: str,
    result: DataType | Result,
    takes: OperandCheck,
    compute: Compute,
    operand_rows: OperandRows = rows_before_null,
    **traits: Any,
) -> BuiltIn:
    """Return a function from its type and the parts of its Arrow form; ``traits`` are further fields of a ``BuiltIn``."""
    return BuiltIn(name, result=result, arrow=ArrowForm(takes, compute, operand_rows), **traits)


def infix(sign: str, rank: int) -> Show:
    """Return a function that shows ``a sign b``, which binds as tightly as ``rank`` and groups from the left."""
    return lambda arguments: Text(f"{arguments[0].as_operand(rank)} {sign} {arguments[1].as_operand(rank + 1)}", rank)


def overflow_message(kind: DataType) -> str:
    """Return Spark's message for a result that does not fit the type."""
    return OVERFLOW.format(to=kind.simpleString())


def overflow_checked(
    strict: Callable[..., pa.Array], exact: Callable[..., Any], kind: DataType, *arrays: pa.Array
) -> Outcome:
    """Return the result of Arrow's function ``strict``; rows that overflow are NULL and faults.

    Only if ``strict`` fails, ``exact``, Python's function of integers, computes row by row to find those rows. For an
    instant or a duration as ``kind`` the arrays and the result hold ticks, as bigint.
    """
    try:
        return strict(*arrays), []
    except pa.ArrowInvalid:
        bits = 64 if pa.types.is_temporal(arrow_type(kind)) else BITS[type(kind)]

    def bounded(*row: int) -> int:
        result = exact(*row)
        if not -(1 << bits - 1) <= result < 1 << bits - 1:
            raise RowError
        return result

    integral = {8: t.ByteType, 16: t.ShortType, 32: t.IntegerType, 64: t.LongType}[bits]()
    return rowwise(bounded, integral, overflow_message(kind), *arrays)


Group = tuple[type[DataType], ...]
BOOLEAN: Group = (t.BooleanType,)
STRING: Group = (t.StringType,)
BYTES: Group = (t.StringType, t.BinaryType)
WHOLE: Group = (t.IntegerType, t.ShortType, t.ByteType)
INSTANT: Group = (t.TimestampType,)
DAYS: Group = (t.DateType, t.TimestampType)
DOUBLE: Group = (t.DoubleType, t.FloatType, *INTEGRAL)
ANY: Group = (DataType,)
NUMBER: Group = (*DOUBLE, t.DecimalType)


def is_in_group(kind: DataType, group: Group) -> bool:
    """True if a type is one of the group, or the type of NULL; strings with a collation are not."""
    return isinstance(kind, (*group, t.NullType)) and (not isinstance(kind, t.StringType) or kind == t.StringType())


def types_accepted(*groups: Group, optional: int = 0, repeated: bool = False) -> OperandCheck:
    """Return a check that accepts an operand of each group of types, or NULL.

    ``repeated``: operands beyond the groups are accepted if they are of the last one. ``optional``: how many may be missing at
    the end.
    """

    def takes(operands: Sequence[Value]) -> bool:
        if len(operands) < len(groups) - optional or (len(operands) > len(groups) and not repeated):
            return False
        wanted = [*groups, *[groups[-1]] * (len(operands) - len(groups))]
        return all(is_in_group(o.kind, g) for o, g in zip(operands, wanted, strict=False))

    return takes


def with_constant(takes: OperandCheck, at: int, kind: type) -> OperandCheck:
    """Return a check that accepts what ``takes`` does, if the operand ``at`` is missing or a constant of type ``kind``."""
    return lambda operands: takes(operands) and (len(operands) <= at or type(operands[at].constant) is kind)


def common_type(operands: Sequence[Value]) -> DataType | None:
    """Return the type in which operands are compared or selected; None where only Spark knows it, or compares otherwise.

    Spark must be asked for lists, maps and structs, and for decimals that need more than 38 digits.
    """

    def both(a: DataType | None, b: DataType) -> DataType | None:
        """Return the common type of two types; None if ``a`` is None, or if Spark must be asked."""
        if a is None:
            return None
        if plain := wider(a, b):
            return plain
        if (isinstance(a, t.DecimalType) and isinstance(b, FLOATING)) or (
            isinstance(b, t.DecimalType) and isinstance(a, FLOATING)
        ):
            return t.DoubleType()
        left, right = as_decimal(a), as_decimal(b)
        if left is None or right is None:
            return None
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return t.DecimalType(precision, scale) if precision <= 38 else None

    start: DataType | None = t.NullType()
    kind = reduce(both, (o.kind for o in operands), start)
    if kind is None or isinstance(kind, t.ArrayType | t.MapType | t.StructType):
        return None
    return kind if all(can_cast(o.kind, kind) for o in operands) else None


def have_common_type(operands: Sequence[Value]) -> bool:
    """True if the operands have a common type."""
    return len(operands) > 0 and common_type(operands) is not None


def have_unwidened_type(operands: Sequence[Value]) -> bool:
    """True if the operands have a common type without widening a decimal."""
    return have_common_type(operands) and reduce(lambda a, b: a and wider(a, b), (o.kind for o in operands)) is not None  # type: ignore[arg-type, return-value]


def cast_operand(operand: Value, to: DataType) -> pa.Array:
    """Return the operand's array in another type, to which every value of its type can be cast."""
    return cast(operand.array, operand.kind, to)[0]


# the rows on which an operand is evaluated


def divisor_rows(operands: Sequence[Value]) -> list[Mask | None]:
    """Operand rows of operators that evaluate the right operand first, then the left where the right is not NULL."""
    return [is_valid(operands[1].array), None]


def all_rows(operands: Sequence[Value]) -> list[Mask | None]:
    """Operand rows of functions that evaluate every operand on every row."""
    return [None] * len(operands)


def rows_until_valid(operands: Sequence[Value]) -> list[Mask | None]:
    """Operand rows of functions that evaluate each operand where all operands before it are NULL; None: on all rows."""
    reached: list[Mask | None] = [None]
    for operand in operands[:-1]:
        missing = is_null(operand.array)
        reached.append(missing if reached[-1] is None else reached[-1] & missing)
    return reached


Rule = Callable[..., DataType | None]
"""The type of a call from the types of its operands, all of which are known."""


def typed_by(rule: Rule) -> Result:
    """Return the result of ``rule`` where the types of all operands are known; None where one is not, or without operands."""

    def result(operands: Sequence[Operand]) -> DataType | None:
        kinds = [o.kind for o in operands]
        return rule(*kinds) if kinds and None not in kinds else None

    return result


def compared_type(operands: Sequence[Operand]) -> DataType:
    """Return BOOLEAN for operands that can each be compared with the first; raise UnfitOperands for others.

    An operand of an unknown type is accepted.
    """
    first, *others = operands
    for other in others:
        if first.kind is not None and other.kind is not None and not comparable(first.kind, other.kind):
            wrong = f"cannot compare {first.kind.simpleString()} with {other.kind.simpleString()}"
            raise UnfitOperands(wrong, _instead({type(first.kind), type(other.kind)}))
    return t.BooleanType()


def _instead(kinds: set[type[DataType]]) -> str:
    """Return the hint for two types that have no order between them."""
    if kinds == {t.TimestampType, t.StringType}:
        return "An instant is dt.datetime(2024, 5, 1, 12, 30), of the datetime module."
    if kinds == {t.DateType, t.StringType}:
        return "A day is dt.date(2024, 5, 1), of the datetime module."
    if kinds == {t.DayTimeIntervalType, t.StringType}:
        return "A duration is dt.timedelta(seconds=10), of the datetime module."
    if t.DayTimeIntervalType in kinds:
        return "sq.duration() is a number of ticks; sq.end() - sq.start() is a duration."
    return "Cast one side."


def logical_type(name: str) -> Result:
    """Return a rule with BOOLEAN for booleans, NULL and unknown types; it raises UnfitOperands for others.

    ``name`` is the operator in the error.
    """

    def result(operands: Sequence[Operand]) -> DataType:
        for kind in (o.kind for o in operands):
            if kind is not None and not isinstance(kind, t.BooleanType | t.NullType):
                raise UnfitOperands(f"{name} needs booleans", "Compare it with something.", kind)
        return t.BooleanType()

    return result


def _common(*kinds: DataType) -> DataType | None:
    """Return the widest of the types, to which all others can be widened; None where Spark must be asked."""
    common: DataType | None = kinds[0]
    for kind in kinds[1:]:
        common = wider(common, kind) if common is not None else None
    return common


def _number(first: DataType, *rest: DataType) -> DataType | None:
    return first if is_numeric(first) else None


def _text(first: DataType, *rest: DataType) -> DataType | None:
    return first if isinstance(first, t.StringType | t.BinaryType) else None


COMMON = typed_by(_common)
"""The common type of all operands."""
FIRST = typed_by(lambda first, *rest: first)
"""The type of the first operand."""
SAME_NUMBER = typed_by(_number)
"""The type of the first operand, a number."""
SAME_TEXT = typed_by(_text)
"""The type of the first operand, a string or bytes."""
FLOATS = typed_by(lambda *kinds: _common(*kinds) if all(isinstance(k, FLOATING) for k in kinds) else None)
"""The widest of the operands' types, if all are floats."""
