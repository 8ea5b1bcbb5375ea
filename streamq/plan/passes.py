"""Passes over expressions: questions about a whole tree, rewriting of trees, and their types over a stream, by Spark's rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark, PlanError, TypeMismatch
from streamq.plan.aggregate import Aggregate, AggregateFunction
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit, Opaque, fold, show
from streamq.plan.function import Function, Operand, UnfitOperands, called
from streamq.plan.hints import ON_SPARK, for_aggregate, for_spark_alone
from streamq.plan.lowering import to_spark
from streamq.plan.schema import Schema, carried_key, quote
from streamq.plan.spark_types import literal_type, wider

T = TypeVar("T")


class _Answers:
    """The answers of passes so far, by their questions, within a context that keeps them; None in others."""

    def __init__(self) -> None:
        self.by_question: ContextVar[dict[Hashable, Any] | None] = ContextVar("answers", default=None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to workers empty."""
        return _Answers, ()


_answers = _Answers()


@contextmanager
def answers_kept() -> Iterator[None]:
    """Keep the answers of passes, those from around it included: a filter that goes down asks again at each operator."""
    outer = _answers.by_question.get()
    token = _answers.by_question.set({} if outer is None else outer)
    try:
        yield
    finally:
        _answers.by_question.reset(token)


def kept_answer(question: Hashable, compute: Callable[[], T]) -> T:
    """Return the answer to a question, which names the pass and the digests that it is about: one that is kept, or a new one."""
    answers = _answers.by_question.get()
    if answers is None:
        return compute()
    if question not in answers:
        answers[question] = compute()
    answer: T = answers[question]
    return answer


def expression_nodes(root: Expr) -> tuple[Expr, ...]:
    """Return every distinct node, children first."""
    if not root.children:
        return (root,)

    def in_order() -> tuple[Expr, ...]:
        visited: list[Expr] = []
        fold(root, lambda node, _: visited.append(node))
        return tuple(visited)

    return kept_answer(("nodes", root.digest), in_order)


def columns(root: Expr) -> frozenset[str]:
    """Return the names of the payload columns that an expression reads."""
    return kept_answer(
        ("columns", root.digest), lambda: frozenset(n.name for n in expression_nodes(root) if isinstance(n, Col))
    )


