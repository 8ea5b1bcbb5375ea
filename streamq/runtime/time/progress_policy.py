"""Progress policies of sources: the CTI that items or the clock give, and the state of parts of a source.

The partitions of a source, each with its greatest start, are a table that is processed in Arrow, because there may be tens of
thousands of them, and every bucket keeps them, encoded as text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import concat, decode_small, encode_small, group, ints, with_column
from streamq.runtime.arrow.values import python_rows
from streamq.runtime.deltas import LE
from streamq.runtime.time.progress_rule import INTEGERS, Arithmetic, Number
from streamq.time import INFINITY, MINUS_INFINITY, show_duration


@dataclass(frozen=True)
class CtiSteps:
    """The rule ``instant - delay``, rounded down to a multiple of ``every``, for the CTI of a greatest start or a time of day."""

    delay: int = 0
    every: int = 1

    def cti(self, instant: Number, arithmetic: Arithmetic = INTEGERS) -> Number:
        """Return the CTI for an instant, an integer or a column."""
        return arithmetic.floor(arithmetic.moved(instant, -self.delay), self.every)

    def least_instant(self, cti: int) -> int:
        """Return the least instant that makes the CTI as great as ``cti``."""
        return -(-cti // self.every) * self.every + self.delay

    @property
    def lengths(self) -> dict[str, int]:
        """The delay, unless it is 0, and ``every``, unless it is one tick, by name."""
        lengths = {"delay": self.delay, "every": self.every if self.every != 1 else 0}
        return {name: n for name, n in lengths.items() if n}

    def lag_text(self, axis: str) -> str:
        """Return how far its CTIs stay behind the instants, as text: ``10 seconds behind``."""
        steps = f", in steps of {show_duration(self.every, axis)}" if self.every != 1 else ""
        return f"{show_duration(self.delay, axis)} behind{steps}"


class SourceParts(ABC):
    """The parts of a source that a policy keeps apart, and the state from which it makes the source's CTI.

    The state goes from micro-batch to micro-batch as JSON; it begins as an empty dictionary.
    """

    columns: tuple[str, ...]
    """The columns of the payload that ``summary`` reads."""

    @property
    def carried_columns(self) -> dict[str, str]:
        """Return the carried columns of a source's items that hold ``columns``, by the columns' names.

        Steps do not change carried columns.
        """
        return {name: f"__progress{number}" for number, name in enumerate(self.columns)}

    @abstractmethod
    def summary(self, items: pa.Table) -> Any:
        """Return, as JSON, what a task's items that start events, with ``__le`` and the columns, say of the parts."""

    @abstractmethod
    def keep(self, state: dict[str, Any], summaries: Sequence[Any], idle_before: int) -> None:
        """Add the summaries of the tasks of a micro-batch to the state.

        It is called once a micro-batch, without summaries if the source brought nothing. A micro-batch with summaries is a
        round, numbered from 1. A part last active before the round ``idle_before`` is idle; a listener with a clock sets it, by
        ``readings``; 0: no part is idle.
        """

    @abstractmethod
    def cti(self, state: Mapping[str, Any]) -> int:
        """Return the CTI by the state, after every task of a micro-batch has reported."""

    def greatest_cti(self, state: Mapping[str, Any]) -> int:
        """Return the CTI by the state if the policy waited for no part of the source."""
        return MINUS_INFINITY

    def cti_at_rest(self, start: int) -> int:
        """Return the CTI for the greatest start among all sources once they all are silent; by default without a delay."""
        return start

    def readings(self, state: Mapping[str, Any]) -> dict[str, int | str]:
        """Return the readings of the source's parts by name: ``round`` to ``straggler_cti`` of ``SourceReadings``."""
        return {}


