"""Built-in functions, each composed of its Spark form, Arrow form, type, totality and notation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from streamq.plan.function import ArrowForm, Function, Notation, Operand, Text
from streamq.plan.spark_types import INTEGRAL

if TYPE_CHECKING:
    from pyspark.sql import Column

Result = Callable[[Sequence[Operand]], DataType | None]
"""The type of a call from its operands; as :meth:`streamq.plan.function.Function.result_type`."""
Total = Callable[[Sequence[Operand], DataType | None], bool]
"""True if no row can make a call fail; as :meth:`streamq.plan.function.Function.is_total`."""


@dataclass(frozen=True, eq=False)
class BuiltIn(Function):
    """A function of Spark's; ``spark`` is its form there, if not the function of that name in ``pyspark.sql.functions``.

    ``result`` is its type, or computes it; ``total``: True if no row makes it fail once its type is known, or a function.
    ``exact``: True if Arrow computes it exactly as Spark on integers, and on operands of one type if it only selects among
    them. ``names_fields``: the result's fields have the names of the arguments, which therefore keep their names.
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
        from pyspark.sql import functions

        return getattr(functions, self.name)(*arguments)

    def result_type(self, operands: Sequence[Operand]) -> DataType | None:
        return self.result(operands) if callable(self.result) else self.result

    def is_total(self, operands: Sequence[Operand], result: DataType | None) -> bool:
        return self.total(operands, result) if callable(self.total) else self.total and result is not None

    def is_exact(self, operands: Sequence[DataType], result: DataType) -> bool:
        if not self.exact:
            return False
        if all(isinstance(kind, INTEGRAL) for kind in (*operands, *(() if self.selects else (result,)))):
            return True
        return self.selects and all(kind == operands[0] for kind in operands)

    def shown_over(self, arguments: Sequence[Text]) -> Text:
        return super().shown_over(arguments) if self.shown is None else self.shown(arguments)
