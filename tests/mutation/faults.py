"""Faults of a module, one at a time, as edits of its text: those that rules make, and those of ``faults.toml``.

Rules change comparisons, bounds, the handling of NULL, and operands.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

COMPARISONS: dict[type[ast.cmpop], tuple[str, str, int]] = {
    ast.Lt: (r"<", "<=", -1),
    ast.LtE: (r"<=", "<", 1),
    ast.Gt: (r">", ">=", 1),
    ast.GtE: (r">=", ">", -1),
    ast.Eq: (r"==", "!=", 0),
    ast.NotEq: (r"!=", "==", 0),
    ast.Is: (r"is", "is not", 0),
    ast.IsNot: (r"is\s+not", "is", 0),
    ast.In: (r"in", "not in", 0),
    ast.NotIn: (r"not\s+in", "in", 0),
}
"""Per operator its text, what stands there instead, and the tick by which its bound moves the other way."""

NAMES = {
    "less": "less_equal",
    "less_equal": "less",
    "greater": "greater_equal",
    "greater_equal": "greater",
    "equal": "not_equal",
    "not_equal": "equal",
    "and_": "or_",
    "or_": "and_",
    "minimum": "maximum",
    "maximum": "minimum",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "is_null": "is_valid",
    "is_valid": "is_null",
    "argmin": "argmax",
    "argmax": "argmin",
}
"""Functions of Python, numpy and Arrow that are called in each other's place."""

WORDS = {"left": "right", "right": "left", "min": "max", "max": "min", "ascending": "descending", "only_valid": "all"}
"""Arguments that stand in each other's place: sides of a search, functions by name, orders, what is counted."""

OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}

SYMMETRIC = frozenset(
    ("minimum", "maximum", "min", "max", "and_", "or_", "equal", "not_equal", "add", "multiply", "isinstance", "range")
)
"""Functions whose arguments may be swapped, or cannot be confused."""

DROPPED_KEYWORDS = frozenset(("null_encoding", "mask", "initial", "side"))
"""Arguments that say what stands for nothing: a NULL, no rows, the end of a search."""


@dataclass(frozen=True)
class Fault:
    """One edit of a module.

    ``file`` is its path below the project; ``function`` the qualified name of the function ("" outside of any); ``statement``
    the line at which the statement begins, ``line`` the one that is changed; ``before`` and ``after`` are the lines as they
    are and as the fault has them; ``source`` is the whole module with the fault. One of the table has a ``query`` that must show
    it, ``what`` is its name, and ``spark`` says whether only Spark runs it.
    """

    file: str
    function: str
    statement: int
    line: int
    column: int
    what: str
    before: str
    after: str
    source: str
    query: str = ""
    spark: bool = False

    @property
    def module(self) -> str:
        """The name by which the module is imported."""
        return self.file.removesuffix(".py").replace("/", ".")

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.what})\n  - {self.before}\n  + {self.after}"


Edits = list[tuple[int, int, str]]
"""Parts of a text, from and to, and what stands there instead."""


class Text:
    """The source of a module, and where its nodes stand in it."""

    def __init__(self, file: str, source: str):
        self.file, self.source = file, source

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def _at(self, line: int, column: int) -> int:
        start = self._starts[line - 1]
        # columns are counted in bytes of UTF-8
        prefix = self.source[start : self._starts[line]].encode()[:column]
        return start + len(prefix.decode())

    def start(self, node: ast.expr | ast.keyword) -> int:
        return self._at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr) -> str:
        return self.source[self.start(node) : self.end(node)]

    def fault(self, function: str, statement: int, what: str, edits: Edits) -> Fault:
        """The module with those edits."""
        edits = sorted(edits)
        source, low, high = self.source, edits[0][0], edits[-1][1]
        for start, end, text in reversed(edits):
            source = source[:start] + text + source[end:]
        first = self.source.rfind("\n", 0, low) + 1
        last = self.source.find("\n", high)
        grown = len(source) - len(self.source)
        line = self.source.count("\n", 0, low) + 1
        before, after = (" ".join(s.split()) for s in (self.source[first:last], source[first : last + grown]))
        return Fault(self.file, function, statement, line, low - first, what, before, after, source)


def faults_of(file: str, source: str | None = None) -> list[Fault]:
    """Every fault that can be planted in a module, in the order of its lines."""
    text = Text(file, (ROOT / file).read_text(encoding="utf-8") if source is None else source)
    planted = _Planter(text)
    planted.visit(ast.parse(text.source))
    unique = {fault.source: fault for fault in planted.faults}
    return sorted(unique.values(), key=lambda fault: (fault.line, fault.column, fault.what))


