"""The identity of a query: it marks the checkpoint and each bucket of state, and decides whether another query can go on there.

State belongs to an operator, by the name of its scope. Another query goes on from a checkpoint if every operator with state that
it needs is there; the state of operators that it lacks is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from streamq.errors import CheckpointError
from streamq.runtime.hosts.hosted_kernel import scope_owner
from streamq.runtime.hosts.readings import TALLIES
from streamq.runtime.state.baskets import Baskets
from streamq.runtime.time.progress import CLOCKS

STATE_VERSION = 41
"""The version of the layout of state, identity and sink folders; it changes whenever one of these does."""

IDENTITY = "identity"
"""The name of the query's identity in a bucket's state, and of its mark in the manifest."""

FORM_CHANGED = "form changed"
"""The value of a scope that marks a kernel which has sent its rows in another form so far."""

FINAL, OPEN, EARLY = "final", "changelog", "early"
"""The forms in which kernels send rows: once they are final, when the watermark reaches them, or at once."""

OF_RESULT, OF_CTIS, OF_LATEST = "final", "ctis", "latest"
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
    the state, by names that begin with those of the columns, each with its text for people; since: the first query of the
    checkpoint, by its number, from which on all have had this state.
    """

    name: str
    stage: int
    title: str
    form: str
    parts: tuple[str, ...] = ()
    modules: tuple[ModuleCode, ...] = ()
    held: str = ""
    partials: tuple[tuple[str, str], ...] = ()
    since: int = 0

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
    checkpoint, not in the mark of a state. ``number`` is that of the query among those that have gone on from one another on a
    checkpoint, from 0 on. ``expected``: the input that was expected when the order of its joins was chosen, as JSON; "" if none.
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
    number: int = 0
    expected: str = ""

    def with_number(self, stored: Identity) -> Self:
        """Return the identity with its number on a checkpoint where ``stored`` is that of the last query, maybe the same."""
        is_same = replace(self, number=stored.number).mark == stored.mark
        number = stored.number if is_same else stored.number + 1
        since = {operator.name: operator.since for operator in stored.operators}
        operators = tuple(replace(one, since=since.get(one.name, number)) for one in self.operators)
        return replace(self, operators=operators, number=number)

    @property
    def mark(self) -> str:
        """A short text that is equal for two identities of the same query, number, results, stages, buckets and flags."""
        results = ",".join(f"{r.output}{'+ctis' if r.ctis else ''}" for r in self.results)
        places = ",".join(str(operator.stage) for operator in self.operators)
        flags = f"{int(self.late_sink)}{int(self.early)}{int(self.blocks)}"
        return f"{self.version}/{self.number}/{self.query}/{results}/{places}/{self.stages}/{self.buckets}/{flags}"

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


MIGRATE = "sq.migrate(query, checkpoint, to=...) computes its state anew from the sources, up to where this one stands"
"""The way on for a query that does not fit."""

ANEW = "Go on with the output of before, or begin anew with a new checkpoint and a new sink"
"""The way on for a result whose rows wait for an operator that its new form does not have; a migration would lose them, too."""

SOURCE = "source:"
"""The prefix of the names of sources' relations, before the table."""


@dataclass(frozen=True)
class Fit:
    """The result of fitting a query to a stored state: ``misfits`` say, in words, why it cannot go on; none if it can.

    ``hint`` is the advice on them. ``new_results``: the numbers of results that begin where the checkpoint stands.
    """

    misfits: tuple[str, ...] = ()
    hint: str = ""
    new_results: tuple[int, ...] = ()

    def check(self, verb: str) -> None:
        """Raise CheckpointError, in the name of ``verb``, if the query does not fit."""
        if self.misfits:
            wrong = "the checkpoint cannot go on with this query"
            raise CheckpointError(verb, wrong, "; ".join(self.misfits), self.hint)


def check_state(baskets: Baskets, own: Identity) -> None:
    """Mark a new bucket's state as this query's; let another query's state go on with it, or raise CheckpointError.

    The state of operators that the query does not have, or that one in between did not have, is dropped. A state that an earlier
    query of the checkpoint has left goes on, as each of those since then went on from the one before; they have had no rows in
    this bucket. The checkpoint of a user's own ``writeStream`` has no other mark.
    """
    mark = baskets.values.get(IDENTITY)
    if mark == own.mark:
        return
    if baskets.values:
        body = baskets.store.get(IDENTITY) if mark is not None else None
        stored = OtherLayout() if body is None else read_identity(body)
        if isinstance(stored, OtherLayout) or stored.number >= own.number:
            fit_to_state(stored, own).check("query")
        assert isinstance(stored, Identity)
        _adopt(baskets, stored, own)
    baskets.values[IDENTITY] = own.mark
    baskets.store.put(IDENTITY, own.to_json().encode())


