"""Observers of a plan's execution: they receive the rows that go into and come out of each node."""

from __future__ import annotations

from typing import Any, Protocol

from streamq.plan.node import Node


class Observer(Protocol):
    """A listener to the rows of each node of a plan.

    In-process it receives Arrow tables, part by part; on Spark it receives DataFrames, once, when the plan is lowered.
    """

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        """Receive rows of the input number ``port`` of a node."""

    def rows_out(self, node: Node, rows: Any) -> None:
        """Receive rows of a node's result."""


class NullObserver:
    """The observer that ignores all rows."""

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        """Ignore the rows."""

    def rows_out(self, node: Node, rows: Any) -> None:
        """Ignore the rows."""


NOBODY = NullObserver()

__all__ = ["NOBODY", "NullObserver", "Observer"]
