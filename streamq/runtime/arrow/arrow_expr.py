"""Expressions over Arrow arrays, without Spark and with Spark's answers.

One pass from the leaves up, every shared part once, computes an array for each node, and the rows on which Spark would raise. A
parent drops the faults of rows that it would not evaluate (a branch of CASE not taken, the right of an AND whose left is false);
the faults left at the root are raised. So an error appears exactly where Spark's lazy evaluation would raise it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark, StreamqError, sentence
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit, fold
from streamq.plan.function import ArrowForm, Fault, Value, called
from streamq.plan.passes import leading_arguments, show_to_user, types
from streamq.plan.schema import Schema
from streamq.plan.spark_types import literal_type
from streamq.runtime.arrow.arrow_casts import can_cast, cast
from streamq.runtime.arrow.arrow_types import arrow_type, constant_array, is_true
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.plan.function import Mask

_HINTS = {
    "[DIVIDE_BY_ZERO]": "Guard it: sq.when(y != 0, x / y).",
    "[REMAINDER_BY_ZERO]": "Guard it: sq.when(y != 0, x % y).",
    "[ARITHMETIC_OVERFLOW]": "Cast the operands to a wider type.",
    "[CAST_OVERFLOW]": "Cast to a wider type.",
    "[CAST_INVALID_INPUT]": "Guard the cast with sq.when(...).",
    "[NUMERIC_VALUE_OUT_OF_RANGE]": "Cast to a decimal with more digits.",
    "[INVALID_FORMAT]": r"\ may only stand before %, _ and \.",
}


def evaluate(
    expr: Expr, schema: Schema, columns: Mapping[str, pa.Array], lifetime: Callable[[str], pa.Array], rows: int
) -> pa.Array:
    """Return the values of an expression on ``rows`` events, in the Arrow type of ``infer(expr, schema)``.

    ``columns`` are the payload's arrays by name; ``lifetime`` returns the array of start, end or duration. Raises the error of
    the first row on which Spark raises, and NeedsSpark for an expression that :func:`check_in_process` refuses.
    """
    value = attempt(expr, schema, columns, lifetime, rows)
    if value.faults:
        first = min(value.faults, key=lambda f: int(f.rows.argmax()))
        raise first.kind(first.text) from first.cause
    return value.array


def attempt(
    expr: Expr, schema: Schema, columns: Mapping[str, pa.Array], lifetime: Callable[[str], pa.Array], rows: int
) -> Value:
    """Evaluate as :func:`evaluate`, but return rows on which Spark raises as faults; their values are arbitrary."""
    return _LAST_USED.checked(expr, schema).attempt(columns, lifetime, rows)


class CheckedExpression:
    """An expression over events of ``schema`` whose types are checked once, however often it is evaluated.

    ``parts`` lists each part once, as (part, places of its operands in the list, type), operands first. Raises NeedsSpark if it
    cannot be evaluated in-process.
    """

    def __init__(self, expr: Expr, schema: Schema):
        """Check the expression, and list its parts."""
        kinds = _checked(expr, schema, "expression")
        self.expr, self.schema = expr, schema
        self.parts: list[tuple[Expr, list[int], DataType]] = []

        def visit(node: Expr, operands: list[int]) -> int:
            self.parts.append((node, operands, kinds[node.digest]))
            return len(self.parts) - 1

        fold(expr, visit)

    def attempt(self, columns: Mapping[str, pa.Array], lifetime: Callable[[str], pa.Array], rows: int) -> Value:
        """Evaluate as :func:`attempt`: each part once, operands before the parts that read them."""
        values: list[Value] = []
        for node, operands, kind in self.parts:
            values.append(_value(node, [values[place] for place in operands], kind, columns, lifetime, rows))
        return values[-1]


class ExpressionMemory:
    """The expressions evaluated last, checked: those of a running query come again in every micro-batch."""

    def __init__(self) -> None:
        self.by_id: OrderedDict[int, CheckedExpression] = OrderedDict()

    def checked(self, expr: Expr, schema: Schema) -> CheckedExpression:
        """Return the expression, checked for this schema: the same object as before, if it is still remembered.

        Expressions are told apart as objects, because the digests of two may be equal where their functions differ.
        """
        checked = self.by_id.pop(id(expr), None)
        if checked is None or checked.expr is not expr or checked.schema != schema:
            checked = CheckedExpression(expr, schema)
        self.by_id[id(expr)] = checked
        if len(self.by_id) > MOST_EXPRESSIONS:
            self.by_id.popitem(last=False)
        return checked

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to workers empty."""
        return ExpressionMemory, ()


