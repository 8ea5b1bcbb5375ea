"""The base of the window verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from streamq.plan.verbs import named_after
from streamq.windows.window import Window

W = TypeVar("W")


class WindowKindVerbs(ABC, Generic[W]):
    """The verbs of one kind of windows, for streams and groups; ``W`` is the type that they return."""

    def __init_subclass__(cls) -> None:
        """Make the verbs of one kind check their keywords, as verbs of Stream."""
        super().__init_subclass__()
        # what has the verbs of all kinds names its own
        if WindowKindVerbs in cls.__bases__:
            named_after(cls, "Stream")

    @abstractmethod
    def _in_windows(self, window: Callable[[str], Window], verb: str, clip_input: str, stamp: str | None) -> W:
        """Put the stream, or each group, into the windows that ``window`` returns for its axis; ``verb``: the name for errors."""


__all__ = ["W", "WindowKindVerbs"]
