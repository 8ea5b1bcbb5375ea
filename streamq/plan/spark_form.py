"""Translate an expression to a Spark Column."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Protocol

from streamq.errors import PlanError, sentence
from streamq.plan.case import Case
from streamq.plan.expr import Alias, Call, Cast, Col, Expr, Lit, Opaque
from streamq.plan.folding import fold
from streamq.plan.lifetime import Lifetime

if TYPE_CHECKING:
    from pyspark.sql import Column


class ColumnSource(Protocol):
    """Looks up the Column of a name and of a part of the lifetime, for :func:`to_spark`."""

    def column(self, name: str) -> Column: ...

    def lifetime(self, part: str) -> Column: ...


def to_spark(root: Expr, columns: ColumnSource, is_there: Column | None = None) -> Column:
    """Return the Spark Column of an expression; raise PlanError for an aggregate, which is none of a row.

    Only the rows where ``is_there`` holds will be read (None: all).
    """
    from pyspark.sql import functions as F

    def visit(node: Expr, parts: list[Any]) -> Any:
        """Return the Column of a node from those of its operands."""
        match node:
            case Col(name=name):
                return columns.column(name)
            case Lit():
                return _literal(node)
            case Lifetime(part=part):
                return columns.lifetime(part)
            case Call():
                return node.function.on_spark_among(is_there, *node.arguments(parts))
            case Cast(type=to):
                return parts[0].cast(to)
            case Alias(name=name):
                return parts[0].alias(name)
            case Case():
                case = F.when(parts[0], parts[1])
                for i in range(2, len(parts) - 1, 2):
                    case = case.when(parts[i], parts[i + 1])
                return case.otherwise(parts[-1])
            case Opaque(shown=column):
                return column
        raise PlanError(sentence("expression", "an aggregate outside a window's select", f"found {node!r}"))

    return fold(root, visit)


def _literal(node: Lit) -> Column:
    """Return the Spark Column of a constant.

    A datetime without a time zone is in UTC.
    """
    from pyspark.sql import functions as F

    value = node.value
    # F.lit goes through java.sql.Date and Timestamp: it refuses years below 1000 and shifts old dates by the Julian calendar.
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        micros = (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        column = F.timestamp_micros(F.lit(micros))
    elif isinstance(value, dt.date):
        column = F.date_from_unix_date(F.lit((value - dt.date(1970, 1, 1)).days))
    else:
        column = F.lit(value)
    return column.cast(node.type) if node.type is not None else column
