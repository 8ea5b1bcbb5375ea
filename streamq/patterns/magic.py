"""``%%cedr`` in notebooks: a cell that is a text in the CEDR language; ``%load_ext streamq`` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamq.errors import CedrError, PlanError, nearest
from streamq.patterns.parser import parse
from streamq.patterns.pattern import Pattern, cedr
from streamq.patterns.pattern_tree import Type, leaves
from streamq.patterns.syntax import source_text
from streamq.stream import Stream

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Register ``%%cedr`` with a shell.

    The event types of a cell are the notebook's streams of these names. ``%%cedr risky`` binds the pattern to the name ``risky``;
    without a name the pattern is the cell's result. Another text than a name there raises PlanError.
    """

    def magic(line: str, cell: str) -> Pattern | None:
        pattern = cedr(cell, **_streams(cell, shell.user_ns))
        name = line.strip()
        if not name:
            return pattern
        if not name.isidentifier():
            raise PlanError("%%cedr", "not a name for the pattern", f"found {name!r}", "Write %%cedr risky.")
        shell.user_ns[name] = pattern
        return None

    register: Any = shell.register_magic_function
    register(magic, "cell", "cedr")


def _streams(text: str, names: dict[str, Any]) -> dict[str, Stream]:
    """Return the notebook's streams for a text's event types; raise CedrError for a type without a stream."""
    program = parse(text)
    streams: dict[str, Stream] = {}
    defined: set[str] = set()
    for definition in program.definitions:
        for _, _, kind in leaves(definition.pattern):
            if kind.name not in defined:
                streams[kind.name] = _stream(kind, text, names)
        defined.add(definition.name)
    return streams


def _stream(kind: Type, text: str, names: dict[str, Any]) -> Stream:
    """Return the notebook's stream of a type's name; raise CedrError, at the type, if there is none."""
    stream = names.get(kind.name)
    if isinstance(stream, Stream):
        return stream
    there = [name for name, value in names.items() if isinstance(value, Stream) and not name.startswith("_")]
    observed = f"there are: {', '.join(there)}" if there else "there is none"
    error: CedrError = source_text(text).error(
        kind.place, f"no stream {kind.name!r} in this notebook", observed, nearest(kind.name, there)
    )
    raise error