def _adopt(baskets: Baskets, stored: Identity, own: Identity) -> None:
    """Drop the state of operators that not all queries from one to another have; mark that of kernels with another form."""
    before = {operator.name: operator.form for operator in stored.operators}
    common = {o.name for o in own.operators if o.name in before and o.since <= stored.number}
    for scope in [scope for scope in baskets.scopes if scope_owner(scope) not in common]:
        baskets.drop_scope(scope)
    for part in (CLOCKS, TALLIES):
        of_relations = baskets.values.get(part, {})
        for name in [name for name in of_relations if name not in common and not name.startswith(SOURCE)]:
            del of_relations[name]
    partials = {operator.name: operator.partials for operator in stored.operators}
    for operator in own.operators:
        gone = [name for name, _ in partials.get(operator.name, ()) if name not in dict(operator.partials)]
        if gone and operator.name in baskets.scopes:
            baskets.scoped(operator.name).drop_columns(tuple(gone))
    changed = {operator.name for operator in own.operators if before.get(operator.name, operator.form) != operator.form}
    for scope in baskets.scopes:
        if scope in changed:
            baskets.scopes[scope][FORM_CHANGED] = True


def fit_to_state(stored: Identity | OtherLayout, own: Identity) -> Fit:
    """Return how a query fits the state that another one has left."""
    if isinstance(stored, OtherLayout):
        older = "an older version" if stored.version is None else f"version {stored.version}"
        return Fit(
            (f"its state has another layout ({older}, now {own.version})",), "Use a new checkpoint and a new sink."
        )
    misfits = [
        *_source_misfits(stored, own),
        *_stage_misfits(stored, own),
        *_bucket_misfits(stored, own),
        *_operator_misfits(stored, own),
    ]
    waiting = _waiting_rows(stored, own)
    if misfits or waiting:
        return Fit((*misfits, *waiting), f"{ANEW if waiting or ends_final_rows(stored, own) else MIGRATE}.")
    return Fit(new_results=_beginning(stored.results, own.results))


def _source_misfits(stored: Identity, own: Identity) -> list[str]:
    """Return the reasons why Spark cannot go on reading the sources: it knows them by their number and order."""
    misfits = []
    if stored.sources != own.sources:
        misfits.append(f"Spark reads the sources {_listed(stored.sources)} there, now {_listed(own.sources)}")
    if stored.clock != own.clock:
        before, now = ("a clock" if there else "no clock" for there in (stored.clock, own.clock))
        misfits.append(f"Spark reads {before} beside the sources there, now {now}")
    return misfits


def _stage_misfits(stored: Identity, own: Identity) -> list[str]:
    """Return the reason why the query does not fit into the stages of a checkpoint, of which Spark has fixed the number."""
    if own.stages <= stored.stages:
        return []
    above = [operator.title for operator in own.operators if operator.stage >= stored.stages]
    return [f"Spark has fixed {stored.stages} stage(s), and {_listed(above)} would need {own.stages}"]


def _bucket_misfits(stored: Identity, own: Identity) -> list[str]:
    """Return the reason why groups would not find their state: their hash leads to a bucket by the number of buckets."""
    if stored.buckets == own.buckets:
        return []
    return [f"its groups are in {stored.buckets} buckets, now {own.buckets}: pass buckets={stored.buckets}"]


def _operator_misfits(stored: Identity, own: Identity) -> list[str]:
    """Return the reasons why operators do not find their state, or cannot go on from it.

    Operators of a result that begins may begin with it, but one that holds final rows back only together with those below it.
    And if another result ends, that one may be the same result, changed: then its new operators would lack the rows so far.
    """
    before = {operator.name: operator for operator in stored.operators}
    gone = [operator for operator in stored.operators if operator.name not in own.names]
    now = {operator.name: operator for operator in own.operators}
    new = {operator.name for operator in own.operators if operator.name not in before}
    if not _beginning(own.results, stored.results):
        new = {
            holder
            for result in own.results
            for holder in new & {*result.operators}
            if now[holder].kind == OF_RESULT
            # rows that may be taken back have gone on before, and do not go on anew
            and all(n in before and before[n].form == now[n].form for n in result.operators if n != holder)
        }
    misfits = [_missing(operator, gone) for operator in own.operators if operator.name in new]
    for operator in own.operators:
        if (old := before.get(operator.name)) is not None:
            misfits += _changes(old, operator, stored.blocks or own.blocks)
    return misfits


