"""Sets of partial results over one stream, each once, and the windows that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from streamq.operators import MergePartials, Select, Where
from streamq.operators.grid_factory import ShownWindows
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.partial import Partial
from streamq.runtime.kernels.windows_of_sizes import NUMBER
from streamq.windows import Window


@dataclass
class PartialSet:
    """Arguments and partial results over one stream, each once, by basic windows of ``window``; ``readers`` read them.

    The readers' windows may be shorter than ``window`` (:func:`consists_of_basic`). ``arguments``: their names by the
    expressions' digests. ``windows``: hashes of the windows that have read them before.
    """

    window: Window

    arguments: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    partials: list[Partial] = field(default_factory=list)
    readers: list[MergePartials] = field(default_factory=list)
    windows: tuple[str, ...] = ()

    @classmethod
    def of_part(cls, part: MergePartials, *readers: MergePartials, windows: tuple[str, ...] = ()) -> PartialSet:
        """Return the set of one operator's partial results, by the names that they have there."""
        arguments = {expr.digest: (name, expr) for name, expr in part.arguments}
        return cls(part.window, arguments, list(part.partials), list(readers), windows)

    @classmethod
    def union(cls, window: Window, readers: Sequence[MergePartials]) -> PartialSet:
        """Return the set of all partial results of some windows; counts that others hold anyway are left out."""
        one = cls(window, readers=list(readers))
        both = [(partial, reader) for reader in readers for partial in reader.partials]
        for partial, part in sorted(both, key=lambda pair: _only_counts(pair[0])):
            one._add(partial, dict(part.arguments))
        return one

    @property
    def has_sizes(self) -> bool:
        """True if a reader's windows are not those of ``window``."""
        return any(reader.window != self.window for reader in self.readers)

    def equals(self, part: MergePartials) -> bool:
        """Return True if an operator has the same partial results under the same names, of the same windows."""
        own, theirs = ([(name, expr.digest) for name, expr in one] for one in (self.arguments.values(), part.arguments))
        return (own, tuple(self.partials), self.window) == (theirs, part.partials, part.window)

    def over(self, part: MergePartials, stream: Node) -> MergePartials:
        """Return an operator that merges these partial results of ``stream``, for the groups of ``part``."""
        arguments = tuple(self.arguments.values())
        return replace(part, input=stream, window=self.window, arguments=arguments, partials=tuple(self.partials))

    def merged(self, node: MergePartials, stream: Node) -> Node:
        """Return the operators that read one window's columns from all that are merged here."""
        columns = self.columns_for(node)
        assert columns is not None
        rows: Node = self.over(node, stream)
        if self.has_sizes:
            shown = self._shown()
            number = [one.window for one in shown].index(node.window)
            rows = Where(replace(self.over(node, stream), shown=shown), Col(NUMBER) == Lit(number))
        return Select(rows, tuple((f.name, Col(columns.get(f.name, f.name))) for f in node.schema.fields))

    def _shown(self) -> tuple[ShownWindows, ...]:
        """Return the readers' windows, each once, with the names of the partial results that are read of them."""
        names: dict[Window, set[str]] = {}
        for reader in self.readers:
            columns = self.columns_for(reader)
            assert columns is not None
            names.setdefault(reader.window, set()).update(columns.values())
        return tuple(
            ShownWindows(window, tuple(p.name for p in self.partials if not read.isdisjoint(p.columns)))
            for window, read in names.items()
        )

    def columns_for(self, part: MergePartials) -> dict[str, str] | None:
        """Return the columns here that equal those of other partial results, by the names there; None if some are missing."""
        columns: dict[str, str] = {}
        names = {name: self.arguments[expr.digest][0] for name, expr in part.arguments if expr.digest in self.arguments}
        counts = {arg: column for held in self.partials for arg, column in held.counts.items()}
        for partial in part.partials:
            equal = self._equal(partial, names)
            if equal is not None:
                columns |= dict(zip(partial.columns, equal.columns, strict=True))
            elif _only_counts(partial) and all(names.get(arg) in counts for arg in partial.counts):
                columns |= {column: counts[names[arg]] for arg, column in partial.counts.items()}
            else:
                return None
        return columns

    def _equal(self, partial: Partial, names: Mapping[str, str]) -> Partial | None:
        """Return the partial result here that equals another one, whose arguments have the names ``names`` here."""
        if not names.keys() >= set(partial.read_columns):
            return None
        renamed = _renamed(partial, names)
        return next((held for held in self.partials if replace(renamed, name=held.name) == held), None)

    def _add(self, partial: Partial, arguments: Mapping[str, Expr]) -> None:
        """Add a partial result, over ``arguments``, unless an equal one is here or, of a count, one that counts the same."""
        names = {
            name: self.arguments.setdefault(expr.digest, (f"__arg{len(self.arguments)}", expr))[0]
            for name, expr in arguments.items()
            if name in partial.read_columns
        }
        counted = {arg for held in self.partials for arg in held.counts}
        is_lent = _only_counts(partial) and all(names[arg] in counted for arg in partial.counts)
        if not is_lent and self._equal(partial, names) is None:
            name = f"__{partial.title}{len(self.partials)}"
            self.partials.append(replace(_renamed(partial, names), name=name))


def _only_counts(partial: Partial) -> bool:
    """Return True if a partial result consists of counts only."""
    return partial.columns == list(partial.counts.values())


def _renamed(partial: Partial, names: Mapping[str, str]) -> Partial:
    """Return a partial result over columns of other names."""

    def other(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        return tuple(map(other, value)) if isinstance(value, tuple) else value

    return replace(partial, **{f.name: other(getattr(partial, f.name)) for f in fields(partial) if f.name != "name"})


def consists_of_basic(window: Window, longest: Window) -> bool:
    """Return True if windows on a grid consist of the basic windows of others, which are no shorter and a hop each."""
    own, basic = window.basic_grid(), longest.basic_grid()
    distances = (own.size, own.hop, own.offset - basic.offset)
    return basic.divides and own.size <= basic.size and not any(distance % basic.hop for distance in distances)


__all__ = ["PartialSet", "consists_of_basic"]
