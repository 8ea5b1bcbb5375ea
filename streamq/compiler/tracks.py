"""Tracks of a program: which results run together because they have one level of consistency, and which numbers tracks have.

Only an answer that depends on the level needs a track of its own. A result with final rows waits for the CTI at any level that
remembers as much. So it goes with results of another level that does, if they hold no rows back or have operators in common.

The number of a track is a part of the names of its operators' states, so it must not depend on the order of results, nor change
with a level. A run that goes on from a checkpoint therefore leaves each result on its track, at whatever level. A result is known
by the folder that it is written into. Where results of one track have different levels now, one level stays there, and the others
get new tracks, whose state is a copy (``origins``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from streamq.choices import OutputForm
from streamq.compiler.on_track import OnTrack
from streamq.compiler.options import Options
from streamq.compiler.results import Results, as_results, without_policy
from streamq.compiler.state_texts import short_hash, state_text
from streamq.errors import CheckpointError, sentence
from streamq.operators.operator import PassThrough
from streamq.operators.source import Source
from streamq.operators.source_policy import SourcePolicy
from streamq.operators.step import Step
from streamq.plan.folding import fold
from streamq.plan.node import Node, nodes
from streamq.policies import Level, show_level
from streamq.runtime.identity import ResultState
from streamq.runtime.track import source_relation


@dataclass(frozen=True)
class Track:
    """A track: its ``level``, and the relations of the ``sources`` whose progress counts on it."""

    level: Level
    sources: frozenset[str]


@dataclass(frozen=True)
class Tracks:
    """The tracks of a program: ``numbers``, that of each result, and the tracks ``by_number``, in the order of numbers.

    ``origins``: for each track that has begun with the state of another one, the number of that. ``queries``: a text for each
    result that is equal for results of one query.
    """

    numbers: tuple[int, ...]
    by_number: Mapping[int, Track]
    origins: Mapping[int, int]
    queries: tuple[str, ...]

    @property
    def are_several(self) -> bool:
        """True if the program has results at different levels."""
        return len(self.by_number) > 1

    def level_of(self, result: int) -> Level:
        """Return the level at which a result runs."""
        return self.by_number[self.numbers[result]].level

    def over(self, plan: Results) -> Results:
        """Return plans in which each result reads the sources on its track; unchanged if that is number 0 for all."""
        if self.by_number.keys() == {0}:
            return plan
        axis = plan.schema.axis

        def on(track: int, result: Node) -> Node:
            level = show_level(self.by_number[track].level, axis)

            def visit(node: Node, inputs: list[Node]) -> Node:
                return OnTrack(node, track, level) if isinstance(node, Source) else node.with_children(inputs)

            return fold(result, visit)

        return Results(tuple(on(track, result) for track, result in zip(self.numbers, plan.inputs, strict=True)))


@dataclass(frozen=True)
class _Wanted:
    """A result that needs a track: its level, form of output, query and folder.

    ``operators``: the digests of what may keep state.
    """

    number: int
    level: Level
    output: str
    ctis: bool
    query: str
    sink: str
    shown: str
    operators: frozenset[str]

    @property
    def is_final(self) -> bool:
        return self.output == OutputForm.FINAL

    def fits(self, level: Level) -> bool:
        """Return True if a track of some level gives the result's answer."""
        return level == self.level or (self.is_final and level.remember == self.level.remember)

    def choose(self, levels: Collection[Level], others: Sequence[_Wanted]) -> Level | None:
        """Return the level of a track that the result goes to, of those there are; None if it needs one of its own.

        ``others``: the results on these tracks.
        """
        as_final = [Level(0, self.level.remember)] * self.is_final
        common = [one.level for one in others if not one.operators.isdisjoint(self.operators) and self.fits(one.level)]
        return next((level for level in (self.level, *as_final, *common) if level in levels), None)

    def is_same(self, stored: ResultState, *, no_folder: bool, at_level: bool, in_form: bool) -> bool:
        """Return True if a result of a checkpoint has the same query and, if asked, the same level and form, and no folder."""
        has_form = (stored.output, stored.ctis) == (self.output, self.ctis)
        has_level = stored.level == self.shown
        has_folder = (stored.sink or self.sink) != ""
        is_other = (at_level and not has_level) or (in_form and not has_form) or (no_folder and has_folder)
        return stored.query == self.query and not is_other

    def is_in_folder_of(self, stored: ResultState) -> bool:
        """Return True if it is written into the folder of a result of a checkpoint."""
        return self.sink != "" and self.sink == stored.sink


