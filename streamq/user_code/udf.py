"""``udf``: a user's function over one event's values, which every backend calls, with errors in one form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.choices import ArgumentForm, choose_word
from streamq.errors import ModuleFailed, PlanError
from streamq.plan.expr import Call, Col, as_expr
from streamq.plan.function import ArrowForm, Fault, Function, Operand, Value
from streamq.plan.lowering import ship_runtime
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.values import python_values
from streamq.runtime.hosts.shipping import packed
from streamq.runtime.user_code.calls import ModuleCall, forbid_changes, shown_values
from streamq.runtime.user_code.code_values import FAILURES, ReturnError, fit_to_type, plain_result, series, short_text
from streamq.user_code.forms import QueryCall
from streamq.user_code.module import UserModule, check_decorator
from streamq.user_code.repository import decorator

if TYPE_CHECKING:
    from pyspark.sql import Column


@check_decorator
def udf(
    returns: str | DataType,
    *,
    takes: str | ArgumentForm = ArgumentForm.VALUES,
    arguments: str | DataType | Iterable[str | DataType] = (),
    name: str | None = None,
    time_limit: float | None = None,
    checked: bool = False,
    on_error: str = "fail",
    version: int = 1,
    compatible_with: int | None = None,
) -> Callable[[Callable[..., Any]], UserFunction]:
    """Make a Python function one that expressions can call: in filters, columns, keys and the conditions of joins.

    ``returns`` is the SQL type of its results. ``takes``: what its arguments are, "values" (one event's values; NULL is None),
    "series" (a pandas Series per argument, over many events) or "arrays" (a pyarrow Array per argument); for the last two it
    returns as many results as there are events. ``name`` is its name in explain, errors and ``sq.modules``; by default the
    function's own. ``time_limit``: the seconds that one call may take. ``checked``: every call is made twice, and fails if
    the results differ, or if it changes its arguments. ``on_error``: "fail", or "quarantine", which sets aside an event for
    which the function fails: the event has no row, and the query goes on. Quarantine works in ``select``, ``with_columns``
    and ``where``.

    ``arguments``, ``version`` and ``compatible_with`` are as for :func:`uda`.

    Called with columns, names of columns or literals, it returns an expression; keyword arguments are plain values, passed to
    each call. The function must be deterministic, and depend on nothing but its arguments. If it raises for an event, or
    returns a value that is not of type ``returns``, the query fails with ModuleFailed, which shows the event's values. Errors
    for events that no result depends on (a branch not taken, a row filtered out before) are ignored. Raises PlanError for
    code that cannot be called. (docs/modules.md)

    >>> import math
    >>> import streamq as sq
    >>> @sq.udf("string")
    ... def size(toll, limit=10):
    ...     return None if toll is None else "large" if toll > limit else "small"
    >>> hypot = sq.udf("double")(math.hypot)
    >>> s = sq.events([(1, 3, {"toll": 4}), (2, 5, {"toll": 12})])
    >>> s.select("toll", size=size("toll"), far=hypot("toll", sq.lit(3)), tiny=size(sq.col("toll"), limit=3)).show()
    toll   size                far   tiny  start  end
       4  small                5.0  large      1    3
      12  large  12.36931687685298  large      2    5
    """
    return decorator(UserFunction, **locals())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserFunction(UserModule, Function):
    """A user's function; ``takes`` says what its arguments are."""

    kind = "udf"
    results = "results"
    takes: ArgumentForm
    in_python = True

    @classmethod
    def checked_fields(cls, *, takes: Any, **others: Any) -> dict[str, Any]:  # type: ignore[override]
        return super().checked_fields(**others, takes=choose_word(ArgumentForm, takes, "takes", cls.kind))

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", ArrowForm(_takes_any, self._computed, _everywhere))
        object.__setattr__(self, "__doc__", inspect.getdoc(self.code))

    def check(self) -> None:
        """Raise PlanError for code that cannot be called, or with values in it that cannot be pickled."""
        if not callable(self.code):
            hint = 'Write @sq.udf("double") above a def.'
            raise PlanError("udf", "not a function", f"found {self.code!r}", hint)
        super().check()

    @property
    def layout(self) -> tuple[str, ...]:
        return (str(self.takes),)

    def __call__(self, *operands: Any, **options: Any) -> Call:
        """Return an expression; a string is a column, any other value that is no expression a literal.

        Keyword arguments are plain values for each call. Raises PlanError without an operand, for one that is a collection,
        and if the code does not take the operands and options.
        """
        function = self.called_with(options)
        if not operands:
            hint = "Columns come by position, not by keyword."
            raise PlanError(self.name, "it is called without a column", "", hint)
        self.check_in_query(operands)
        QueryCall(len(operands), function.options).check(self.name, self.code)
        return Call(function, tuple(Col(o) if isinstance(o, str) else as_expr(o) for o in operands))

    def result_type(self, operands: Sequence[Operand]) -> DataType:
        self.check_types([operand.kind for operand in operands])
        return self.returns

    def on_spark(self, *arguments: Any) -> Column:
        return self.on_spark_among(None, *arguments)

    def on_spark_among(self, is_there: Column | None, *arguments: Any) -> Column:
        """Return the results as a column that raises an error only where Spark evaluates the result.

        ``is_there`` is true for rows for which the code is called (None: all); the others have NULL. Raises PlanError for code
        that cannot be sent to Spark's workers.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.functions import arrow_udf

        ship_runtime()
        try:
            worker = packed(self._on_worker)
        except Exception as error:
            what = "it cannot be sent to Spark's workers"
            raise PlanError(self.name, what, f"{type(error).__name__}: {error}") from error

        def call(*arrays: pa.Array) -> pa.Array:
            return worker(*arrays)

        shown = F.lit(True) if is_there is None else is_there
        fields = [t.StructField("value", self.returns), t.StructField("error", t.StringType())]
        called = arrow_udf(call, t.StructType(fields))(shown, *arguments)  # type: ignore[call-overload]
        failed = F.raise_error(F.concat(F.lit(f"streamq.errors.{ModuleFailed.__name__}: "), called["error"]))
        return F.when(called["error"].isNull(), called["value"]).otherwise(failed)

    def _on_worker(self, is_there: pa.Array, *arrays: pa.Array) -> pa.Array:
        """Return a struct of value and error message for each row, NULL without one; both are NULL for a row not there."""
        are_all_there = pc.all(is_there).as_py()
        results, errors = self._results([_in_utc(a if are_all_there else a.filter(is_there)) for a in arrays])
        messages = pa.array([errors[i][0] if i in errors else None for i in range(len(results))], pa.string())
        columns = [results, messages]
        if not are_all_there:
            # a NULL place is a row that is not there
            places = pc.if_else(is_there, pc.subtract(pc.cumulative_sum(pc.cast(is_there, pa.int64())), 1), None)
            columns = [column.take(places) for column in columns]
        return pa.StructArray.from_arrays(columns, ["value", "error"])

    def _computed(self, operands: Sequence[Value], kind: DataType) -> tuple[pa.Array, Sequence[Fault]]:
        """Return the results in-process, NULL where a call fails, and a fault for each distinct error message."""
        results, errors = self._results([operand.array for operand in operands])
        faults: dict[str, Fault] = {}
        for i, (message, error) in errors.items():
            module = self.name if self.sets_aside else ""
            fault = faults.setdefault(
                message, Fault(np.zeros(len(results), bool), message, ModuleFailed, error, module)
            )
            fault.rows[i] = True
        return results, list(faults.values())

    def _results(self, arrays: Sequence[pa.Array]) -> tuple[pa.Array, Errors]:
        """Return the results, NULL for failing rows, and errors by row; code over values is called row by row.

        Code over columns is called once. If that fails it is called for each row, and if none fails alone all of them fail.
        """
        if self.takes == ArgumentForm.VALUES:
            calls = zip(*(array.to_pylist() for array in arrays), strict=True)
            return self._one_by_one((partial(self._call_code, *values), values) for values in calls)
        try:
            return self._module_call.guarded(partial(self._column_over, arrays), python_values), {}
        except FAILURES as error:
            count = len(arrays[0])
            rows = ([array.slice(i, 1) for array in arrays] for i in range(count))
            calls_of_one = (
                (lambda row=row: self._column_over(row)[0].as_py(), [a[0].as_py() for a in row]) for row in rows
            )
            results, errors = self._one_by_one(calls_of_one)
            if errors:
                return results, errors
            # the call fails for the events together, but for none alone: then all of them fail
            message = self._failure(error, f"{count} events together, and none of them alone")
            return pa.nulls(count, results.type), dict.fromkeys(range(count), (message, error))

    @property
    def _module_call(self) -> ModuleCall:
        return ModuleCall(**self.guards)

    def _call_code(self, *arguments: Any) -> Any:
        code = forbid_changes(self.code, self.name) if self.checked else self.code
        return code(*arguments, **self.options)

    def _one_by_one(self, calls: Iterable[tuple[Callable[[], Any], Sequence[Any]]]) -> tuple[pa.Array, Errors]:
        """Return the results of calls, one a row, NULL for failing ones, and their errors by row.

        A call comes with its values, for the error message.
        """
        to = arrow_type(self.returns)
        results: list[Any] = []
        errors: Errors = {}
        names: tuple[str, ...] = ()
        for i, (call, values) in enumerate(calls):
            try:
                results.append(self._valid_result(call, to))
            except FAILURES as error:
                results.append(None)
                # a signature takes longer to read than a call
                names = names or QueryCall(len(values), self.options).argument_names(self.code, len(values))
                what = shown_values(dict(zip(names, values, strict=True)))
                errors[i] = self._failure(error, what), error
        return pa.array(results, to), errors

    def _valid_result(self, call: Callable[[], Any], to: pa.DataType) -> Any:
        """Return the result of a guarded call; raises ReturnError if it is not valid."""
        return self._module_call.guarded(lambda: fit_to_type(plain_result(call()), to, self.returns.simpleString()))

    def _column_over(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """Return the results of code that takes whole columns, with NaN as NULL.

        Raises ReturnError if they are no column of the declared type, or not one result an event.
        """
        to = arrow_type(self.returns)
        result = self._call_code(*(map(series, arrays) if self.takes == ArgumentForm.SERIES else arrays))
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        try:
            array = (
                result
                if isinstance(result, pa.Array)
                else pa.array(result, from_pandas=self.takes == ArgumentForm.SERIES)
            )
            if not _is_of_kind(array.type, to):
                raise TypeError(f"it is a column of {array.type}")
            array = array if array.type == to else array.cast(to)
            if pa.types.is_floating(to):
                array = pc.if_else(pc.is_nan(array), None, array)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise ReturnError(f"{short_text(result)} is no column of {self.returns.simpleString()}: {error}") from error
        if len(array) != len(arrays[0]):
            raise ReturnError(f"{len(array)} results for {len(arrays[0])} events")
        return array

    def _failure(self, error: BaseException, what: str) -> str:
        """Return the error message for the events ``what``, on one line."""
        return str(self._module_call.failure(self._module_call.reason(error, f"of {what}"), is_taken=True))


Errors = dict[int, tuple[str, BaseException]]
"""The message and the exception of failing rows, by row."""


def _is_of_kind(kind: pa.DataType, to: pa.DataType) -> bool:
    """Return True if a result of type ``kind`` may be cast to ``to``: both are numbers that are no decimals, both strings, ...

    NULLs may be cast to any type; lists and dictionaries go by the types of their values.
    """
    if kind == to or pa.types.is_null(kind):
        return True
    if pa.types.is_dictionary(kind):
        return _is_of_kind(kind.value_type, to)
    if pa.types.is_list(to):
        return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_of_kind(kind.value_type, to.value_type)
    return any(all(any(is_one(k) for is_one in same) for k in (kind, to)) for same in _SAME_KINDS)


_SAME_KINDS = (
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_string, pa.types.is_large_string),
    (pa.types.is_binary, pa.types.is_large_binary),
    (pa.types.is_timestamp,),
    (pa.types.is_duration,),
    (pa.types.is_decimal,),
    (pa.types.is_date,),
)
"""Types of which one may stand for another, as their tests."""


def _takes_any(operands: Sequence[Value]) -> bool:
    return True


def _everywhere(operands: Sequence[Value]) -> list[Any]:
    """Return None for each operand: all are evaluated on every row, because NULL is a value."""
    return [None] * len(operands)


def _in_utc(array: pa.Array) -> pa.Array:
    """Return instants in UTC, as in-process; Spark passes them in the time zone of its session."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(array.type) and array.type.tz else array
