"""Row keys: the columns that, together with the start, identify a row of an operator; a sink that upserts needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamq.user_code.udo import UserOperator


@dataclass(frozen=True)
class RowKey:
    """The key's ``columns``; if they do not identify a row, ``wrong`` and ``hint`` are the text of the error.

    ``rows_of``: the user's operator that makes the rows, if one does. ``lists``: the columns that hold lists of such rows, with
    their operators.
    """

    columns: tuple[str, ...] = ()
    wrong: str = ""
    hint: str = "Use output='changelog'."
    rows_of: UserOperator | None = None
    lists: Mapping[str, UserOperator] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str], schema: tuple[str, ...]) -> RowKey:
        """Return the key of a projection; ``names`` maps kept columns to their new names, ``schema`` lists all its columns.

        The key holds only an error if this one has one, or if the projection drops one of its columns. ``rows_of`` and ``lists``
        are not passed on.
        """
        if self.wrong:
            return RowKey(wrong=self.wrong, hint=self.hint)
        if missing := [column for column in self.columns if column not in names]:
            wrong = f"the group's column {missing[0]!r} is not among {', '.join(schema)}"
            return RowKey(wrong=wrong, hint="Keep it in select.")
        return RowKey(tuple(names[column] for column in self.columns))

    def of_elements(self, column: str) -> RowKey | None:
        """Return the key of the rows in a column that holds lists of a user's operator; None for any other column.

        The key holds only an error if the operator may return several rows.
        """
        operator = self.lists.get(column)
        if operator is None:
            return None
        if operator.gives_one_row:
            return RowKey(self.columns, self.wrong, self.hint, operator)
        hint = "Declare properties=[sq.one_output_per_group], if it gives one; else use output='changelog'."
        return RowKey(wrong=f"{operator.name} may give several rows a window", hint=hint, rows_of=operator)

    def with_own_lifetimes(self) -> RowKey | None:
        """Return the key of a user's operator whose rows set their lifetimes themselves; None for other rows.

        The key holds only an error, because such rows may start anywhere.
        """
        if self.rows_of is None or not self.rows_of.gives_one_row:
            return self if self.rows_of is not None else None
        hint = "Say stamp='align' or 'point_at_end'; else use output='changelog'."
        return RowKey(wrong=f"rows of {self.rows_of.name} have lifetimes of their own", hint=hint)


def no_row_key(title: str) -> RowKey:
    """Return the key for an operator whose rows cannot be identified; the error says that ``title`` was found."""
    hint = "It goes with the aggregates of a window, under where and select; else use output='changelog'."
    return RowKey(wrong=f"found {title}", hint=hint)


__all__ = ["RowKey", "no_row_key"]
