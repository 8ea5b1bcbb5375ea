"""Write each operator as the calls of verbs that a user would write for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from streamq.choices import Anchor, JoinKind, LengthKind
from streamq.functions.dates import UNIX_MICROS
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Join,
    JoinTable,
    LastRows,
    Scan,
    Select,
    Source,
    TopK,
    ToSignal,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.lifetime_change import Length, Start
from streamq.operators.member_operator import BOUNDS
from streamq.patterns.detect import Detect
from streamq.plan.expr import Alias, Call, Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.passes import columns, rewrite_expression
from streamq.runtime.late_policies import DROP
from streamq.testing.program_text import (
    Unwritable,
    argument,
    call,
    column_lists,
    duration,
    expression,
    is_name,
    listed,
    named,
    one_or_more,
    string,
    value,
)
from streamq.testing.progress_policies import room_of as room_of_progress
from streamq.testing.sources.room import room_of as room_of_source
from streamq.testing.windows.room import room_of
from streamq.time import TIMESTAMP
from streamq.user_code.udso import StatefulOperator
from streamq.windows import Window

Names = Mapping[str, str]
"""The names of streams in the program, by the digest of their plan."""


def inputs(node: Node) -> tuple[Node, ...]:
    """Return the streams that a node's verbs read: its inputs or, for a select over a window, the window's inputs."""
    per_window = _per_window(node)
    if per_window is not None:
        return per_window.input.children
    return node.children[0].children if _selects_window(node) else node.children


def takes_all_by_name(node: Node) -> bool:
    """Return True if a node is written as a function of its inputs, and not as a verb of the first one."""
    return isinstance(node, Detect)


def verbs(node: Node, names: Names, tables: Names) -> list[str]:
    """Return the calls, such as ``.where(...)``, that build a node from its first input; for a source or a pattern one call.

    ``names`` are those of the streams by digest, ``tables`` the texts of tables by name. Raises Unwritable for a node that no
    verb builds. The calls may build another node, so the caller must evaluate and compare.
    """
    axis = node.schema.axis
    match node:
        case Source():
            return [_source(node, tables[node.table])]
        case Detect(conditions=()):
            types = [f"{name}={names[plan.digest]}" for name, plan in node.types.items() if is_name(name)]
            if len(types) < len(node.types):
                raise Unwritable("an event type whose name is not a legal name in Python")
            return [call("sq.cedr", [f'r"""\n{node.definitions.text}\n"""', *types])]
        case Where(predicate=predicate):
            return [call(".where", [expression(predicate)])]
        case Select(input=rows) if (per_window := _per_window(node)) is not None:
            keys = [string(k) for k in per_window.keys if k not in BOUNDS]
            *_, last = verbs(rows, names, tables)
            return [*([call(".group_by", keys)] if keys else []), ".per_window()", last]
        case Select(input=WindowAggregate() as window) if _selects_window(node):
            return [
                *_windowed(window.keys, window.window, window.clip, window.stamp, axis),
                _window_select(node, window),
            ]
        case Select():
            return [_select(node)]
        case Union(inputs=(_, *others)):
            return [call(".union", [names[o.digest] for o in others])]
        case AlterLifetime():
            return [_alter_lifetime(node)]
        case Join(right=right, on=on, how=how):
            kind = [] if how == JoinKind.INNER else [f"how={string(how)}"]
            return [call(".join", [names[right.digest], *_on(on), *_condition(node), *kind, *_suffixes(node)])]
        case WindowedJoin(right=right, on=on, window=window):
            arguments = [names[right.digest], *_on(on), *_grid(window, axis), *_condition(node), *_suffixes(node)]
            return [call(".windowed_join", arguments)]
        case Except(right=right):
            return [call(".except_", [names[right.digest]])]
        case Clip(by=by, on=on):
            return [call(".clip", [names[by.digest], *_on(on)])]
        case ToSignal(keys=keys, order_by=order):
            return [call(".to_signal", column_lists(key=keys, order_by=order))]
        case LastRows(keys=keys, window=window):
            _, arguments = room_of(window).written(window, axis)
            return [call(".last_rows", [*arguments, *([f"key={one_or_more(keys)}"] if keys else [])])]
        case Chop(period=period, offset=offset):
            return [call(".chop", [duration(n, axis) for n in ((period, offset) if offset else (period,))])]
        case DistinctIds(ids=ids, within=within):
            return [call(".distinct_ids", [f"within={duration(within, axis)}", f"id={one_or_more(ids)}"])]
        case Scan():
            return _scan(node)
        case JoinTable():
            return [_join_table(node, tables[node.table])]
        case WindowAggregate(keys=keys, window=window, aggregates=aggregates):
            arguments = _positional(aggregates, in_window=True)
            return [*_windowed(keys, window, node.clip, node.stamp, axis), call(".select", arguments)]
        case TopK(keys=keys, window=window, k=k, by=by, desc=desc, ties=ties):
            arguments = [str(k), f"by={named(by)}", *([] if desc else ["desc=False"])]
            arguments += [] if ties == "keep" else [f"ties={string(ties)}"]
            arguments += ["row_number=True"] if node.row_number else []
            return [*_windowed(keys, window, node.clip, node.stamp, axis), call(".top_k", arguments)]
    return [_plain_verb(node, names)]


def _plain_verb(node: Node, names: Names) -> str:
    """Return the call of a verb that is named like its room, with the node's fields after the first as arguments.

    Streams are passed by position, other fields by name.

    Raises Unwritable for a node with a field of another type.
    """
    arguments = []
    for field in fields(node)[1:]:
        value = getattr(node, field.name)
        match value:
            case Node():
                arguments.append(names[value.digest])
            case Expr():
                arguments.append(f"{field.name}={expression(value)}")
            case str() | int() | None:
                arguments.append(f"{field.name}={string(value) if isinstance(value, str) else repr(value)}")
            case (*parts,) if all(isinstance(part, str) for part in parts):
                arguments.append(f"{field.name}={one_or_more(parts)}")
            case _:
                raise Unwritable(type(node).__name__)
    return call(f".{type(node).__module__.rpartition('.')[2]}", arguments)


def _per_window(node: Node) -> WindowAggregate | TopK | None:
    """Return the operator of a ``per_window()`` if ``node`` is the select that drops its columns of window bounds; else None."""
    match node:
        case Select(input=rows) if not BOUNDS.keys() & set(node.schema.names):
            windows = rows.children[0] if _selects_window(rows) else rows
            if isinstance(windows, WindowAggregate | TopK) and BOUNDS.keys() <= set(windows.keys):
                return windows
    return None


def _selects_window(node: Node) -> bool:
    """True if a node is a select over a window whose aggregates have generated names, as ``select`` of a window builds it."""
    match node:
        case Select(input=WindowAggregate(aggregates=aggregates)):
            return any(name.startswith("__") for name, _ in aggregates)
    return False


def _is_keyword(name: str) -> bool:
    return is_name(name) and name != "self"


def _scan(node: Scan) -> list[str]:
    """Return the calls of ``group_by``, if the scan has keys, and of ``scan``, with the user's operator looked up by name.

    Raises Unwritable for the scan of a pattern.
    """
    operator = node.operator
    if not isinstance(operator, StatefulOperator):
        raise Unwritable("Scan of a pattern")
    arguments = [*map(named, node.args), *(f"{n}={value(v)}" for n, v in sorted(operator.options.items()))]
    arguments += [] if node.where is None else [f"where={expression(node.where)}"]
    applied = call(f"sq.modules.get({string(operator.name)})", arguments)
    grouped = [call(".group_by", [string(k) for k in node.keys])] if node.keys else []
    return [*grouped, call(".scan", [applied])]


# sources


def _source(node: Source, table: str) -> str:
    """Return the call that builds a source over a table, with the parts of its policy that are not the default."""
    axis, policy = node.schema.axis, node.policy
    head, own = room_of_source(node).written(node)
    arguments = [table, *own]
    arguments += [] if node.table.startswith("#") else [f"name={string(node.table)}"]
    usual = room_of_source(node).usual_progress
    arguments += (
        [] if policy.progress == usual else [f"progress={room_of_progress(node).written(policy.progress, axis)}"]
    )
    arguments += [] if policy.late is DROP else [f"late={string(policy.late.name)}"]
    arguments += [] if policy.invalid is None else [f"invalid={string(policy.invalid)}"]
    return call(head, arguments)


def _join_table(node: JoinTable, table: str) -> str:
    """Return the call that looks up a table; ``table`` is its text. Suffixes are there only if a name clashes."""
    ours = {n.lower() for n in node.input.schema.names}
    kind = [] if node.how == JoinKind.INNER else [f"how={string(node.how)}"]
    suffix = _suffix([(n, to) for n, to in node.names if n.lower() in ours])
    suffixes = [] if suffix is None else [f"suffixes={listed([string(''), string(suffix)], '()')}"]
    name = [] if node.table.startswith("#") else [f"name={string(node.table)}"]
    return call(".join_table", [table, *_on(node.on), *kind, *suffixes, *name])


# the payload


def _select(node: Select) -> str:
    """Return the call of ``with_columns`` if a select has all columns in place, some of them unchanged, and computes others.

    Otherwise, and if a computed column's name cannot be a keyword, it is the call of ``select``.
    """
    before, exprs = node.input.schema.names, dict(node.columns)
    unchanged = [n for n in before if n in exprs and _is_column(n, exprs[n])]
    names = tuple(n for n, _ in node.columns)
    more = [n for n in names if n not in unchanged]
    if names[: len(before)] == before and unchanged and more and all(map(_is_keyword, more)):
        return call(".with_columns", [f"{n}={argument(exprs[n])}" for n in more])
    return call(".select", _positional(node.columns))


def _positional(columns: Iterable[tuple[str, Expr]], in_window: bool = False) -> list[str]:
    """Return the arguments of a select in order: names and aliases first, then, from where all can be keywords, keywords.

    ``in_window``: it is the select of a window.
    """
    pairs = list(columns)
    # a positional argument cannot follow a keyword
    least = max((i + 1 for i, (name, _) in enumerate(pairs) if not _is_keyword(name)), default=0)
    while least < len(pairs) and _is_column(*pairs[least]):
        least += 1
    first = [string(n) if _is_column(n, e) else expression(Alias(e, n), None, in_window) for n, e in pairs[:least]]
    rest = [f"{n}={_keyword_value(e, in_window)}" for n, e in pairs[least:]]
    return first + rest


def _keyword_value(expr: Expr, in_window: bool) -> str:
    """Return the value of a keyword; a constant is written as a plain value, except a string in a window's ``select``."""
    is_plain = isinstance(expr, Lit) and not (in_window and isinstance(expr.value, str))
    return argument(expr) if is_plain else expression(expr, None, in_window)