def choose_tracks(plan: Results, options: Options) -> Tracks:
    """Return the tracks of some plans (as they were written, or rewritten in the same way as those of the checkpoint).

    Raises CheckpointError if results of one query are on several tracks there, and which is which cannot be told.
    """
    axis, stored = plan.schema.axis, options.placement.results
    policies = {node.table: node.policy for node in nodes(plan) if isinstance(node, Source)}
    queries = tuple(_query_text(result) for result in plan.inputs)
    levels = [options.level_of(number) for number in range(len(plan.inputs))]
    wanted = [
        _Wanted(
            number=number,
            level=level,
            output=egress.output,
            ctis=egress.ctis,
            query=query,
            sink=options.sinks.get(number, ""),
            shown=show_level(level, axis),
            operators=_operators(result),
        )
        for number, (level, egress, query, result) in enumerate(
            zip(levels, options.egresses, queries, plan.inputs, strict=True)
        )
    ]
    before = _same_results(wanted, stored)
    numbers: dict[int, int] = {}
    own: dict[int, Level] = {}
    origins: dict[int, int] = {}
    used = [one.track for one in stored]

    def add(results: Sequence[_Wanted], levels: Sequence[Level], first: int | None, origin: int | None) -> None:
        """Put results on tracks of their own, the first of which has a number already."""
        places: list[int] = []
        for level in levels:
            place = first if first is not None and not places else max([-1, *used, *own]) + 1
            own[place] = level
            places.append(place)
            if origin is not None and place != origin:
                origins[place] = origin
        for one in results:
            chosen = one.choose(levels, results)
            fitting = [place for place in places if one.fits(own[place])]
            numbers[one.number] = min(fitting, key=lambda place: own[place] != chosen)

    if not stored:
        add(wanted, _levels(wanted, options.level, wanted), None, None)
    for track in sorted({one.track for one in before.values()}):
        together = [one for one in wanted if one.number in before and before[one.number].track == track]
        # here a final result stays where it is if it can
        add(together, _levels(together, _level_of_track(track, stored, together), ()), track, track)
    # results that begin, or that continue one of another query
    rest = [one for one in wanted if one.number not in numbers]
    continued = {id(one) for one in before.values()}
    for one in sorted(rest, key=lambda one: one.is_final):
        level = one.choose(own.values(), [other for other in wanted if other.number in numbers])
        if level is not None:
            numbers[one.number] = next(n for n, there in own.items() if there == level)
            continue
        ended = [s for s in stored if id(s) not in continued]
        free = [s for s in ended if s.track not in own]
        origin = min(free or ended, key=lambda s: s.level != one.shown, default=None)
        first = origin.track if free and origin is not None else None
        add([one], _levels([one], None, ()), first, None if origin is None else origin.track)
    origins |= {new: old for new, old in options.placement.origins.items() if new in own and new not in origins}
    chosen = tuple(numbers[one.number] for one in wanted)
    by_number = {n: Track(own[n], _sources(n, chosen, plan, policies)) for n in sorted(own)}
    return Tracks(chosen, by_number, origins, queries)


def _query_text(plan: Node) -> str:
    """Return a hash of a query that its sources' policies do not change; unlike a plan without these, it makes no node anew."""

    def visit(node: Node, inputs: list[str]) -> str:
        return short_hash([state_text(without_policy(node) if isinstance(node, Source) else node), inputs])

    return fold(plan, visit)


def _sources(track: int, numbers: Sequence[int], plan: Results, policies: Mapping[str, SourcePolicy]) -> frozenset[str]:
    """Return the relations of the sources that the results of a track read, and of those that these follow."""
    read: set[str] = set()
    todo = [
        node.table
        for number, result in zip(numbers, plan.inputs, strict=True)
        if number == track
        for node in nodes(result)
        if isinstance(node, Source)
    ]
    while todo:
        table = todo.pop()
        if table in policies and table not in read:
            read.add(table)
            leader = policies[table].progress.leader
            todo += [] if leader is None else [leader]
    return frozenset(map(source_relation, read))


