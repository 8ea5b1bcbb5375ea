"""Row keys: the columns that, beside their start, tell an operator's rows apart, as an upsert needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamq.user_code.udo import UserOperator


@dataclass(frozen=True)
class RowKey:
    """The ``columns`` of the key; where rows of equal columns may share a start, what a message says: ``wrong``, and a ``hint``.

    rows_of: the operator of a user's own that makes the rows; lists: the columns that are lists of such rows, by operator.
    """

    columns: tuple[str, ...] = ()
    wrong: str = ""
    hint: str = "Use output='changelog'."
    rows_of: UserOperator | None = None
    lists: Mapping[str, UserOperator] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str], schema: tuple[str, ...]) -> RowKey:
        """Return the key of a projection; ``names``: what it calls the columns that it keeps, of all those in ``schema``."""
        if self.wrong:
            return RowKey(wrong=self.wrong, hint=self.hint)
        if missing := [column for column in self.columns if column not in names]:
            wrong = f"the group's column {missing[0]!r} is not among {', '.join(schema)}"
            return RowKey(wrong=wrong, hint="Keep it in select.")
        return RowKey(tuple(names[column] for column in self.columns))

    def of_elements(self, column: str) -> RowKey | None:
        """Return the key of the rows in a column of lists that an operator of a user's own makes; None for another column."""
        operator = self.lists.get(column)
        if operator is None:
            return None
        if operator.gives_one_row:
            return RowKey(self.columns, self.wrong, self.hint, operator)
        hint = "Declare properties=[sq.one_output_per_group], if it gives one; else use output='changelog'."
        return RowKey(wrong=f"{operator.name} may give several rows a window", hint=hint, rows_of=operator)

    def with_own_lifetimes(self) -> RowKey | None:
        """Return the key of an operator's rows once they have lifetimes of their own; None for rows of no such operator."""
        if self.rows_of is None or not self.rows_of.gives_one_row:
            return self if self.rows_of is not None else None
        hint = "Say stamp='align' or 'point_at_end'; else use output='changelog'."
        return RowKey(wrong=f"rows of {self.rows_of.name} have lifetimes of their own", hint=hint)


def no_row_key(title: str) -> RowKey:
    """Return the key of an operator's rows that have none: what it is called is what a message has found."""
    hint = "It goes with the aggregates of a window, under where and select; else use output='changelog'."
    return RowKey(wrong=f"found {title}", hint=hint)


__all__ = ["RowKey", "no_row_key"]