def _is_column(name: str, expr: Expr) -> bool:
    return isinstance(expr, Col) and expr.name == name


# lifetimes


def _alter_lifetime(node: AlterLifetime) -> str:
    """Return the call of the most specific verb that builds a change of lifetimes; raise Unwritable if there is none."""
    axis = node.schema.axis
    match node.start, node.length:
        case Start(anchor="LE", expr=None, by=by), Length(kind="same", by=0):
            return call(".shift", [duration(by, axis)])
        case Start(anchor="LE", expr=None, by=0), Length(kind="same", by=by):
            return call(".extend", [duration(by, axis)])
        case Start(anchor="LE", expr=None, by=0), Length(kind="fixed", by=1):
            return call(".to_points", [])
        case Start(anchor="RE", expr=None, by=0), Length(kind="fixed", by=1):
            return call(".to_points_at_end", [])
        case Start(anchor="LE", expr=None, by=0), length:
            return call(".set_duration", [_length(length, axis)])
    start, length = node.start, node.length
    if start.by or (length.kind == LengthKind.SAME and length.by):
        raise Unwritable("a start and a duration that are both moved")
    if start.expr is not None and axis == TIMESTAMP:
        arguments = [f"start={expression(_instant(start.expr))}"]
    elif start.expr is not None:
        arguments = [f"start={expression(start.expr)}"]
    else:
        arguments = ["start=sq.end()"] if start.anchor == Anchor.RE else []
    arguments += [] if length.kind == LengthKind.SAME else [f"duration={_length(length, axis)}"]
    arguments += [] if start.within is None else [f"within={duration(start.within, axis)}"]
    return call(".alter_lifetime", arguments)


