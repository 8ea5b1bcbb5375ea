"""Functions of one event's values, and their operands; nothing in streamq compares a function's name.

The built-in ones are instances in ``streamq/functions/``; a function of a user's own is one more instance. An operand knows its
type while a query is checked and its values in Arrow while it runs. Plans refer to functions by name in digests and JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import DataType

from streamq.errors import StreamqError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Operand:
    """The type of an operand, None where only Spark knows it; ``constant`` is the Python value if it was written down as one.

    It is an ellipsis otherwise, because None is a constant, too.
    """

    kind: DataType | None
    constant: Any = ...


@dataclass(frozen=True)
class Fault:
    """The rows on which Spark raises an error, and the error: its text, and its class and cause where they add to it.

    module: the module that sets the events of these rows aside; empty: the query fails.
    """

    rows: Mask
    text: str
    kind: type[StreamqError] = StreamqError
    cause: BaseException | None = None
    module: str = ""


@dataclass(frozen=True)
class Value:
    """A computed operand; NULL where it has a fault. ``constant`` is as in an ``Operand``."""

    array: pa.Array
    kind: DataType
    constant: Any = ...
    faults: tuple[Fault, ...] = ()


OperandCheck = Callable[[Sequence[Value]], bool]
"""True if operands of these types and constants are accepted; their arrays are empty."""
OperandRows = Callable[[Sequence[Value]], "list[Mask | None]"]
"""Returns for each operand the rows on which Spark evaluates it, None for all."""
Compute = Callable[[Sequence[Value], DataType], "pa.Array | tuple[pa.Array, Sequence[Fault]]"]
"""Returns the result of that type and the faults of rows that fail, if any can."""


def rows_before_null(operands: Sequence[Value]) -> list[Mask | None]:
    """Return a mask for each operand: the rows where Spark evaluates it, as none before it is NULL; None, for the first: all."""
    reached: list[Mask | None] = [None]
    for operand in operands[:-1]:
        is_valid = operand.array.is_valid().to_numpy(zero_copy_only=False)
        reached.append(is_valid if reached[-1] is None else reached[-1] & is_valid)
    return reached


@dataclass(frozen=True)
class ArrowForm:
    """The in-process computation of a function, from Arrow arrays to an array, with Spark's answer to the last bit.

    ``takes``: the types that it accepts; others need Spark. ``compute``: returns the array of the result type, NULL where the
    result is, and the rows on which Spark raises, if there are any. ``operand_rows``: those on which each operand is
    evaluated, because errors on other rows do not count; by default from left to right up to the first NULL.
    """

    takes: OperandCheck
    compute: Compute
    operand_rows: OperandRows = rows_before_null


class NamedObject:
    """An object that plans refer to by name; two with one ``identity`` mean the same."""

    name: str

    @property
    def identity(self) -> str:
        """The text that stands for the object in digests, hence in checkpoints: its name, to which a user's own adds more."""
        return self.name

    @property
    def state_identity(self) -> str:
        """The text that stands for the object in the names of operators' states; a user's code is no part of it."""
        return self.identity

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedObject) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


class VersionedCode(NamedObject):
    """A user's code under a name, in a version; ``compatible_with``: an earlier version whose state goes on with this one.

    code_text: a text that differs for other code.
    """

    version: int
    compatible_with: int | None
    code_text: str


class CallableModule(VersionedCode):
    """A module that a decorator made of a user's ``code``; a call with columns makes an expression of it."""

    code: Any

    @property
    def example_call(self) -> str:
        """Its call with a column, as messages show it."""
        return f'{self.name}("v")'


@dataclass(frozen=True)
class Text:
    """The text of a part of an expression, and how tightly it binds: 9 never needs brackets, 0 always does."""

    text: str
    rank: int = 9

    def as_operand(self, least: int) -> str:
        """Return the text, in brackets if it binds less tightly than ``least``."""
        return self.text if self.rank >= least else f"({self.text})"


@dataclass(frozen=True)
class Infix:
    """Python writes the call as an operator between two operands; ``rank`` is how tightly Python binds it."""

    sign: str
    rank: int


