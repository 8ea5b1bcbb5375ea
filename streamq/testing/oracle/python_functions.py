"""Register Python functions in DuckDB for the SQL of one evaluation, and remove them after it."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.testing.oracle.expressions import listed
from streamq.testing.oracle.values import from_duckdb, sql_type, to_duckdb

if TYPE_CHECKING:
    import duckdb

Compute = Callable[[list[pa.Array]], Any]
"""A function from the columns of the operands to the column of results."""

_NUMBERS = itertools.count()
"""Numbers for unique names: functions belong to the database, which evaluations share."""


@dataclass(frozen=True)
class Operand:
    """A parameter of a function: its name, the SQL of the argument, and its type."""

    name: str
    sql: str
    kind: t.DataType


@dataclass
class PythonFunctions:
    """The functions of one evaluation.

    ``raised`` is the exception of the last function that failed; DuckDB itself keeps only its text. ``set_aside`` counts the
    failed calls of modules with ``on_error="quarantine"``, by module.
    """

    connection: duckdb.DuckDBPyConnection
    names: list[str] = field(default_factory=list)
    raised: BaseException | None = None
    set_aside: Counter[str] = field(default_factory=Counter)

    def call(self, compute: Compute, operands: Sequence[Operand], kind: t.DataType) -> str:
        """Register ``compute``, whose results have type ``kind``, as a function, and return the SQL of its call.

        ``compute`` gets whole columns, with their NULLs. The function is added to ``names``; an error in it is kept in ``raised``
        and raised in DuckDB.
        """

        def function(*vectors: pa.ChunkedArray) -> pa.Array:
            """Call ``compute`` over operands in Spark's types; return the results in DuckDB's; keep an error in ``raised``."""
            try:
                arguments = [_one(from_duckdb(v, o.kind)) for v, o in zip(vectors, operands, strict=True)]
                return _one(to_duckdb(compute(arguments), kind))
            except BaseException as error:
                self.raised = error
                raise

        # DuckDB reads the number of parameters from the signature
        parameters = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(operands))]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        name = f"streamq_{next(_NUMBERS)}"
        # the stubs know neither the strings for these options nor types given as SQL
        create: Any = self.connection.create_function
        create(
            name,
            function,
            [sql_type(o.kind) for o in operands],
            sql_type(kind),
            type="arrow",
            null_handling="special",
            exception_handling="default",
        )
        self.names.append(name)
        return f"{name}({listed(*(o.sql for o in operands))})"

    def forget(self) -> None:
        """Remove the functions from the database."""
        for name in self.names:
            self.connection.remove_function(name)


def _one(column: Any) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


__all__ = ["Compute", "Operand", "PythonFunctions"]