def _instant(ticks: Expr) -> Expr:
    """Return the instant whose ticks an expression computes; raise Unwritable for other expressions."""
    match ticks:
        case Call(function=function, args=(Expr() as at,)) if function == UNIX_MICROS:
            return at
    raise Unwritable("ticks that are not those of an instant")


def _length(length: Length, axis: str) -> str:
    """Return the text of a fixed or computed duration; raise Unwritable for one that depends on the event's own."""
    if length.kind == LengthKind.FIXED:
        return duration(length.by, axis)
    if length.kind != LengthKind.GIVEN or length.expr is None:
        raise Unwritable(length.kind)
    return expression(length.expr)


# two streams


def _on(on: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the argument ``on`` for pairs of columns; nothing if there are none."""
    if not on:
        return []
    if all(a == b for a, b in on):
        return [f"on={one_or_more(a for a, _ in on)}"]
    keys = [string(a) if a == b else f"({string(a)}, {string(b)})" for a, b in on]
    return [f"on={listed(keys)}"]


def _grid(window: Window, axis: str) -> list[str]:
    """Return the size of a windowed join's windows, the hop if it differs from the size, and the offset unless it is 0.

    Raises Unwritable for windows without a grid.
    """
    grid = next(room_of(window).grids(window), None)
    if grid is None:
        raise Unwritable(type(window).__name__)
    hop = [f"hop={duration(grid.hop, axis)}"] if grid.hop != grid.size else []
    offset = [f"offset={duration(grid.offset, axis)}"] if grid.offset else []
    return [f"size={duration(grid.size, axis)}", *hop, *offset]


def _condition(node: Join | WindowedJoin) -> list[str]:
    """Return a join's condition as the argument ``where``, a lambda of two events if it reads columns."""
    if node.where is None:
        return []
    if not columns(node.where):
        return [f"where={expression(node.where)}"]
    ours, theirs = ({to: n for n, to in names} for names in (node.left_names, node.right_names))

    def column(name: str) -> str:
        side, own = ("l", ours[name]) if name in ours else ("r", theirs[name])
        return f"{side}.{own}" if is_name(own) and not own.startswith("_") else f"{side}[{string(own)}]"

    return [f"where=lambda l, r: {expression(node.where, column)}"]


def _suffixes(node: Join | WindowedJoin) -> list[str]:
    """Return the argument ``suffixes``; nothing if no names clash, or if a semi or anti join has the usual suffixes."""
    lower = {n.lower() for n, _ in node.right_names}
    ours = [(n, to) for n, to in node.left_names if n.lower() in lower]
    clash = {n.lower() for n, _ in ours}
    one, two = _suffix(ours), _suffix([(n, to) for n, to in node.right_names if n.lower() in clash])
    usual = isinstance(node, Join) and node.how in ("semi", "anti") and (one, two) == ("", "__right")
    if one is None or two is None or usual:
        return []
    return [f"suffixes={listed([string(one), string(two)], '()')}"]


def _suffix(names: Iterable[tuple[str, str]]) -> str | None:
    """Return the suffix that the first of the names has got; None if there are no names."""
    return next((to.removeprefix(n) for n, to in names), None)


# windows


def _windowed(keys: tuple[str, ...], window: Window, clip: str, stamp: str, axis: str) -> list[str]:
    """Return the calls of ``group_by``, if there are keys, and of the window's verb; defaults are left out."""
    room = room_of(window)
    head, arguments = room.written(window, axis)
    arguments += [] if clip == room.usual_clip(window) else [f"clip_input={string(clip)}"]
    arguments += [] if stamp == room.usual_stamp else [f"stamp={string(stamp)}"]
    grouped = [call(".group_by", [string(k) for k in keys])] if keys else []
    return [*grouped, call(f".{head}_window", arguments)]


def _window_select(node: Select, window: WindowAggregate) -> str:
    """Return the call of a window's ``select``, with aggregates in place of their generated names, and without the keys."""
    aggregates = dict(window.aggregates)

    def aggregate_of(expr: Expr) -> Expr | None:
        return aggregates.get(expr.name) if isinstance(expr, Col) else None

    columns_after = node.columns[len(window.keys) :]
    return call(
        ".select", _positional([(n, rewrite_expression(e, aggregate_of)) for n, e in columns_after], in_window=True)
    )