def _waiting_rows(stored: Identity, own: Identity) -> list[str]:
    """Return the operators, as reasons, in which rows of results wait that go on in another form, without these operators.

    A result that begins may be one that has ended, in another form, if all else that it depends on is the same.
    """

    def form(result: ResultState) -> tuple[Any, ...]:
        return result.query, result.operators, result.is_final

    ended, begun = list(stored.results), list[set[str]]()
    for result in own.results:
        same = next((one for one in ended if form(one) == form(result)), None)
        if same is None:
            begun.append({*result.operators})
        else:
            ended.remove(same)
    holders = {operator.name: operator.title for operator in stored.operators if operator.holds_result}
    waiting = [
        holders[name]
        for result in ended
        for name in result.operators
        if name in holders and {*result.operators} - {*holders} in begun
    ]
    return [f"rows of a result wait in ({title}), and its new form would lose them" for title in dict.fromkeys(waiting)]


def ends_final_rows(stored: Identity, own: Identity) -> bool:
    """Return True if a result of which only final rows are written may go on as one of which all rows are."""
    finals, others = (
        sum(result.is_final == is_final for result in own.results)
        - sum(result.is_final == is_final for result in stored.results)
        for is_final in (True, False)
    )
    return finals < 0 < others


def _beginning(before: Sequence[ResultState], now: Sequence[ResultState]) -> tuple[int, ...]:
    """Return the numbers of the results of ``now`` that are not among those before, each of which continues as one."""
    left = [result.operators for result in before]
    new = []
    for number, result in enumerate(now):
        if result.operators in left:
            left.remove(result.operators)
        else:
            new.append(number)
    return tuple(new)


def _missing(operator: OperatorState, gone: Sequence[OperatorState]) -> str:
    """Return the reason why an operator finds no state: a change in what the most similar one gone reads."""
    alike = [other for other in gone if other.kind == operator.kind]
    if not alike:
        return f"{operator.title} has no state there: it is new, and has not seen the rows so far"
    nearest = max(alike, key=lambda other: len({*other.parts} & {*operator.parts}))
    was, now = (
        ", ".join(part for part in one.parts if part not in other.parts)
        for one, other in ((nearest, operator), (operator, nearest))
    )
    changed = f"{was or 'nothing more'}, now {now or 'nothing more'}" if was or now else "its input has changed"
    return f"{operator.title} has no state there: {changed}"


def _changes(old: OperatorState, now: OperatorState, blocks: bool) -> list[str]:
    """Return the reasons why an operator cannot go on from its own state; ``blocks``: rows may be held back in it."""
    reasons = [_module_change(now, module, old.modules) for module in _changed(old.modules, now.modules)]
    there = {name for name, _ in old.partials}
    if lacking := [text for name, text in now.partials if name not in there]:
        reasons.append(f"{now.title} has no {' and no '.join(lacking)} there: it has not kept that of the rows so far")
    if blocks and old.held != now.held:
        reasons.append(f"{now.title} holds rows back, with other columns than now")
    if old.stage != now.stage:
        reasons.append(f"{now.title} has its state in stage {old.stage + 1}, and would be in stage {now.stage + 1}")
    return reasons


def _changed(before: Iterable[ModuleCode], now: Iterable[ModuleCode]) -> list[ModuleCode]:
    """Return the modules whose code is neither among those before, nor compatible with one of them."""
    codes = {(module.name, module.code) for module in before}
    versions = {(module.name, module.version) for module in before}
    return [m for m in now if (m.name, m.code) not in codes and (m.name, m.compatible_with) not in versions]


def _module_change(operator: OperatorState, module: ModuleCode, before: Iterable[ModuleCode]) -> str:
    """Return the reason why an operator cannot go on with a module's code, and how to vouch for it."""
    versions = [other.version for other in before if other.name == module.name]
    last = max(versions, default=1)
    vouch = f"version={max(module.version, last + 1)}, compatible_with={last}"
    return f"the code of module {module.name} in {operator.title} has changed (with {vouch} you vouch for it)"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