def _operators(plan: Node) -> frozenset[str]:
    """Return the digests of a plan's nodes that may keep state."""
    return frozenset(node.digest for node in nodes(plan) if not isinstance(node, Source | Step | PassThrough))


def _levels(results: Sequence[_Wanted], first: Level | None, choosing: Sequence[_Wanted]) -> list[Level]:
    """Return the levels of the tracks that some results need: ``first``, if one of them has it, then in their order.

    Final results alone need none that blocks, nor do those of ``choosing`` that have no operator in common with others.
    """
    levels = list(dict.fromkeys(one.level for one in results if not one.is_final))
    levels.sort(key=lambda level: level != first)
    for one in results:
        can_stay = one.choose(levels, results) is not None if one in choosing else any(map(one.fits, levels))
        if not can_stay:
            levels.append(Level(0, one.level.remember))
    return levels


def _level_of_track(track: int, stored: Sequence[ResultState], together: Sequence[_Wanted]) -> Level | None:
    """Return the level that results of a track of the checkpoint still have; None if all have another one."""
    shown = {one.level for one in stored if one.track == track}
    return next((one.level for one in together if one.shown in shown), None)


def _same_results(wanted: Sequence[_Wanted], stored: Sequence[ResultState]) -> dict[int, ResultState]:
    """Return the result of the checkpoint that each result continues, by number; those without one begin, or have changed.

    The result of a query in a folder continues the one of that query there. A query that is new continues the one in its folder.
    Others of one query are told apart by level first, then by output, then by their order; those without a folder come first.
    """
    left, same, queries = list(stored), dict[int, ResultState](), {one.query for one in stored}

    def match(is_same: Callable[[_Wanted, ResultState], bool]) -> None:
        for one in wanted:
            continued = next((s for s in left if is_same(one, s)), None)
            if one.number not in same and continued is not None:
                same[one.number] = continued
                left.remove(continued)

    match(lambda one, s: one.is_in_folder_of(s) and (one.query == s.query or one.query not in queries))
    for no_folder, at_level, in_form in product((True, False), repeat=3):
        match(partial(_Wanted.is_same, no_folder=no_folder, at_level=at_level, in_form=in_form))
    _check_order(wanted, stored, same)
    return same


def _check_order(wanted: Sequence[_Wanted], stored: Sequence[ResultState], same: Mapping[int, ResultState]) -> None:
    """Raise CheckpointError if results of one query, on several tracks and in no known folder, may have changed places.

    They have not if they are in their order; if some begin or end, the others must also have their levels.
    """
    for query in dict.fromkeys(one.query for one in wanted):
        before = [s for s in stored if s.query == query and not s.sink]
        now = [o for o in wanted if o.query == query and not same.get(o.number, o).sink]
        pairs = [(one, same[one.number]) for one in now if one.number in same]
        places = [next(at for at, s in enumerate(before) if s is old) for _, old in pairs]
        in_order = [before[at].track for at in sorted(places)] == [old.track for _, old in pairs]
        may_differ = len(now) != len(before) and any(one.shown != old.level for one, old in pairs)
        if len({s.track for s in before}) > 1 and (may_differ or not in_order):
            numbers = ", ".join(str(one.number + 1) for one in now)
            was, is_now = (", ".join(levels) for levels in ((s.level for s in before), (one.shown for one in now)))
            wrong = "results of one query cannot be told apart, because no folder is known for them"
            observed = f"they had the levels {was}; results {numbers} have {is_now}"
            hint = "Run them in that order at those levels: results in folders are known by these then."
            raise CheckpointError(sentence("run", wrong, observed, hint))


def tracked(plan: Results, options: Options, written: Node | None = None) -> Results:
    """Return rewritten plans in which each result reads the sources on its track; ``written``: the plans before."""
    return choose_tracks(plan if written is None else as_results(written), options).over(plan)


__all__ = ["Track", "Tracks", "choose_tracks", "tracked"]
