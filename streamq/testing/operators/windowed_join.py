"""WindowedJoin: its definition, its generator, and its exact columns."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import WindowedJoin
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact_columns
from streamq.testing.drawn_operators import Pairs, over_two
from streamq.testing.drawn_pairs import drawn_pairs, exact_of_pairs
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.grids import hopping_windows
from streamq.testing.oracle.pairs import agreement, pair_columns
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed
from streamq.testing.windows.hopping import hoppings


@defines(WindowedJoin)
def windowed_join(node: WindowedJoin, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the matching pairs of members of each window of the grid, valid for the window.

    A pair is there once for each window that both overlap, though they may not overlap each other. Start and end in the condition
    are the window's.
    """
    both = run.table(" UNION ALL ".join(f"SELECT le, re FROM {name}" for name in inputs))
    assert node.window.grid is not None
    windows = hopping_windows(node.window.grid, both, run)
    pairs = run.table(f"""
        SELECT {listed("w_le AS le", "w_re AS re", *pair_columns(node))} FROM {windows}
        JOIN {inputs[0]} a ON a.le < w_re AND a.re > w_le JOIN {inputs[1]} b ON b.le < w_re AND b.re > w_le
        WHERE {agreement(node.left.schema, node.right.schema, node.on)}""")  # fmt: skip
    return f"SELECT * FROM {pairs}" + (f" WHERE {run.sql(node.where, node.schema)}" if node.where is not None else "")


@over_two()
def draw_windowed_join(draw: Draw, one: Node, two: Node, on: Pairs) -> WindowedJoin:
    both = draw(drawn_pairs(one, two, on))
    grid = draw(hoppings())
    return WindowedJoin(one, two, grid, on, both.where, left_names=both.left_names, right_names=both.right_names)


@exact_columns.register(WindowedJoin)
def exact_of_windowed_join(node: WindowedJoin, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return exact_of_pairs(node, inputs)
