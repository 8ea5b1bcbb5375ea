"""Arguments of the verbs of sources, checked: the columns of a key and of an id."""

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


__all__ = ["id_columns", "key_columns"]
