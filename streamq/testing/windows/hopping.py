"""The room of hopping windows, including tumbling ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.grid import Grid
from streamq.testing.oracle.grids import hopping_windows
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed
from streamq.testing.program_text import duration
from streamq.testing.windows.room import Draw, Members, WindowRoom
from streamq.windows import Hopping


def hoppings() -> st.SearchStrategy[Hopping]:
    """Draw tumbling, overlapping and gapped windows, whose hop divides the size or not, with offsets of either sign."""
    length = st.integers(1, 9)
    tumbling = length.map(lambda n: Hopping(n, n))
    return st.one_of(tumbling, st.builds(Hopping, length, length, st.integers(-9, 9)))


class HoppingRoom(WindowRoom[Hopping]):
    """The room of :class:`Hopping`."""

    kind = Hopping
    weight = 3

    def members(self, window: Hopping, source: Members, run: Run) -> str:
        """Return a table of events, joined with the grid's windows that overlap them and start before the oracle's bound."""
        windows = hopping_windows(window.grid, source.events, run)
        return run.table(
            f"SELECT {listed('0 AS w', 'w_le', 'w_re', 'a.*')} FROM {source.events} a JOIN {windows} ON le < w_re AND re > w_le"
        )

    def drawn(
        self, draw: Draw, clip: ClipInput, stamp: Stamp, ordered: Sequence[str]
    ) -> tuple[Hopping, ClipInput, Stamp]:
        return draw(hoppings()), clip, draw(st.sampled_from([Stamp.ALIGN, Stamp.ALIGN, Stamp.ALIGN, stamp]))

    def written(self, window: Hopping, axis: str) -> tuple[str, list[str]]:
        """Return ``tumbling`` with the size, or ``hopping`` with size and hop; then an offset that is not 0."""
        size, hop, offset = window.size, window.hop, window.offset
        arguments = [duration(n, axis) for n in ((size,) if size == hop else (size, hop))]
        arguments += [f"offset={duration(offset, axis)}"] if offset else []
        return ("tumbling" if size == hop else "hopping"), arguments

    def lengths(self, window: Hopping) -> Iterator[int]:
        yield from (window.size, window.hop)

    def recurrences(self, window: Hopping) -> Iterator[int]:
        yield window.hop

    def grids(self, window: Hopping) -> Iterator[Grid]:
        yield window.grid

    def last_end(self, window: Hopping, c: int) -> int:
        """Return the greatest end of a window that is not after a CTI."""
        return c - (c - window.offset - window.size) % window.hop


__all__ = ["hoppings"]
