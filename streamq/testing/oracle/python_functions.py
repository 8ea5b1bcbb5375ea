"""Python functions that the oracle's SQL calls: made for one evaluation, and taken out of the database after it."""

from __future__ import annotations

import inspect
import itertools
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
"""A column of results from the columns of operands."""

_NUMBERS = itertools.count()
"""Functions belong to the database, which evaluations share: no two have one name."""


@dataclass(frozen=True)
class Operand:
    """What a function is given: what it calls it, its SQL, and its type."""

    name: str
    sql: str
    kind: t.DataType


@dataclass
class PythonFunctions:
    """The functions that one evaluation has made; ``raised`` is what the last of them failed with.

    DuckDB itself keeps only the text.
    """

    connection: duckdb.DuckDBPyConnection
    names: list[str] = field(default_factory=list)
    raised: BaseException | None = None

    def call(self, compute: Compute, operands: Sequence[Operand], kind: t.DataType) -> str:
        """Make a function of ``compute``, whose results are of type ``kind``, and return the SQL of its call."""

        def function(*vectors: pa.ChunkedArray) -> pa.Array:
            try:
                arguments = [_one(from_duckdb(v, o.kind)) for v, o in zip(vectors, operands, strict=True)]
                return _one(to_duckdb(compute(arguments), kind))
            except BaseException as error:
                self.raised = error
                raise

        # DuckDB counts the parameters
        parameters = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(operands))]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        name = f"streamq_{next(_NUMBERS)}"
        # the stubs know neither names for the ways of calling nor types by their SQL
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
        """Take the functions out of the database."""
        for name in self.names:
            self.connection.remove_function(name)


def _one(column: Any) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


__all__ = ["Compute", "Operand", "PythonFunctions"]
