"""The plan of a user's operator over windows: an aggregate computes a list of rows a window, and explode unpacks it.

``select(operator) => explode(window(operator))``; if the operator sets lifetimes itself, ``alter_lifetime`` applies them.
"""

from __future__ import annotations

from dataclasses import replace

from streamq.choices import Anchor, ClipInput, LengthKind, Stamp
from streamq.errors import PlanError, sentence
from streamq.operators.alter_lifetime import AlterLifetime
from streamq.operators.explode import Explode
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.select import Select
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col
from streamq.plan.node import Node
from streamq.plan.passes import aggregates as aggregates_in
from streamq.plan.resolve import resolve
from streamq.plan.schema import check_names
from streamq.runtime.user_code.code_values import LASTS, START
from streamq.user_code.udo import OWN_LIFETIMES, UserOperator
from streamq.windows import Window

ROWS = "__rows"
"""The name of the column that holds the lists."""


def rows_of(
    applied: Aggregate, source: Node, keys: tuple[str, ...], window: Window, clip: ClipInput, asked_stamp: Stamp | None
) -> Node:
    """Return the plan of an operator's rows over windows.

    ``applied``: the call of the operator. ``asked_stamp``: the user's; None: the operator's default, or else the window's. Raises
    PlanError for a stamp that it cannot have, for an aggregate among its arguments, and for illegal names of its columns.
    """
    operator = applied.function
    assert isinstance(operator, UserOperator)
    stamp = asked_stamp or operator.default_stamp or window.default_stamp
    if stamp in OWN_LIFETIMES and not operator.time_sensitive:
        wrong, hint = (
            f"stamp {stamp!r} is for operators that give their own lifetimes",
            "Declare it time_sensitive=True.",
        )
        raise PlanError(sentence(operator.name, wrong, "it is not time-sensitive", hint))
    if stamp is Stamp.TIME_BOUND and "time_bound" not in operator.properties:
        hint = "Declare it: properties=[sq.time_bound]."
        raise PlanError(
            sentence(operator.name, "stamp 'time_bound' is a promise of the operator", "it makes none", hint)
        )
    check_names([*(k for k in keys if not k.startswith("__")), *(f.name for f in operator.fields)], operator.name)
    bare = resolve(replace(applied, options=(str(stamp), *applied.options[1:])), source, operator.name)
    assert isinstance(bare, Aggregate)
    if any(aggregates_in(part) for part in bare.children):
        raise PlanError(sentence(operator.name, "an aggregate of an aggregate", "", "Put a window over the window."))
    on_window = Stamp.ALIGN if stamp in (Stamp.UNCHANGED, Stamp.CLIP) else stamp
    lists = WindowAggregate(source, keys, window, ((ROWS, bare),), clip, on_window)
    rows: Node = Explode(lists, ROWS, flatten=True)
    if stamp not in OWN_LIFETIMES:
        return rows
    with_lifetimes = AlterLifetime(
        rows, Start(Anchor.GIVEN, expr=Col(START), within=0), Length(LengthKind.GIVEN, expr=Col(LASTS))
    )
    names = [*keys, *(f.name for f in operator.fields)]
    return Select(with_lifetimes, tuple((name, Col(name)) for name in names))


__all__ = ["ROWS", "rows_of"]
