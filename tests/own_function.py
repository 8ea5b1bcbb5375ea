"""A function of a user's own, of which no file of streamq knows: the digit sum of an integer, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.plan.expr import Call, as_expr
from streamq.plan.function import ArrowForm, Function, Operand, UnfitOperands, Value


def digit_sum() -> Function:
    """The digits of an integer, added up; NULL of NULL. A class within a function, so that it travels by value."""

    def takes(operands: Sequence[Value]) -> bool:
        return len(operands) == 1 and isinstance(operands[0].kind, t.LongType)

    def compute(operands: Sequence[Value], kind: t.DataType) -> pa.Array:
        values = operands[0].array.to_pylist()
        return pa.array([None if v is None else sum(map(int, str(abs(v)))) for v in values], pa.int64())

    class DigitSum(Function):
        name = "digit_sum"
        arrow = ArrowForm(takes, compute)

        def on_spark(self, *arguments: Any) -> Column:
            digits = F.split(F.abs(arguments[0]).cast("string"), "")
            return F.aggregate(digits, F.lit(0).cast("long"), lambda total, digit: total + digit.cast("long"))

        def result_type(self, operands: Sequence[Operand]) -> t.DataType:
            for operand in operands:
                if not isinstance(operand.kind, t.LongType):
                    raise UnfitOperands("digit_sum needs a bigint", "Cast it.", operand.kind)
            return t.LongType()

        def is_total(self, operands: Sequence[Operand], result: t.DataType | None) -> bool:
            return True

    return DigitSum()


def call(function: Function, *operands: Any) -> Call:
    """A call of the function."""
    return Call(function, tuple(as_expr(o) for o in operands))
