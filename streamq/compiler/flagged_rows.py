"""The rows of a micro-batch on Spark; rows that a step drops stay in the DataFrame, flagged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.operators.step import SparkRows
from streamq.plan.expr import Expr
from streamq.plan.lowering import DeltaColumns, to_spark
from streamq.plan.passes import is_opaque
from streamq.plan.schema import Schema, quote
from streamq.runtime.event import KEEP, LE, RE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame


class FlaggedRows(SparkRows):
    """The rows of a micro-batch, with a column ``__keep``: False for rows that a step has dropped.

    Dropped rows still move progress, so they stay, but expressions are no longer evaluated on them. Columns beside the payload
    are passed on.
    """

    def __init__(self, frame: DataFrame, schema: Schema, tables: Mapping[str, DataFrame]):
        """Take a DataFrame that has ``__keep``, the schema of its payload, and the static tables by name."""
        self.frame, self.schema, self.tables = frame, schema, tables

    def _over(self, frame: DataFrame, schema: Schema | None = None) -> FlaggedRows:
        """Return the rows of another DataFrame, with the same tables; None: the same schema."""
        return FlaggedRows(frame, schema or self.schema, self.tables)

    def evaluate(self, expr: Expr) -> Column:
        """Return an expression as a Spark column that is evaluated only on kept rows."""
        return guarded(expr, self.schema)

    def filter(self, is_kept: Column) -> FlaggedRows:
        """Flag the rows where the condition is false or NULL as dropped."""
        from pyspark.sql import functions as F

        return self._over(self.frame.withColumn(KEEP, F.col(KEEP) & F.coalesce(is_kept, F.lit(False))))

    def with_payload(self, columns: Mapping[str, Column], schema: Schema) -> FlaggedRows:
        """Replace the payload by these columns; all columns beside the payload stay."""
        from pyspark.sql import functions as F

        technical = [F.col(quote(name)) for name in self.frame.columns if name not in self.schema.names]
        payload = [column.alias(name) for name, column in columns.items()]
        return self._over(self.frame.select(*technical, *payload), schema)

    def with_lifetimes(self, start: Column, end: Column, is_alive: Column, schema: Schema) -> FlaggedRows:
        """Replace the lifetimes of kept rows, others by NULL; flag rows where ``is_alive`` is false or NULL as dropped."""
        from pyspark.sql import functions as F

        is_kept = F.col(KEEP) & F.coalesce(is_alive, F.lit(False))
        lifetimes = {"__start": F.when(F.col(KEEP), start), "__end": F.when(F.col(KEEP), end), KEEP: is_kept}
        rest = [F.col(quote(name)) for name in self.frame.columns if name not in (LE, RE, KEEP)]
        frame = self.frame.select(*rest, *(column.alias(name) for name, column in lifetimes.items()))
        return self._over(frame.withColumnsRenamed({"__start": LE, "__end": RE}), schema)

    def join(self, table: DataFrame, on: Sequence[tuple[str, str]], inner: bool, schema: Schema) -> FlaggedRows:
        """Join kept rows with a static table; ``inner``: rows without a match are flagged as dropped.

        ``on``: pairs of a column of the rows and one of the table. The table's other columns are added, NULL without a match.
        """
        from pyspark.sql import functions as F

        # only kept rows are looked up in the table; each of the others stays one row
        keys = {f"__key{i}": F.when(F.col(KEEP), F.col(quote(ours))) for i, (ours, _) in enumerate(on)}
        is_equal = [F.col(key) == F.col(quote(theirs)) for key, (_, theirs) in zip(keys, on, strict=True)]
        frame = self.frame.withColumns(keys).join(table.withColumn("__matched", F.lit(True)), is_equal, "left")
        if inner:
            frame = frame.withColumn(KEEP, F.col(KEEP) & F.coalesce(F.col("__matched"), F.lit(False)))
        return self._over(frame.drop("__matched", *keys, *(theirs for _, theirs in on)), schema)

    def explode(self, column: str, flatten: bool, schema: Schema) -> FlaggedRows:
        """Return a row for each element of an array; a row with an empty or NULL array stays, flagged as dropped.

        ``flatten``: the element's fields become columns; otherwise the element takes the array's place.
        """
        from pyspark.sql import functions as F

        # a row without elements stays one row, and is no longer kept
        others = [F.col(quote(name)) for name in self.frame.columns if name != column]
        places = F.posexplode_outer(F.when(F.col(KEEP), F.col(quote(column)))).alias("__at", "__element")
        frame = self.frame.select(*others, places)
        frame = frame.withColumn(KEEP, F.col(KEEP) & F.col("__at").isNotNull())
        element = F.col("__element")
        names = (
            [name for name in schema.names if name not in self.schema.names or name == column] if flatten else [column]
        )
        values = {name: element[name] if flatten else element for name in names}
        technical = [F.col(quote(name)) for name in self.frame.columns if name not in self.schema.names]
        payload = [values.get(name, F.col(quote(name))).alias(name) for name in schema.names]
        return self._over(frame.select(*(c for c in technical), *payload), schema)


def guarded(expr: Expr, schema: Schema) -> Column:
    """Return a Spark column that is evaluated only on kept rows, and is NULL on the others.

    A column or a constant by itself has nothing to evaluate, so it is returned as it is, on all rows.
    """
    from pyspark.sql import functions as F

    column = to_spark(expr, DeltaColumns(schema), F.col(KEEP))
    return column if not expr.children and not is_opaque(expr) else F.when(F.col(KEEP), column)


__all__ = ["FlaggedRows", "guarded"]