class ProgressPolicy(ABC):
    """A rule by which a source makes progress: a frozen dataclass that plans hold and that ships to executors.

    Instants and lengths of application time are in ticks. By default a source's items make no progress.
    """

    name: ClassVar[str]
    """Its name in explain: the verb that users write."""

    takes_ctis: ClassVar[bool] = False
    """True if the CTIs among the source's own items count."""

    @property
    def steps(self) -> CtiSteps | None:
        """Return the rule for the CTI of a source's greatest start; None: starts give no CTI.

        A policy with ``parts`` has this CTI only when it waits for no part of the source.
        """
        return None

    @property
    def clock(self) -> CtiSteps | None:
        """Return the rule for the CTI of a time of day, rows or not; None: the clock makes none.

        Both are in microseconds. With a clock there must be micro-batches without rows.
        """
        return None

    @property
    def parts(self) -> SourceParts | None:
        """Return the parts of the source that the policy keeps apart; None: it keeps no state."""
        return None

    @property
    def max_ahead(self) -> int | None:
        """Return how far a start may lie beyond the time of its micro-batch, in microseconds; None: any distance."""
        return None

    @property
    def idle_after(self) -> int | None:
        """Return the number of microseconds by the clock for which the source may bring no rows; None: any number.

        After that it has the progress of the sources that bring some.
        """
        return None

    @property
    def leader(self) -> str | None:
        """Return the table of the source whose progress this source follows; None: it has its own."""
        return None

    @property
    def lag(self) -> int:
        """Return the least distance of the CTI behind the greatest start; INFINITY: starts give no CTI."""
        return INFINITY if self.steps is None else self.steps.delay

    @abstractmethod
    def shown(self, axis: str) -> str:
        """Return the policy as explain shows it: ``generate(delay=5 minutes)``."""

    @abstractmethod
    def remedy(self, leader: str) -> str:
        """Return the advice for a source whose rows are mostly late; ``leader`` is the name of its leader, if any."""

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the policy for a plan with other table names."""
        return self


ROUND = "__round"
"""The column of the last round in which a partition had rows."""


def in_round(round: int, starts: pa.Table) -> pa.Table:
    """Return partitions with ``__round``, the last round in which each had rows."""
    return with_column(starts, ROUND, pa.array([round] * starts.num_rows, pa.int64()))


def merge_starts(tables: Sequence[pa.Table], per: Sequence[str]) -> pa.Table:
    """Return the partitions of one or more tables, each with its greatest start and its last round."""
    # a session of another time zone has other types of instants
    together = concat([table.cast(tables[0].schema) for table in tables])
    return group(together, per, {LE: (LE, "max"), ROUND: (ROUND, "max")})


def furthest_behind(starts: pa.Table, per: Sequence[str]) -> str:
    """Return the partition with the least start as text for users: ``device='d7'``."""
    at = int(ints(starts, LE).argmin())
    (row,) = python_rows(starts.select(per).slice(at, 1))
    return ", ".join(f"{name}={value!r}" for name, value in row.items())


def encode_starts(starts: pa.Table) -> str:
    """Return a table of partitions as text, for messages and state."""
    return b64encode(encode_small(starts)).decode("ascii")


def decode_starts(text: str) -> pa.Table:
    """Return the table encoded by :func:`encode_starts`."""
    return decode_small(b64decode(text))


_NO_PARTITIONS: Mapping[str, Any] = {"starts": None, "least": None, "quiet_round": None, "straggler": None}


@dataclass(frozen=True)
class PartitionStarts(SourceParts):
    """The partitions of a source, the rows of equal ``columns``; the CTI is that of the least of their greatest starts.

    There is none until each of those ``awaited`` has brought a row, or is idle. Idle partitions are forgotten; once all are, the
    CTI is that of the source's greatest start. The state has the number of rounds, the greatest start, and the partitions that
    have been awaited; and, of the partitions that are not idle, their table, the least start, the partition that has it, and
    the round of the longest silence.
    """

    columns: tuple[str, ...]
    steps: CtiSteps
    awaited: tuple[tuple[Any, ...], ...] = ()

    def summary(self, items: pa.Table) -> str:
        """Return the greatest start of each partition among the items, encoded as text."""
        # rebuilt, because tables of several tasks are concatenated and must have fields of equal nullability
        columns = pa.table({name: items.column(name) for name in (*self.columns, LE)})
        return encode_starts(group(columns, self.columns, {LE: (LE, "max")}))

    def keep(self, state: dict[str, Any], summaries: Sequence[str], idle_before: int) -> None:
        """Begin a round if there are summaries, and forget partitions last heard before the round ``idle_before``.

        A state of other columns, which an earlier run has left, is cleared first. A partition that has not been awaited before
        counts as heard in the round before this one, so that it is idle with those that have brought nothing since.
        """
        if state.get("per") != [*self.columns]:
            # an earlier run may have had other partitions, or none
            state.clear()
            state |= {"per": [*self.columns], "round": 0, "greatest": None, **_NO_PARTITIONS}
        new = [[*part] for part in self.awaited if [*part] not in state.get("awaited", [])]
        if not (summaries or new) and (state["starts"] is None or idle_before <= state["quiet_round"]):
            return
        stored = [] if state["starts"] is None else [decode_starts(state["starts"])]
        if new:
            state["awaited"] = [*state.get("awaited", []), *new]
            columns = dict(zip(self.columns, map(list, zip(*new, strict=True)), strict=True))
            unheard = pa.table({**columns, LE: pa.array([MINUS_INFINITY] * len(new), pa.int64())})
            stored.append(in_round(state["round"], unheard))
        if summaries:
            state["round"] += 1
            heard = [in_round(state["round"], decode_starts(text)) for text in summaries]
            latest = max(pc.max(starts.column(LE)).as_py() for starts in heard)
            state["greatest"] = latest if state["greatest"] is None else max(latest, state["greatest"])
            stored = [*heard, *stored]
        starts = merge_starts(stored, self.columns)
        state |= _NO_PARTITIONS
        starts = starts.filter(pc.greater_equal(starts.column(ROUND), idle_before))
        if starts.num_rows:
            state |= {
                "starts": encode_starts(starts),
                "least": pc.min(starts.column(LE)).as_py(),
                "quiet_round": pc.min(starts.column(ROUND)).as_py(),
                "straggler": furthest_behind(starts, self.columns),
            }

    def cti(self, state: Mapping[str, Any]) -> int:
        return self.greatest_cti(state) if state["least"] is None else self._cti_of(state["least"])

    def _cti_of(self, start: int) -> int:
        """Return the CTI of a partition's greatest start, or of none."""
        return start if start == MINUS_INFINITY else int(self.steps.cti(start))

    def greatest_cti(self, state: Mapping[str, Any]) -> int:
        return MINUS_INFINITY if state["greatest"] is None else int(self.steps.cti(state["greatest"]))

    def cti_at_rest(self, start: int) -> int:
        return int(self.steps.cti(start))

    def readings(self, state: Mapping[str, Any]) -> dict[str, int | str]:
        """Return the round and, unless all partitions are idle, the one furthest behind, its CTI, and the longest silence."""
        if not state:
            return {}
        readings = {"round": state["round"]}
        if state["least"] is not None:
            readings |= {name: state[name] for name in ("quiet_round", "straggler")}
            readings["straggler_cti"] = self._cti_of(state["least"])
        return readings
