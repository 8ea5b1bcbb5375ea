"""Decide whether a query can go on from a state that another query has left: what is there, what is missing, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamq.errors import CheckpointError
from streamq.runtime.hosts.hosted_kernel import scope_owner
from streamq.runtime.hosts.identity import (
    FORM_CHANGED,
    IDENTITY,
    OF_RESULT,
    Identity,
    ModuleCode,
    OperatorState,
    OtherLayout,
    ResultState,
    read_identity,
)
from streamq.runtime.hosts.readings import TALLIES
from streamq.runtime.state.baskets import Baskets
from streamq.runtime.time.progress import CLOCKS

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

    The state of operators that the query does not have is dropped. The checkpoint of a user's own ``writeStream`` has no other
    mark.
    """
    mark = baskets.values.get(IDENTITY)
    if mark == own.mark:
        return
    if baskets.values:
        body = baskets.store.get(IDENTITY) if mark is not None else None
        stored = OtherLayout() if body is None else read_identity(body)
        fit_to_state(stored, own).check("query")
        assert isinstance(stored, Identity)
        _adopt(baskets, stored, own)
    baskets.values[IDENTITY] = own.mark
    baskets.store.put(IDENTITY, own.to_json().encode())


def _adopt(baskets: Baskets, stored: Identity, own: Identity) -> None:
    """Drop the state of operators that only one of two queries has, and mark that of kernels that send rows in another form."""
    before = {operator.name: operator.form for operator in stored.operators}
    common = before.keys() & own.names
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
    if stored.buckets == own.buckets or not stored.stages:
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
    was, now = (_only(a.parts, b.parts) for a, b in ((nearest, operator), (operator, nearest)))
    changed = f"{was or 'nothing more'}, now {now or 'nothing more'}" if was or now else "its input has changed"
    return f"{operator.title} has no state there: {changed}"


def _only(parts: Sequence[str], others: Sequence[str]) -> str:
    """Return the parts that others lack, as text; empty if there are none."""
    return ", ".join(part for part in parts if part not in others)


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
    """Return names as text; ``nothing`` if there are none."""
    return ", ".join(names) or "nothing"