MOST_EXPRESSIONS = 1_000
"""The number of expressions that a process remembers; then it forgets the one evaluated longest ago."""

_LAST_USED = ExpressionMemory()


def _value(
    node: Expr,
    operands: list[Value],
    kind: DataType,
    columns: Mapping[str, pa.Array],
    lifetime: Callable[[str], pa.Array],
    rows: int,
) -> Value:
    """Return the value of a part of an expression, of type ``kind``, on ``rows`` rows, from the values of its operands.

    Its faults are its own, and those of operands on the rows on which Spark evaluates these.
    """
    match node:
        # the most frequent kinds come first
        case Call() if node.function.arrow is not None:
            return _call(node, node.function.arrow, operands, kind, rows)
        case Col(name=name):
            return Value(_plain(columns[name], kind), kind)
        case Lit(value=value):
            natural = literal_type(value)
            array, faults = cast(constant_array(value, natural, rows), natural, kind)
            return Value(array, kind, value if kind == natural else ..., _located(node, faults))
        case Lifetime(part=part):
            return Value(_plain(lifetime(part), kind), kind)
        case Alias():
            return operands[0]
        case Cast(type=to):
            array, faults = cast(operands[0].array, operands[0].kind, to)
            return Value(array, to, ..., (*operands[0].faults, *_located(node, faults)))
        case Case():
            return _case(operands, kind, rows)
    raise AssertionError(type(node))


def lifetime_part(part: str, starts: pa.Array, ends: pa.Array, axis: pa.DataType) -> pa.Array:
    """Return the starts, ends or durations of events, as expressions read them, from their ticks.

    ``axis`` is the type of starts and ends; durations are ticks. The end and the duration of an endless event are NULL; a
    duration that overflows is INFINITY.
    """
    if part == "start":
        return starts.cast(axis)
    is_endless = pc.equal(ends, INFINITY)
    if part == "end":
        return pc.if_else(is_endless, None, ends).cast(axis)
    # a difference that overflows is longer than the axis: durations saturate
    duration = pc.subtract(ends, starts)
    return pc.if_else(is_endless, None, pc.if_else(pc.less(duration, 0), INFINITY, duration))


def check_in_process(expr: Expr, schema: Schema, verb: str) -> None:
    """Raise NeedsSpark, in the name of ``verb``, for an expression that cannot be evaluated here with Spark's answer."""
    _checked(expr, schema, verb)


def _checked(expr: Expr, schema: Schema, verb: str) -> dict[str, DataType]:
    """Return the type of every node, by its digest; raise NeedsSpark if one cannot be evaluated here."""
    inferred = types(expr, schema, verb)
    checked: dict[str, DataType] = {}

    def visit(node: Expr, parts: list[DataType]) -> DataType:
        """Return the type of a node, over those of its children, and record it; raise NeedsSpark if it is refused."""
        kind = inferred[node.digest]
        refusal = _refusal(node, parts, kind)
        if refusal is None and kind is not None:
            arrow_type(kind)
            checked[node.digest] = kind
            return kind
        from streamq.plan.hints import ON_SPARK  # stays here: executors evaluate what has been checked

        what, hint = refusal or ("its type" if node.children else "a pyspark Column", "")
        hint = hint or f"Cast the operands; or {ON_SPARK}."
        wrong = f"{what} needs Spark, and this query runs in-process"
        raise NeedsSpark(verb, wrong, f"found {show_to_user(node)}", hint)

    fold(expr, visit)
    return checked