def read_table() -> dict[str, dict[str, Any]]:
    """Return the entries of ``faults.toml`` by name."""
    return tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))


def faults_of_table() -> list[Fault]:
    """The faults of ``faults.toml``; raise ValueError for one whose text does not stand in its file exactly once."""
    faults = []
    for name, entry in read_table().items():
        file, (before, after) = f"streamq/{entry['file']}", entry["edit"]
        source = (ROOT / file).read_text(encoding="utf-8")
        if source.count(before) != 1:
            raise ValueError(f"{name}: {file} has {before!r} {source.count(before)} times")
        line = source.count("\n", 0, source.index(before)) + 1
        changed = source.replace(before, after)
        spark = entry.get("spark", False)
        faults.append(Fault(file, "", line, line, 0, name, before, after, changed, entry["query"], spark))
    return faults


class _Planter(ast.NodeVisitor):
    """Collects the faults of a module, with the function and the statement in which each stands."""

    def __init__(self, text: Text):
        self.text = text
        self.faults: list[Fault] = []
        self.names: list[str] = []
        self.in_function = 0
        self.statement = 1

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self.statement = node.lineno
        if isinstance(node, ast.expr):
            for what, edits in _edits(self.text, node):
                function = ".".join(self.names) if self.in_function else ""
                self.faults.append(self.text.fault(function, self.statement, what, edits))
        statement = self.statement
        super().visit(node)
        self.statement = statement

    def _enter(self, node: ast.FunctionDef | ast.ClassDef, inside: Sequence[ast.AST], is_function: bool) -> None:
        self.names.append(node.name)
        self.in_function += is_function
        for child in inside:
            self.visit(child)
        self.in_function -= is_function
        self.names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._enter(node, node.body, True)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node, node.body, False)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        operator = OPERATORS.get(type(node.op))
        if operator is not None:
            start, end = self.text.end(node.target), self.text.start(node.value)
            edits = _replaced(self.text, start, end, re.escape(operator[0]), operator[1])
            function = ".".join(self.names) if self.in_function else ""
            self.faults.append(self.text.fault(function, self.statement, f"{operator[1]}= for {operator[0]}=", edits))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        # comparisons and negations are changed where they stand
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            edits = [(self.text.start(test), self.text.end(test), f"not ({self.text.of(test)})")]
            function = ".".join(self.names) if self.in_function else ""
            self.faults.append(self.text.fault(function, self.statement, "condition negated", edits))

    # what says nothing of the answer: messages, the parts of text, types

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        pass


Changes = Iterator[tuple[str, Edits]]


def _edits(text: Text, node: ast.expr) -> Changes:
    match node:
        case ast.Compare():
            yield from _of_comparison(text, node)
        case ast.BoolOp():
            yield from _of_connective(text, node)
        case ast.BinOp():
            yield from _of_operation(text, node)
        case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub(), operand) if not isinstance(operand, ast.Constant):
            operator = _replaced(text, text.start(node), text.start(operand), r"not\s+|[~-]", "")
            yield "negation dropped", operator
        case ast.Call():
            yield from _of_call(text, node)


def _of_comparison(text: Text, node: ast.Compare) -> Changes:
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        pattern, instead, tick = COMPARISONS[type(op)]
        edits = _replaced(text, text.end(left), text.start(right), pattern, instead)
        yield f"{instead} for {pattern.replace(chr(92) + 's+', ' ')}", edits
        if tick and not _is_endless(right):
            yield "bound off by one", [(text.start(right), text.end(right), f"({text.of(right)}) {_signed(tick)}")]
        left = right


def _is_endless(node: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id in ("INFINITY", "FIRST_INSTANT", "MINUS_INFINITY") for n in ast.walk(node)
    )


def _signed(tick: int) -> str:
    return f"{'+' if tick > 0 else '-'} {abs(tick)}"


def _of_connective(text: Text, node: ast.BoolOp) -> Changes:
    word, instead = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    edits: Edits = []
    for left, right in zip(node.values, node.values[1:], strict=False):
        edits += _replaced(text, text.end(left), text.start(right), rf"\b{word}\b", instead)
    yield f"{instead} for {word}", edits


