"""Whose state it is: the identity of a query, which stands in its checkpoint and beside its state, and what another's differs in.

An identity is a dict that JSON takes: ``version`` (of the state's layout), ``fingerprint``, ``plan`` (lines of text), and in a
checkpoint ``folders`` (those that are written into).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamq.errors import CheckpointError, sentence
from streamq.runtime.basket import Baskets

SHOWN = 3
"""Lines of a plan that are shown where it has changed."""

IDENTITY = "identity"
"""Under which state has the identity of its query, and the manifest what tells it from others."""


def check_state(baskets: Baskets, mine: Mapping[str, Any]) -> None:
    """Mark a new bucket's state as this query's; raise CheckpointError for another query's state.

    A checkpoint that streamq was not told of, that of a ``writeStream``, has no other mark.
    """
    mark = f"{mine['version']}/{mine['fingerprint']}"
    if not baskets.values:
        baskets.values[IDENTITY] = mark
        baskets.store.put(IDENTITY, json.dumps(mine).encode())
    elif baskets.values.get(IDENTITY) != mark:
        written = baskets.store.get(IDENTITY)
        refuse_other(json.loads(written) if written else {}, mine, "query")


def refuse_other(before: Mapping[str, Any], now: Mapping[str, Any], verb: str) -> None:
    """Raise CheckpointError if the identity of a checkpoint is not that of the query now."""
    differences = changes(before, now)
    if not differences:
        return
    hint = "Use a new checkpoint and a new sink, or the query that made this one."
    if len(differences) == 1 and differences[0].startswith("buckets "):
        hint = f"Give buckets={parts_of(before)['buckets']}."
    raise CheckpointError(
        sentence(verb, "the checkpoint is another query's", f"changed: {', '.join(differences)}", hint)
    )


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two identities differ in, in words."""
    if before.get("version") != now["version"]:
        older = f"version {before['version']}" if before else "an older version"
        return [f"the layout of state ({older}, now {now['version']})"]
    parts, own = parts_of(before), parts_of(now)
    folders = [" and ".join(i.get("folders", ())) or "no folder" for i in (before, now)]
    return [
        f"the query ({_plan_change(before['plan'], now['plan'])})"
        if what == "the query"
        else f"{what} ({_PARTS[what](parts[what])}, now {_PARTS[what](own[what])})"
        for what in _PARTS
        if parts[what] != own[what]
    ] + ([f"the folders written into ({folders[0]}, now {folders[1]})"] if folders[0] != folders[1] else [])


def parts_of(identity: Mapping[str, Any]) -> dict[str, str]:
    """The parts of an identity's fingerprint, by name."""
    return dict(zip(_PARTS, identity["fingerprint"].split("/"), strict=True))


def _plan_change(before: Sequence[str], now: Sequence[str]) -> str:
    """The lines of a plan that are not the other's: ``a; b, now c``."""
    lines = list(difflib.ndiff(before, now))
    gone, new = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return f"{_few(gone)}, now {_few(new)}" if gone or new else "in what its plan does not show"


def _few(lines: Sequence[str]) -> str:
    more = [f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "; ".join([*lines[:SHOWN], *more]) or "nothing"


_PARTS: Mapping[str, Callable[[str], str]] = {
    "the query": str,
    "output": repr,
    "buckets": str,
    "late_sink": lambda flag: "given" if flag == "1" else "none",
    "ctis": lambda flag: str(flag == "1"),
}
"""The parts of a fingerprint, and how each is shown."""