@dataclass(frozen=True)
class Prefix:
    """Python writes the call as a sign before its operand."""

    sign: str


@dataclass(frozen=True)
class Method:
    """Python writes the call as a method of the first operand; ``operands``: how many there are, None for any number."""

    name: str
    operands: int | None = 2


@dataclass(frozen=True)
class Subscript:
    """Python writes the second operand in square brackets after the first."""


Notation = Infix | Prefix | Method | Subscript
"""How a user writes a call in Python, if not as ``sq.functions.name(...)``."""


class UnfitOperands(Exception):
    """Raised by :meth:`Function.result_type` where Spark would refuse the types; the caller adds the verb and the expression."""

    def __init__(self, wrong: str, hint: str, kind: DataType | None = None):
        super().__init__(wrong)
        self.wrong, self.hint, self.kind = wrong, hint, kind


class Function(NamedObject, ABC):
    """A function of one event's values, as a value: plans hold it, and every host asks it for what it needs.

    It must be fit to travel to executors by value where ``arrow`` is used there: what its methods refer to goes along.
    """

    name: str
    """Its name in explain, in messages and in Spark; in JSON too, if it is built in."""

    arrow: ArrowForm | None = None
    """Its computation without Spark; None if only Spark computes it."""

    deterministic: bool = True
    """True if equal operands give equal results, so that rules may move a call or evaluate it twice."""

    cheap: bool = False
    """True if a call costs next to nothing, so that rules may write it twice."""

    selects: bool = False
    """True if the result is a truth value or one of the operands: no values arise that were not there."""

    in_python: bool = False
    """True if Spark calls Python for it, which it does not do in the condition of an outer join."""

    notation: Notation | None = None
    """How a user writes a call in Python, if not as ``sq.functions.name(...)``."""

    @property
    def sets_aside(self) -> bool:
        """True if the events that it fails for are set aside, and the query goes on."""
        return False

    @property
    def identity(self) -> str:
        """The text that stands for the function in digests: different for every function, the same in every run of a program.

        By default its class and its name: a class whose instances differ in more overrides it.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}({self.name!r})"

    @abstractmethod
    def on_spark(self, *arguments: Any) -> Column:
        """Return the Spark Column of a call from the Columns of its operands; plain Python arguments are passed unchanged."""

    def on_spark_among(self, is_there: Column | None, *arguments: Any) -> Column:
        """Return the Column of a call of which only the rows where ``is_there`` holds are read (None: all rows).

        A function that sees many rows at once overrides it, to skip the others.
        """
        return self.on_spark(*arguments)

    def result_type(self, operands: Sequence[Operand]) -> DataType | None:
        """Return the type of a call by Spark's rules, None where Spark must be asked; raise UnfitOperands for what it refuses."""
        return None

    def is_total(self, operands: Sequence[Operand], result: DataType | None) -> bool:
        """True if no row can make a call fail; False where that is unknown. Every literal among the operands is a constant."""
        return False

    def is_exact(self, operands: Sequence[DataType], result: DataType) -> bool:
        """True if ``arrow`` computes a call as Spark does, to the last bit and with the same failures, whatever the session.

        A stage computes such calls itself between two kernels. False unless the function promises it.
        """
        return False

    def shown_over(self, arguments: Sequence[Text]) -> Text:
        """Return a call as explain and messages show it."""
        return Text(f"{self.name}({', '.join(a.text for a in arguments)})")


def called(function: Function) -> str:
    """Return a function as a user calls it in Python, with operands ``x`` and ``y``, for messages and pages."""
    match function.notation:
        case Infix(sign=sign):
            return f"x {sign} y"
        case Prefix(sign=sign):
            return f"{sign}x"
        case Method(name=name, operands=operands):
            return f"x.{name}({'' if operands == 1 else 'y' if operands == 2 else 'y, ...'})"
        case Subscript():
            return "x[key]"
    return f"{function.name}()"


Show = Callable[[Sequence[Text]], Text]
"""Makes the text of a call from the texts of its arguments."""

BUILT_IN: dict[str, Function] = {}
"""The built-in functions by name, and operators by sign; :mod:`streamq.functions` fills it when it is loaded."""
