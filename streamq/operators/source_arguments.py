"""Arguments of the verbs of sources, checked: the columns of a key, of an id, of an order, and those beside the events."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.errors import PlanError, column_names, sentence
from streamq.plan.keys import check_key
from streamq.plan.schema import Field, Schema, check_names


def key_columns(
    key: str | Sequence[str], fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str, what: str = "key"
) -> tuple[str, ...]:
    """Return the key's columns; raise PlanError if one is consumed, or if a payload column has a name of the lifetime's.

    ``fields``: all columns of the table; ``consumed``: those that are no payload; ``what``: the key's name in errors. A key of no
    columns is returned as such. Raises UnknownColumn, and TypeMismatch for values that cannot be compared.
    """
    keys = column_names(key, verb, f"the {what}")
    schema = Schema(fields, "integer")
    for column in keys:
        check_key(schema.require(column, verb), column, verb)
        if column in consumed:
            wrong = f"column {column!r} is of the {what} and is consumed"
            raise PlanError(sentence(verb, wrong, "", f"Give it another {what}."))
    check_names([f.name for f in fields if f.name not in consumed], verb)
    return keys


def id_columns(
    id: str | Sequence[str] | None, fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the id's columns, checked like those of a key; empty for None, PlanError for an id of no columns."""
    ids = () if id is None else key_columns(id, fields, consumed, verb, "id")
    if id is not None and not ids:
        raise PlanError(sentence(verb, "no id", "", 'Name the column: id="trip_id".'))
    return ids


def order_columns(
    order_by: str | Sequence[str], fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the columns by which items of one instant act; raise as for a key if one is consumed or cannot be compared."""
    order = column_names(order_by, verb, "order_by")
    schema = Schema(fields, "integer")
    for column in order:
        check_key(schema.require(column, verb), column, verb, "order")
        if column in consumed:
            hint = "Give columns in which items of one instant differ, such as the position in the log."
            raise PlanError(sentence(verb, f"column {column!r} is in order_by and is consumed", "", hint))
    return order


def beside_columns(
    beside: str | Sequence[str], fields: tuple[Field, ...], taken: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the columns that are beside the events.

    ``taken``: the columns of which the source makes events: times, key, id. Raises UnknownColumn, and PlanError for one of these,
    or for a column that comes twice.
    """
    columns = column_names(beside, verb, "beside")
    schema = Schema(fields, "integer")
    for column in columns:
        schema.require(column, verb)
        if column in taken:
            wrong = f"column {column!r} makes the events, so it cannot be beside them"
            raise PlanError(sentence(verb, wrong, "", "Leave it out of beside."))
        if columns.count(column) > 1:
            raise PlanError(sentence(verb, f"column {column!r} is in beside twice", "", "Name it once."))
    return columns


__all__ = ["beside_columns", "id_columns", "key_columns", "order_columns"]
