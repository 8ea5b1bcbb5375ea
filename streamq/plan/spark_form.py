"""The Spark Column of an expression."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from streamq.errors import PlanError, sentence
from streamq.plan.case import Case
from streamq.plan.expr import Alias, Call, Cast, Col, Expr, Lit, Opaque
from streamq.plan.lifetime import Lifetime
from streamq.plan.tree import fold

if TYPE_CHECKING:
    from pyspark.sql import Column


class Columns(Protocol):
    """What :func:`to_spark` needs to know: the Column of a name and of a part of the lifetime."""

    def column(self, name: str) -> Column: ...

    def lifetime(self, part: str) -> Column: ...


def to_spark(root: Expr, columns: Columns) -> Column:
    """The Spark Column of an expression."""
    from pyspark.sql import functions as F

    binary: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
        "%": lambda a, b: a % b,
        "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<=>": lambda a, b: a.eqNullSafe(b),
        "and": lambda a, b: a & b, "or": lambda a, b: a | b,
        "getitem": lambda a, b: a[b],
    }  # fmt: skip

    def literal(node: Lit) -> Column:
        value = node.value
        made: Column
        # F.lit goes through java.sql.Date and Timestamp: it refuses years below 1000 and shifts old dates by the Julian calendar.
        if isinstance(value, dt.datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            made = F.timestamp_micros(
                F.lit((aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))
            )
        elif isinstance(value, dt.date):
            made = F.date_from_unix_date(F.lit((value - dt.date(1970, 1, 1)).days))
        else:
            made = F.lit(value)
        return made.cast(node.type) if node.type is not None else made

    def visit(node: Expr, parts: list[Any]) -> Any:
        match node:
            case Col(name=name):
                return columns.column(name)
            case Lit():
                return literal(node)
            case Lifetime(part=part):
                return columns.lifetime(part)
            case Call(name="getitem", args=(_, Lit(value=key))):
                return parts[0][key]
            case Call(name=name) if name in binary:
                return binary[name](*parts)
            case Call(name="not"):
                return ~parts[0]
            case Call(name="isin"):
                return parts[0].isin(*parts[1:])
            case Call(name=name, args=args):
                shown = iter(parts)
                return getattr(F, name)(*(next(shown) if isinstance(a, Expr) else a for a in args))
            case Cast(type=to):
                return parts[0].cast(to)
            case Alias(name=name):
                return parts[0].alias(name)
            case Case():
                made = F.when(parts[0], parts[1])
                for i in range(2, len(parts) - 1, 2):
                    made = made.when(parts[i], parts[i + 1])
                return made.otherwise(parts[-1])
            case Opaque(shown=column):
                return column
        raise PlanError(sentence("expression", "an aggregate outside a window's select", f"found {node!r}"))

    return fold(root, visit)
