"""The identity of a query: it marks the checkpoint and each bucket of state, and says whose state is in it.

State belongs to an operator, by the name of its scope. Another query goes on from a checkpoint if every operator with state that
it needs is there (:mod:`streamq.runtime.hosts.state_fit` decides that); the state of operators that it lacks is dropped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

STATE_VERSION = 37
"""The version of the layout of state, identity and sink folders; it changes whenever one of these does."""

IDENTITY = "identity"
"""The name of the query's identity in a bucket's state, and of its mark in the manifest."""

FORM_CHANGED = "form changed"
"""The value of a scope that marks a kernel which has sent its rows in another form so far."""

FINAL, OPEN, EARLY = "final", "changelog", "early"
"""The forms in which kernels send rows: once they are final, when the watermark reaches them, or at once."""

OF_RESULT, OF_CTIS = "final", "ctis"
"""The kinds of operators behind a result, with which their names begin: it waits until it is final, or is sent with its CTIs."""


@dataclass(frozen=True, kw_only=True)
class ModuleCode:
    """A user's module as an operator with state calls it.

    code: a text that differs for other code; compatible_with: the version whose state goes on with this code, None: only that of
    equal code does.
    """

    name: str
    version: int
    code: str
    compatible_with: int | None = None


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """The state of an operator: ``name`` is that of its scope, a digest of what it computes from its sources.

    stage: the number of its stage; title: its name in explain; form: the form in which it sends rows; parts: texts on what it
    reads, for messages; modules: those that it calls, itself or on the way of its rows to it; held: a text that differs if the
    rows that a level of consistency holds back before it have other columns; partials: the partial results that are columns of
    the state, by names that begin with those of the columns, each with its text for people.
    """

    name: str
    stage: int
    title: str
    form: str
    parts: tuple[str, ...] = ()
    modules: tuple[ModuleCode, ...] = ()
    held: str = ""
    partials: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the operator, with which its name begins."""
        return self.name.partition(":")[0]

    @property
    def holds_result(self) -> bool:
        """True if it holds back the rows of a result: until they are final, or to send them in order of time."""
        return self.kind in (OF_RESULT, OF_CTIS) and self.form == FINAL


@dataclass(frozen=True, kw_only=True)
class ResultState:
    """A result: the form of its output, whether it has CTIs, and the names of all operators with state that it depends on.

    query: a text that is equal for results of one query.
    """

    output: str
    ctis: bool
    operators: tuple[str, ...]
    query: str = ""

    @property
    def is_final(self) -> bool:
        """True if only final rows are written."""
        return self.output == FINAL


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The facts about a run by which another run decides if it can go on from its state.

    ``query`` is the digest of the rewritten plans; ``operators`` are those with state, ``results`` has an entry a result.
    ``stages`` and ``sources``, in their order, are what Spark
    keeps of them. ``blocks``: a level of consistency holds rows back. ``folders``, those that rows are written into, each with
    the form of its rows, and ``clock``, whether there is one among the sources that Spark reads, are in the identity of a
    checkpoint, not in the mark of a state.
    """

    version: int = STATE_VERSION
    query: str
    operators: tuple[OperatorState, ...]
    results: tuple[ResultState, ...]
    stages: int
    sources: tuple[str, ...]
    buckets: int
    late_sink: bool
    early: bool
    blocks: bool = False
    folders: tuple[tuple[str, str], ...] = ()
    clock: bool = False

    @property
    def mark(self) -> str:
        """A short text that is equal for two identities of the same query, results, stages, buckets and flags."""
        results = ",".join(f"{r.output}{'+ctis' if r.ctis else ''}" for r in self.results)
        places = ",".join(str(operator.stage) for operator in self.operators)
        flags = f"{int(self.late_sink)}{int(self.early)}{int(self.blocks)}"
        return f"{self.version}/{self.query}/{results}/{places}/{self.stages}/{self.buckets}/{flags}"

    @property
    def names(self) -> frozenset[str]:
        """The names of the operators with state."""
        return frozenset(operator.name for operator in self.operators)

    def to_json(self) -> str:
        """Return the identity as one line of JSON, which :func:`read_identity` reads."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class OtherLayout:
    """The identity that another version of streamq wrote, of which only the version can be read, if there is one."""

    version: int | None = None


def read_identity(text: str | bytes) -> Identity | OtherLayout:
    """Return the identity in a JSON text; if another version of the layout wrote it, only that version."""
    return identity_from(json.loads(text))


def identity_from(fields: dict[str, Any]) -> Identity | OtherLayout:
    """Return the identity with these fields, as :func:`read_identity` does."""
    if fields.get("version") != STATE_VERSION:
        return OtherLayout(fields.get("version"))
    listed = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    operators = tuple(_operator_from(one) for one in fields["operators"])
    folders = tuple((name, form) for name, form in fields["folders"])
    results = tuple(ResultState(**{**one, "operators": tuple(one["operators"])}) for one in fields["results"])
    read = {"operators": operators, "results": results, "folders": folders}
    return Identity(**{**fields, **listed, **read})


def _operator_from(fields: dict[str, Any]) -> OperatorState:
    """Return the state of an operator from its fields in JSON."""
    modules = tuple(ModuleCode(**one) for one in fields["modules"])
    partials = tuple((name, text) for name, text in fields["partials"])
    return OperatorState(**{**fields, "parts": tuple(fields["parts"]), "modules": modules, "partials": partials})
