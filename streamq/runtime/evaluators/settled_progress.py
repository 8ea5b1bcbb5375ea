"""The progress of most evaluators: a row is final once it is settled, and c is passed on unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamq.runtime.groups import Holds, ToCome, no_holds

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


class SettledProgress:
    """The progress of an operator whose rows are final once settled, and that never changes rows before c."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once they are settled, and sent once they have started."""
        from streamq.runtime.progress_rule import SETTLED

        return SETTLED

    def holds(self, inputs: Sequence[pa.Table], rows: pa.Table, c: int) -> Holds:
        """Return no holds."""
        return no_holds()

    def cti(self, progress: Sequence[int], held: int) -> int:
        """Return c: all that starts or changes before it is known."""
        return min(progress)

    def to_come(self, inputs: Sequence[pa.Table], upto: int) -> ToCome:
        """Return no group: no row is left out."""
        nothing = np.zeros(0, np.int64)
        return ToCome(nothing, nothing)

    @property
    def leaves_out_rows_to_come(self) -> bool:
        """False: the rows of an event do not depend on how far the input has come."""
        return False
