"""The base of joins of two streams: the two sides of a pair, and keys of a group in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.interval_join import OTHER_LE, OTHER_RE
from streamq.operators.join_arguments import Pairs
from streamq.plan.lowering import lifetime
from streamq.plan.node import Node
from streamq.plan.schema import key_types, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Pairing(EvaluatedOperator):
    """An operator over pairs of events with equal key columns ``on``.

    ``left_names`` and ``right_names`` map each side's columns to their names in a pair.
    """

    matches_keys = True

    left: Node
    right: Node
    on: Pairs
    left_names: Pairs
    right_names: Pairs

    def sides(self, inputs: Sequence[DataFrame]) -> tuple[DataFrame, DataFrame]:
        """Return both inputs with the pair's column names, keys as ``__k*`` (left) and ``__j*`` (right) in a common type.

        The right lifetime is in columns OTHER_LE and OTHER_RE.
        """
        from pyspark.sql import functions as F

        ours = [F.col(quote(n)).alias(to) for n, to in self.left_names]
        theirs = [F.col(quote(n)).alias(to) for n, to in self.right_names]
        kinds = key_types(self.left.schema, self.right.schema, self.on)
        for i, ((a, b), common) in enumerate(zip(self.on, kinds, strict=True)):
            ours.append(F.col(quote(a)).cast(common).alias(f"__k{i}"))
            theirs.append(F.col(quote(b)).cast(common).alias(f"__j{i}"))
        left = inputs[0].select(*lifetime(self.left.schema), *ours)
        le, re = lifetime(self.right.schema)
        return left, inputs[1].select(le.alias(OTHER_LE), re.alias(OTHER_RE), *theirs)

    @property
    def key_pairs(self) -> list[tuple[str, str]]:
        """The pairs of key columns that :meth:`sides` adds."""
        return [(f"__k{i}", f"__j{i}") for i in range(len(self.on))]

    def pairs_with_keys(self, is_keyed: Sequence[bool], keys: tuple[str, ...]) -> tuple[Pairs, Pairs, Pairs]:
        """Return ``on``, the left and the right names for inputs of which ``is_keyed`` also have the ``keys`` of a group.

        If both have them, they must be equal in a pair and are columns of the left side; else they are columns of the side that
        has them.
        """
        same = tuple((key, key) for key in keys)
        if all(is_keyed):
            return (*self.on, *same), (*self.left_names, *same), self.right_names
        if is_keyed[0]:
            return self.on, (*self.left_names, *same), self.right_names
        return self.on, self.left_names, (*self.right_names, *same)


__all__ = ["Pairing"]
