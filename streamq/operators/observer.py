"""Who watches a plan being computed: told of each node which rows come in and which go out."""

from __future__ import annotations

from typing import Any, Protocol

from streamq.plan.node import Node


class Observer(Protocol):
    """Rows are Arrow tables in-process, a part at a time; on Spark they are DataFrames, told once as the plan becomes one."""

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        """Rows of the ``port``-th input of a node."""

    def rows_out(self, node: Node, rows: Any) -> None:
        """Rows of its result."""


class NullObserver:
    """The observer of a plan that nobody watches."""

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        """Nothing."""

    def rows_out(self, node: Node, rows: Any) -> None:
        """Nothing."""


NOBODY = NullObserver()

__all__ = ["NOBODY", "NullObserver", "Observer"]