def _of_operation(text: Text, node: ast.BinOp) -> Changes:
    operator = OPERATORS.get(type(node.op))
    if operator is None or _is_text(node.left) or _is_text(node.right):
        return
    between = text.end(node.left), text.start(node.right)
    match node.op, node.right:
        case ((ast.Add() | ast.Sub()), ast.Constant(value=1)):
            # brackets that close behind the left operand stay
            edits = _replaced(text, *between, r"\s*" + re.escape(operator[0]) + r"\s*", "")
            yield "off by one", [*edits, (text.start(node.right), text.end(node.right), "")]
            return
    yield f"{operator[1]} for {operator[0]}", _replaced(text, *between, re.escape(operator[0]), operator[1])
    if isinstance(node.op, ast.Sub):
        left, right = text.of(node.left), text.of(node.right)
        yield "operands swapped", _swapped(text, node.left, node.right, left, right)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.Tuple | ast.List) or (
        isinstance(node, ast.Constant) and not isinstance(node.value, int | float)
    )


def _swapped(text: Text, one: ast.expr, other: ast.expr, left: str, right: str) -> Edits:
    # brackets around the left operand belong to its place
    return [(text.start(one), text.end(one), f"({right})"), (text.start(other), text.end(other), f"({left})")]


def _of_call(text: Text, node: ast.Call) -> Changes:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    end = text.end(node.func)
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Attribute):
        # np.minimum.at, np.maximum.accumulate
        inner = node.func.value
        if inner.attr in NAMES:
            at = text.end(inner)
            yield f"{NAMES[inner.attr]} for {inner.attr}", [(at - len(inner.attr), at, NAMES[inner.attr])]
    if name in NAMES:
        yield f"{NAMES[name]} for {name}", [(end - len(name), end, NAMES[name])]
    for word in (*node.args, *(k.value for k in node.keywords)):
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value in WORDS:
            yield f"{WORDS[word.value]} for {word.value}", [(text.start(word), text.end(word), repr(WORDS[word.value]))]
    if name == "searchsorted" and len(node.args) == 2 and not node.keywords:
        at = text.end(node.args[-1])
        yield "right for left", [(at, at, ', side="right"')]
    yield from _of_nulls(text, node, name)
    if name in ("saturating", "saturating_add"):
        a, b = node.args
        yield "not saturating", [(text.start(node), text.end(node), f"(({text.of(a)}) + ({text.of(b)}))")]
    if len(node.args) >= 2 and name not in SYMMETRIC:
        one, other = node.args[-2:]
        if name == "lexsort":
            return
        if type(one) is type(other) and not (_is_fixed(one) or _is_fixed(other)) and text.of(one) != text.of(other):
            yield (
                "arguments swapped",
                [
                    (text.start(one), text.end(one), text.of(other)),
                    (text.start(other), text.end(other), text.of(one)),
                ],
            )


def _is_fixed(node: ast.expr) -> bool:
    """A constant, the name of one, or a type: nothing that a mistake would put elsewhere."""
    if isinstance(node, ast.Name):
        return node.id.isupper() or node.id in ("bool", "int", "str", "float")
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id in ("np", "pa", "pc")
    return isinstance(node, ast.Constant | ast.Starred | ast.Lambda)


def _of_nulls(text: Text, node: ast.Call, name: str) -> Changes:
    start, end = text.start(node), text.end(node)
    if name == "fill_null":
        filled = node.args[0] if len(node.args) == 2 else node.func
        value = filled if len(node.args) == 2 or not isinstance(filled, ast.Attribute) else filled.value
        yield "NULLs not filled", [(start, end, f"({text.of(value)})")]
    if name == "is_null":
        yield "never NULL", [(start, end, f"__import__('pyarrow.compute').compute.and_({text.of(node)}, False)")]
    if name == "isnan":
        yield "never NaN", [(start, end, f"({text.of(node)} & False)")]
    for keyword in node.keywords:
        value = keyword.value
        if keyword.arg == "min_count":
            yield "sum of nothing is zero", [(text.start(value), text.end(value), "0")]
        if keyword.arg in DROPPED_KEYWORDS:
            yield f"without {keyword.arg}", [_argument(text, node, keyword)]


def _argument(text: Text, call: ast.Call, keyword: ast.keyword) -> tuple[int, int, str]:
    """An argument left out, with the comma before it, or behind it if it is the first."""
    before: list[ast.expr] = [*call.args, *(k.value for k in call.keywords[: call.keywords.index(keyword)])]
    rest = call.keywords[call.keywords.index(keyword) + 1 :]
    start, end = text.start(keyword), text.end(keyword)
    if before:
        return text.source.index(",", text.end(before[-1])), end, ""
    return start, text.start(rest[0]) if rest else end, ""


def _replaced(text: Text, start: int, end: int, pattern: str, instead: str) -> Edits:
    """The operator between two operands, which may stand in brackets."""
    found = re.search(pattern, text.source[start:end])
    assert found is not None, text.source[start:end]
    return [(start + found.start(), start + found.end(), instead)]


__all__ = ["ROOT", "Fault", "faults_of", "faults_of_table", "read_table"]
