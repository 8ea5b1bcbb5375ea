"""Rules for the types of calls, from the types of their operands, as in Spark; None where Spark must be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import Result
from streamq.plan.function import Operand, UnfitOperands
from streamq.plan.spark_types import FLOATING, comparable, is_numeric, wider

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
