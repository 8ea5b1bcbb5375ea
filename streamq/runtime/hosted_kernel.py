"""A kernel as its stage hosts it, and the channels by which rows reach it."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.runtime.consistency import AlignAt
from streamq.runtime.inner_path import InnerPath
from streamq.runtime.kernel import Judge, Kernel
from streamq.runtime.progress_map import ProgressMap, map_progress

HELD = "/held "
"""The text between the name of a kernel and the key of a channel, in the name of a scope that holds rows back."""


@dataclass(frozen=True)
class Channel:
    """A path of deltas from a relation (a source, or a kernel's output) to a port of a kernel, or to the result."""

    number: int
    relation: str

    stage: int
    """The number of the stage that reads it."""

    reader: int
    """The number of the kernel that reads it; -1 for a result."""

    port: int

    columns: tuple[str, ...]
    """The columns that the port reads, with those of lifetimes and weights."""

    hashed: tuple[str, ...] = ()
    """The columns whose values decide on the bucket."""

    judge: Judge | None = None
    """The source's policies on late and invalid items, if the path begins at a source."""

    progress_maps: tuple[ProgressMap, ...] = ()
    """The changes that the path's steps make to the relation's CTI and watermark, in order."""

    inner: InnerPath | None = None
    """The path's steps, if the relation is made by a kernel of the stage that reads it; None: its rows come in envelopes."""

    key: str = ""
    """The channel's name among those of the kernel that reads it, which names the state that holds its rows back."""


@dataclass(frozen=True)
class HostedKernel:
    """A kernel in its stage."""

    number: int

    name: str
    """The name of the kernel's output relation, and of its state."""

    kernel: Kernel

    inputs: tuple[str, ...]
    """The relations that the kernel reads."""

    channels: tuple[Channel, ...]

    sends: bool = True
    """True if rows are read outside the stage: by a later stage, or by a result."""

    aligns: AlignAt | None = None
    """The place where the level of consistency holds rows back; None: nowhere at this kernel."""

    bucket_columns: tuple[str, ...] | None = None
    """The columns of its rows whose values choose the bucket, None if no columns do."""

    @property
    def aligns_behind(self) -> bool:
        """True if the level of consistency holds back the kernel's output, not its input."""
        return self.aligns is not None and self.aligns.is_behind

    @property
    def held_scopes(self) -> dict[str, int]:
        """The scopes of state that hold rows back, before the kernel or behind it, each with the ticks its rows were moved since
        the source.
        """
        if self.aligns_behind:
            return {f"{self.name}{HELD}": 0}
        return {self.held_scope(c): map_progress(0, c.progress_maps) for c in self.channels if self.aligns_before(c)}

    def aligns_before(self, channel: Channel) -> bool:
        """Return True if a channel's rows are judged, and held back, before the kernel sees them."""
        return channel.judge is not None and self.aligns is not None and not self.aligns.is_behind

    def held_scope(self, channel: Channel) -> str:
        """Return the scope of state that holds back a channel's rows before the kernel."""
        return f"{self.name}{HELD}{channel.key}"


def scope_owner(scope: str) -> str:
    """Return the name of the kernel that a scope of state belongs to: its own, or one that holds its rows back."""
    return scope.partition(HELD)[0]


__all__ = ["Channel", "HELD", "HostedKernel", "scope_owner"]