def _refusal(node: Expr, parts: list[DataType], kind: DataType | None) -> tuple[str, str] | None:
    """Return the part of a node that needs Spark, and what to write instead, which may be empty.

    None if it can be evaluated here, provided that ``kind`` is known: a pyspark Column gives None, too. ``parts`` are the types
    of its children, ``kind`` is its own, None if only Spark knows it.
    """
    match node:
        case Call(function=function):
            arrow = function.arrow
            if arrow is None:
                from streamq.plan.hints import for_spark_alone  # stays here, too

                return called(function), for_spark_alone(function.name)
            if kind is None or not arrow.takes(_operands(node, [_sample(k) for k in parts], 0)):
                return f"{function.name}({', '.join(k.simpleString() for k in parts)})", ""
        case Case():
            if kind is None or not all(can_cast(k, kind) for k in (*parts[1:-1:2], parts[-1])):
                return "a case of values of several types", "Cast the values to one type."
        case Cast(type=to):
            if not can_cast(parts[0], to):
                return f"a cast of {parts[0].simpleString()} to {to.simpleString()}", ""
        case Lit(value=value, type=to) if to is not None and not can_cast(literal_type(value), to):
            return f"a literal of type {to.simpleString()}", ""
    return None


def _sample(kind: DataType) -> Value:
    """Return a value of a type, without rows, to ask a function if it accepts the type."""
    return Value(pa.nulls(0), kind)


def _operands(node: Call, parts: Sequence[Value], rows: int) -> list[Value]:
    """Return the arguments of a call in order, plain Python values as constants; those omitted at the end (None) are missing.

    ``parts`` are the values of its children.
    """
    operands = []
    for argument, value in zip(leading_arguments(node), node.arguments(parts), strict=False):
        if not isinstance(argument, Expr):
            kind = literal_type(argument)
            operands.append(Value(constant_array(argument, kind, rows), kind, argument))
            continue
        constant = argument.value if isinstance(argument, Lit) and argument.type is None else ...
        operands.append(value if value.constant is constant else replace(value, constant=constant))
    return operands


def _call(node: Call, arrow: ArrowForm, parts: Sequence[Value], kind: DataType, rows: int) -> Value:
    """Return the value of a call, with its own faults and those of the operands on the rows where it evaluates them."""
    operands = _operands(node, parts, rows)
    faults: list[Fault] = []
    if any(o.faults for o in operands):
        for operand, evaluated in zip(operands, arrow.operand_rows(operands), strict=True):
            faults += _restricted(operand.faults, evaluated)
    result = arrow.compute(operands, kind)
    array, own = result if isinstance(result, tuple) else (result, [])
    return Value(array, kind, ..., (*faults, *_located(node, own)))


def _case(parts: Sequence[Value], kind: DataType, rows: int) -> Value:
    """Return the value of a CASE, with the faults of each part on the rows that evaluate it.

    ``parts`` are a condition and a value for each branch, then the value of ELSE.
    """
    faults: list[Fault] = []
    rest = np.ones(rows, dtype=bool)
    branches: list[tuple[Mask, Value]] = []
    for condition, value in zip(parts[:-1:2], parts[1:-1:2], strict=True):
        faults += _restricted(condition.faults, rest)
        is_here = rest & is_true(condition.array)
        faults += _restricted(value.faults, is_here)
        branches.append((is_here, value))
        rest = rest & ~is_here
    faults += _restricted(parts[-1].faults, rest)
    result, _ = cast(parts[-1].array, parts[-1].kind, kind)
    if not isinstance(kind, t.NullType):
        for is_here, value in branches:
            result = pc.if_else(pa.array(is_here), cast(value.array, value.kind, kind)[0], result)
    return Value(result, kind, ..., tuple(faults))


def _restricted(faults: Sequence[Fault], reached: Mask | None) -> list[Fault]:
    """Return the faults on the rows that are evaluated at all: those of ``reached``, or all rows if it is None."""
    if reached is None:
        return list(faults)
    restricted = (replace(f, rows=f.rows & reached) for f in faults)
    return [f for f in restricted if f.rows.any()]


def _located(node: Expr, faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Return the faults with a message that shows the expression ``node`` and a hint.

    Faults with an error class of their own, not StreamqError, are unchanged: their messages are complete.
    """
    if not faults:
        return ()
    shown = show_to_user(node)
    return tuple(
        f
        if f.kind is not StreamqError
        else Fault(f.rows, sentence("expression", f.text, f"found {shown}", _HINTS.get(f.text.partition(" ")[0], "")))
        for f in faults
    )


def _plain(array: pa.Array | pa.ChunkedArray, kind: DataType) -> pa.Array:
    """Return an array or a chunked array in one piece, in the one Arrow type for its Spark type."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    to = arrow_type(kind)
    return array if array.type == to else array.cast(to, safe=False)


__all__ = ["arrow_type", "attempt", "check_in_process", "evaluate", "lifetime_part"]
