"""The progress of most evaluators: a row is final once it is settled, and c is passed on unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


class SettledProgress:
    """The progress of an operator whose rows are final once settled, and that never changes rows before c."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once they are settled, and sent once they have started."""
        from streamq.runtime.progress_rule import SETTLED

        return SETTLED

    def cti(self, inputs: Sequence[pa.Table], rows: pa.Table, progress: Sequence[int]) -> int:
        """Return c: all that starts or changes before it is known."""
        return min(progress)
