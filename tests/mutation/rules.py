"""Mistakes in the laws by which plans are rewritten: side conditions left out, parts lost on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamq.compiler.rules import RULES, prune_columns, push_where_below_window
from streamq.operators import AlterLifetime, Select, Union, Where, WindowAggregate
from streamq.plan.passes import columns
from streamq.testing import execution
from streamq.windows import Hopping
from tests.mutation.mutant import FAILS, Edit, Mutant, wrapped

SPANS = "streamq/runtime/window_spans.py"
SHARED = "streamq/compiler/partial_sets.py"
RULE = "streamq/compiler/rules"


def changed(name: str, law: Any) -> tuple[Any, str, Any]:
    """A law instead of the one of that name, wherever cases are run."""

    def wrong(node: Any) -> Any:
        return law(next(rule for rule in RULES if rule.name == name).function, node)

    wrong.__name__ = name
    return execution, "RULES", tuple(replace(r, function=wrong) if r.name == name else r for r in RULES)


def any_column_below(right: Any, below: WindowAggregate, part: Any) -> str | None:
    there = columns(part) <= set(below.input.schema.names)
    return None if there and not below.input.traits.infinite else right(below, part)


def endless_below(right: Any, below: WindowAggregate, part: Any) -> str | None:
    obstacle: str | None = right(below, part)
    return None if obstacle and obstacle.startswith("events may never end") else obstacle


def first_branch_only(right: Any, node: Any) -> Any:
    made = right(node)
    if not isinstance(made, Union):
        return made
    wrong = replace(made, inputs=made.inputs[:1] * len(made.inputs))
    return wrong if wrong.schema == made.schema else made


def remainder_dropped(right: Any, node: Any) -> Any:
    match node:
        case WindowAggregate(window=Hopping(size, hop) as grid) if size > hop:
            return right(replace(node, window=replace(grid, size=size // hop * hop)))
    return right(node)


def on_their_hops(right: Any, node: Any) -> Any:
    rewritten = right(node)
    match rewritten:
        case Select(AlterLifetime(rows), columns):
            return Select(rows, columns)
    return rewritten


def filters_not_asked(right: Any, node: Any, wheres: Any) -> Any:
    return right(node, [])


def not_inlined(right: Any, node: Any) -> Any:
    made = right(node)
    match node, made:
        case Where(Select(), p), Select(Where(source, _), x) if columns(p) <= set(source.schema.names):
            return Select(Where(source, p), x)
    return made


MUTANTS = (
    Mutant(
        "filter below a window over no key",
        "a filter on an aggregate goes below the window where a column has its name",
        "filtered sum",
        (wrapped(push_where_below_window, "_obstacle", any_column_below),),
    ),
    Mutant(
        "filter on keys below windows of endless events",
        "a filter on keys goes below windows whose last one depends on the events of all keys",
        "filtered keys",
        (wrapped(push_where_below_window, "_obstacle", endless_below),),
    ),
    Mutant(
        "branch of a union lost",
        "a projection over a union is pushed into its first branch, which then stands for all",
        "union",
        (changed("push_select_below_union", first_branch_only),),
    ),
    Mutant(
        "remainder of basic windows dropped",
        "a window that its hop does not divide is made of whole hops",
        "hopping over points",
        (changed("split_basic_windows", remainder_dropped),),
    ),
    Mutant(
        "results of pairs on hops",
        "the results of a window's pairs live on the hop that stands for the window",
        "pairs by window",
        (changed("pair_basic_windows", on_their_hops),),
    ),
    Mutant(
        "last window of pairs lost",
        "a span ends where the last window of its event starts",
        "pairs by window",
        edits=(Edit(SPANS, "-(self.grid.offset + 1)", "-(self.grid.offset + 1 + self.grid.hop)"),),
    ),
    Mutant(
        "progress into windows of pairs",
        "progress is that of the events, though spans begin before them",
        "pairs by window",
        edits=(Edit(SPANS, "self.start(t, INTEGERS))", "t)"),),
    ),
    Mutant(
        "sum of another column shared",
        "windows that share partial results have one sum, that of the first column",
        "shared windows",
        edits=(Edit(SHARED, "if replace(renamed, name=held.name) == held", "if type(renamed) is type(held)"),),
    ),
    Mutant(
        "column of a filter pruned",
        "a column that only a filter reads is left out at the source",
        "filtered",
        (wrapped(prune_columns, "columns_read", filters_not_asked),),
        FAILS,
    ),
    Mutant(
        "filter below a select not restated",
        "a filter goes below a projection without what its columns stand for there",
        "filtered",
        (changed("push_where_below_select", not_inlined),),
    ),
    Mutant(
        "swapped columns dropped",
        "a select that returns other columns under the names of its input is removed",
        "swapped",
        edits=(Edit(f"{RULE}/drop_identity_select.py", "isinstance(e, Col) and e.name == name", "isinstance(e, Col)"),),
    ),
    Mutant(
        "second filter may fail",
        "a filter that can fail is merged with the one below, and fails on rows where that is NULL",
        "inverse of the rising",
        edits=(Edit(f"{RULE}/merge_wheres.py", "if can_fail(q, source.schema):", "if False:"),),
        breaks=FAILS,
    ),
    Mutant(
        "filter between aggregates lost",
        "with the aggregates that nobody reads, the filter above the windows is left out",
        "total where most is high",
        edits=(Edit(f"{RULE}/prune_aggregates.py", "return refilter(node, wheres,", "return refilter(node, [],"),),
    ),
    Mutant(
        "filter on new lifetimes below their change",
        "a filter that reads the lifetime goes below the operator that changes it, and reads the former one",
        "long when extended",
        edits=(Edit(f"{RULE}/push_where_below_alter_lifetime.py", "if reads_lifetime(part):", "if False:"),),
    ),
    Mutant(
        "one branch of a union filtered",
        "a filter over a union goes into its first branch only",
        "filtered union",
        edits=(
            Edit(
                f"{RULE}/push_where_below_union.py",
                "tuple(Where(source, p) for source in inputs)",
                "(Where(inputs[0], p), *inputs[1:])",
            ),
        ),
    ),
)
