"""The identity of a query: it marks the checkpoint and each bucket of state, so that another query cannot continue from them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamq.errors import CheckpointError, sentence
from streamq.runtime.basket import Baskets

STATE_VERSION = 15
"""The version of the layout of state, identity and sink folders; it changes whenever one of these does."""

SHOWN = 3
"""The number of changed lines of a plan that a message shows."""

IDENTITY = "identity"
"""The name of the query's identity in a bucket's state, and of its mark in the manifest."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The properties in which two runs must agree so that one can continue from the other's state.

    ``query`` is the digest of the rewritten plans and ``plan`` the lines that show them; ``outputs`` and ``ctis`` have an entry a
    result; ``folders``, those that rows are written into, and ``clock``, whether there is one among the sources that Spark
    reads, are in the identity of a checkpoint, not in the mark of a state.
    """

    version: int = STATE_VERSION
    query: str
    outputs: tuple[str, ...]
    buckets: int
    late_sink: bool
    ctis: tuple[bool, ...]
    early: bool
    plan: tuple[str, ...]
    folders: tuple[str, ...] = ()
    clock: bool = False

    @property
    def mark(self) -> str:
        """A short text that is equal for two identities if they agree in all but folders, clock and the lines of the plan."""
        outputs = ",".join(f"{o}{'+ctis' if ctis else ''}" for o, ctis in zip(self.outputs, self.ctis, strict=True))
        return f"{self.version}/{self.query}/{outputs}/{self.buckets}/{int(self.late_sink)}/{int(self.early)}"

    def to_json(self) -> str:
        """Return the identity as one line of JSON, which :func:`read_identity` reads."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class OtherLayout:
    """The identity that another version of streamq wrote, of which only the version can be read, if there is one."""

    version: int | None = None


def read_identity(text: str | bytes) -> Identity | OtherLayout:
    """Return the identity in a JSON text; if another version of the layout wrote it, only that version."""
    fields: dict[str, Any] = json.loads(text)
    if fields.get("version") != STATE_VERSION:
        return OtherLayout(fields.get("version"))
    listed = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Identity(**{**fields, **listed})


def check_state(baskets: Baskets, own: Identity) -> None:
    """Mark a new bucket's state as this query's; raise CheckpointError for another query's state.

    The checkpoint of a user's own ``writeStream`` has no other mark.
    """
    if not baskets.values:
        baskets.values[IDENTITY] = own.mark
        baskets.store.put(IDENTITY, own.to_json().encode())
    elif baskets.values.get(IDENTITY) != own.mark:
        stored = baskets.store.get(IDENTITY)
        refuse_other(OtherLayout() if stored is None else read_identity(stored), own, "query")


def refuse_other(stored: Identity | OtherLayout, own: Identity, verb: str) -> None:
    """Raise CheckpointError, in the name of ``verb``, if the identity of a checkpoint is not that of the query now."""
    differences = identity_differences(stored, own)
    if not differences:
        return
    hint = "Use a new checkpoint and a new sink, or the query that made this one."
    if isinstance(stored, Identity) and len(differences) == 1 and stored.buckets != own.buckets:
        hint = f"Give buckets={stored.buckets}."
    raise CheckpointError(
        sentence(verb, "the checkpoint is another query's", f"changed: {', '.join(differences)}", hint)
    )


def identity_differences(stored: Identity | OtherLayout, own: Identity) -> list[str]:
    """Return, in words, the differences between a stored identity and that of the query now; none if they agree.

    If the layout of state differs, it is the only one.
    """
    if isinstance(stored, OtherLayout) or stored.version != own.version:
        older = "an older version" if stored.version is None else f"version {stored.version}"
        return [f"the layout of state ({older}, now {own.version})"]
    differences = []
    if stored.query != own.query:
        differences.append(f"the query ({_plan_change(stored.plan, own.plan)})")
    shown = (
        ("output", _join_values(stored.outputs), _join_values(own.outputs)),
        ("buckets", str(stored.buckets), str(own.buckets)),
        ("late_sink", "given" if stored.late_sink else "none", "given" if own.late_sink else "none"),
        ("ctis", _join_values(stored.ctis), _join_values(own.ctis)),
        ("early", str(stored.early), str(own.early)),
        ("a clock that sources follow", "there" if stored.clock else "none", "there" if own.clock else "none"),
        ("the folders written into", _listed(stored.folders), _listed(own.folders)),
    )
    return differences + [f"{what} ({before}, now {now})" for what, before, now in shown if before != now]


def _join_values(of_results: Sequence[object]) -> str:
    """Return values, one per result, as text."""
    return ", ".join(repr(value) for value in of_results)


def _listed(folders: Sequence[str]) -> str:
    """Return folders as text; ``no folder`` if there are none."""
    return " and ".join(folders) or "no folder"


def _plan_change(before: Sequence[str], now: Sequence[str]) -> str:
    """Return the lines that only the plan before has, and those that only the plan now has: ``a; b, now c``."""
    lines = list(difflib.ndiff(before, now))
    gone, new = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return f"{_first_lines(gone)}, now {_first_lines(new)}" if gone or new else "in what its plan does not show"


def _first_lines(lines: Sequence[str]) -> str:
    """Return the first lines, ``; `` between them, and the number of the others; ``nothing`` for no lines."""
    more = [f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "; ".join([*lines[:SHOWN], *more]) or "nothing"
