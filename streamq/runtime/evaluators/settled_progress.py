"""What most evaluators promise: a row is final once it is settled, and c goes on as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


class SettledProgress:
    """The progress of an operator whose rows are final once they are settled, and that never reaches back."""

    @property
    def progress_rule(self) -> ProgressRule:
        """Rows are final once they are settled, and reported once they have started."""
        from streamq.runtime.progress_rule import SETTLED

        return SETTLED

    def cti(self, inputs: Sequence[pa.Table], rows: pa.Table, progress: Sequence[int]) -> int:
        """c: what starts or changes before it is known."""
        return min(progress)