def rewrite_expression(root: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: ``change`` is called with each node over its rewritten operands, and returns None to keep it."""

    def visit(node: Expr, parts: list[Expr]) -> Expr:
        old = node.children
        again = node if all(a is b for a, b in zip(old, parts, strict=True)) else node.with_children(parts)
        changed = change(again)
        return again if changed is None else changed

    return fold(root, visit)


def substitute(root: Expr, by: Mapping[str, Expr]) -> Expr:
    """Replace payload columns by the expressions ``by`` has for them; return the tree itself if each is replaced by itself."""
    others = {name: new for name, new in by.items() if not (isinstance(new, Col) and new.name == name)}
    if not others:
        return root
    return rewrite_expression(root, lambda n: others.get(n.name) if isinstance(n, Col) else None)


def reads_lifetime(root: Expr, *parts: str) -> bool:
    """True if the tree reads one of these parts of the lifetime (any part, if none is named)."""
    if isinstance(root, Col):
        return False
    read = kept_answer(
        ("lifetime", root.digest), lambda: {n.part for n in expression_nodes(root) if isinstance(n, Lifetime)}
    )
    return not read.isdisjoint(parts) if parts else bool(read)


def reads_end(root: Expr) -> bool:
    """True if the tree reads RE, which a retraction may still move, or may read it in a pyspark Column."""
    return reads_lifetime(root, "end", "duration") or is_opaque(root)


def is_opaque(root: Expr) -> bool:
    """True if the tree contains a pyspark Column, so that the columns it reads are unknown."""
    return any(isinstance(n, Opaque) for n in expression_nodes(root))


def calls_python(root: Expr) -> bool:
    """True if Spark calls Python for a part of the expression."""
    return any(isinstance(n, Call) and n.function.in_python for n in expression_nodes(root))


def set_aside_by(root: Expr) -> tuple[Call, ...]:
    """Return the calls in an expression over events that set aside the events they fail for."""
    if not root.children:
        return ()
    return kept_answer(
        ("set aside", root.digest),
        lambda: tuple(n for n in expression_nodes(root) if isinstance(n, Call) and n.function.sets_aside),
    )


def functions(root: Expr) -> list[Function | AggregateFunction]:
    """Return the functions and aggregate functions that a tree calls, children first."""
    return [n.function for n in expression_nodes(root) if isinstance(n, Call | Aggregate)]


def aggregates(root: Expr) -> list[Aggregate]:
    """Return the aggregates in a tree, children first."""
    return [n for n in expression_nodes(root) if isinstance(n, Aggregate)]


def show_to_user(root: Expr) -> str:
    """Show an expression like :func:`show`, but a column of a partial result as ``sum(...)``, one of a group's key as the key."""

    def described(node: Expr) -> Expr | None:
        if not isinstance(node, Col) or not node.name.startswith("__"):
            return None
        if (key := carried_key(node.name)) is not None:
            return Col(key)
        own = _OWN.fullmatch(node.name)
        kind, part = own.groups() if own else ("value", None)
        return Col({None: kind or "count", "n": "count", "mean": "avg"}.get(part, "var") + "(...)")

    return show(rewrite_expression(root, described))


_OWN = re.compile(r"__(?:n|([a-z_]+?)(?:\d+|_[0-9a-f]{8}(?:~\d+)?)(?:__([a-z0-9]+))?)")
"""Names of internal aggregates: ``__n``, ``__sum0``, ``__sum_1a2b3c4d``, ``__sum_1a2b3c4d__n``."""


def infer(expr: Expr, schema: Schema, verb: str) -> DataType:
    """Return the type of an expression over a stream, by Spark's rules.

    Plain operators and common functions are typed without a session; for anything else the active
    SparkSession is asked. Raises UnknownColumn, TypeMismatch, PlanError for an aggregate, and NeedsSpark without an active
    session.
    """
    kind = types(expr, schema, verb)[expr.digest]
    return kind if kind is not None else _ask_spark(expr, schema, verb)


def check_boolean(expr: Expr, schema: Schema, verb: str, what: str, shown: str = "", hint: str = "") -> None:
    """Raise TypeMismatch, beside the errors of :func:`infer`, for a condition over a stream that is not boolean.

    ``what`` names it in the message; ``shown``: the text that contains it there, by default its own.
    """
    kind = infer(expr, schema, verb)
    if not isinstance(kind, t.BooleanType | t.NullType):
        where = f"found {kind.simpleString()} in {shown or show(expr)}"
        raise TypeMismatch(verb, f"{what} is not boolean", where, hint)


def types(expr: Expr, schema: Schema, verb: str) -> dict[str, DataType | None]:
    """Return the type of every node by its digest, without a session; None where only Spark knows it.

    Raises UnknownColumn, TypeMismatch and PlanError for what is wrong whatever Spark says.
    """
    if isinstance(expr, Col):
        return {expr.digest: schema.require(expr.name, verb)}

    def inferred() -> dict[str, DataType | None]:
        by_digest: dict[str, DataType | None] = {}

        def visit(node: Expr, parts: list[DataType | None]) -> DataType | None:
            by_digest[node.digest] = kind = _type(node, parts, schema, verb)
            return kind

        fold(expr, visit)
        return by_digest

    return kept_answer(("types", expr.digest, *types_read(expr, schema)), inferred)


def types_read(expr: Expr, schema: Schema) -> tuple[Hashable, ...]:
    """Return what the types of an expression's parts depend on: the types of the columns that it reads, and the axis.

    They are equal over wide schemas that differ in other columns.
    """
    read = sorted(columns(expr))
    try:
        return schema.axis, *((name, schema.type_of(name)) for name in read)
    except KeyError:
        return (schema.digest,)


def _type(node: Expr, parts: list[DataType | None], schema: Schema, verb: str) -> DataType | None:
    """Return the type of a node from those of its operands, ``parts``; None where only Spark knows it.

    Raises UnknownColumn, TypeMismatch for operands that do not fit, and PlanError for an aggregate.
    """
    match node:
        case Col(name=name):
            return schema.require(name, verb)
        case Lit(value=value, type=kind):
            return kind or literal_type(value)
        case Call():
            return _call_type(node, parts, verb)
        case Lifetime(part="duration"):
            return t.LongType()
        case Lifetime():
            return schema.axis_type
        case Alias():
            return parts[0]
        case Cast(type=to):
            return to
        case Opaque():
            return None
        case Case():
            return _case_type(node, parts, verb)
        case Aggregate():
            raise PlanError(
                verb,
                "an aggregate outside a window's select",
                f"found {show_to_user(node)}",
                (
                    "Make a window first: s.tumbling_window(...).select(...); for results of windows s.per_window().select(...), "
                    "for last rows s.snapshot_window().select(...)."
                ),
            )
    raise AssertionError(type(node))


def _case_type(node: Case, parts: list[DataType | None], verb: str) -> DataType | None:
    """Return the common type of a CASE's values; None where Spark must be asked.

    Raises TypeMismatch for a condition that is not boolean.
    """
    for condition in parts[:-1:2]:
        if condition is not None and not isinstance(condition, t.BooleanType | t.NullType):
            where = f"found {condition.simpleString()} in {show_to_user(node)}"
            raise TypeMismatch(verb, "a condition that is not boolean", where)
    common: DataType | None = t.NullType()
    for value in (*parts[1:-1:2], parts[-1]):
        common = wider(common, value) if common is not None and value is not None else None
    return common


def _call_type(node: Call, parts: list[DataType | None], verb: str) -> DataType | None:
    """Return the type of a call; None where Spark must be asked. Raises TypeMismatch for operands that do not fit."""
    try:
        return node.function.result_type(operands_of(node, parts))
    except UnfitOperands as unfit:
        shown = show_to_user(node)
        where = f"found {shown}" if unfit.kind is None else f"found {unfit.kind.simpleString()} in {shown}"
        raise TypeMismatch(verb, unfit.wrong, where, unfit.hint) from None


def operands_of(node: Call, kinds: Sequence[DataType | None], any_literal: bool = False) -> list[Operand]:
    """Return the operands of a call from the types of its expressions, without the arguments omitted at the end (None).

    Plain arguments are constants. A literal is one where its type is the value's own; ``any_literal``: in any type.
    """
    operands = []
    for argument, kind in zip(leading_arguments(node), node.arguments(kinds), strict=False):
        if not isinstance(argument, Expr):
            operands.append(Operand(literal_type(argument), argument))
        elif isinstance(argument, Lit) and (any_literal or argument.type is None):
            operands.append(Operand(kind, argument.value))
        else:
            operands.append(Operand(kind))
    return operands


def leading_arguments(node: Call) -> Sequence[Any]:
    """Return the arguments up to the last that is not None, as Spark's function takes them."""
    count = len(node.args)
    while count and node.args[count - 1] is None:
        count -= 1
    return node.args[:count]


class _FrameColumns:
    """Columns of a DataFrame that has the schema's own names."""

    def __init__(self, schema: Schema):
        self.schema = schema

    def column(self, name: str) -> Any:
        return F.col(quote(name))

    def lifetime(self, part: str) -> Any:
        return F.lit(None).cast(t.LongType() if part == "duration" else self.schema.axis_type)


def _ask_spark(expr: Expr, schema: Schema, verb: str) -> DataType:
    """Return the type that Spark's analyser gives an expression; raise TypeMismatch, with a hint, where Spark refuses it.

    Raises NeedsSpark if no session is active.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise _needs_spark(expr, schema, verb)
    empty = spark.createDataFrame([], t.StructType([t.StructField(f.name, f.type) for f in schema.fields]))
    try:
        value = to_spark(expr, _FrameColumns(schema))
        kind = empty.select(value.alias("x")).schema["x"].dataType
        if is_opaque(expr):
            # a filter takes no aggregate, window function or generator; it is analysed here, and not run
            _ = empty.where(value.isNull()).schema
        return kind
    except AnalysisException as error:
        shown = show_to_user(expr)
        read = next((name for name in schema.consumed if re.search(rf"\b{re.escape(name)}\b", shown)), None)
        if read is not None and (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            now = f"The source has read column {read!r}: {schema.consumed[read]}."
            raise TypeMismatch(verb, f"no column {read!r}", f"found {shown}", now) from error
        hint = for_aggregate(shown)
        if hint or (error.getCondition() or "").startswith(_OF_OTHER_ROWS):
            wrong = "a pyspark Column that is no value of one event"
            raise TypeMismatch(verb, wrong, f"found {shown}", hint or _OTHER_ROWS) from error
        raise TypeMismatch(verb, f"Spark refuses {shown}", str(error).strip().splitlines()[0]) from error


def _needs_spark(expr: Expr, schema: Schema, verb: str) -> NeedsSpark:
    """Return the error for an expression that needs Spark while no session is active; it names the part that needs it."""
    kinds = types(expr, schema, verb)
    is_cause = (
        n for n in expression_nodes(expr) if kinds[n.digest] is None and all(kinds[c.digest] for c in n.children)
    )
    cause = next(is_cause)
    match cause:
        case Call(function=function) if function.arrow is None:
            wrong, hint = (
                f"{called(function)} runs on Spark alone, and no session is active",
                for_spark_alone(function.name),
            )
        case Case():
            wrong, hint = "values of several types in one column", "Cast them to one type."
        case _:
            wrong = "only Spark knows the type of this expression, and no session is active"
            hint = f"Cast its operands; or {ON_SPARK}."
    return NeedsSpark(verb, wrong, f"found {show_to_user(cause)}", hint)


_OF_OTHER_ROWS = ("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED", "UNSUPPORTED_GENERATOR", "MISSING_GROUP_BY")
"""The beginnings of Spark's error conditions for expressions in a filter that are not computed from one row."""
_OTHER_ROWS = (
    "Aggregates and window functions are the windows' of a stream; what makes several rows belongs to the source."
)
