"""Which queries reach which lines: every statement of the targets notes that it runs, while cases of each query do."""

from __future__ import annotations

import ast
import builtins
import importlib
from collections import Counter
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from tests.mutation.faults import ROOT

PROBE = "__streamq_reached__"


@dataclass
class Reach:
    """What a query reaches: of ``cases`` cases, ``lines[file][statement]`` ran that statement; ``seconds`` of CPU a case."""

    cases: int = 0
    seconds: float = 0.0
    wrong: str = ""
    lines: dict[str, dict[int, int]] = field(default_factory=dict)

    def of(self, file: str, statement: int, in_function: bool) -> float:
        """The share of cases that run a statement, or, outside of functions, that run anything of its file."""
        lines = self.lines.get(file, {})
        reached = lines.get(statement, 0) if in_function else max(lines.values(), default=0)
        return reached / max(1, self.cases)


class _Probes(ast.NodeTransformer):
    """Puts a probe before every statement of every function."""

    def __init__(self, file: str):
        self.file = file
        self.in_function = 0

    def _probed(self, body: list[Any]) -> list[Any]:
        if not self.in_function:
            return body
        made: list[Any] = []
        for i, statement in enumerate(body):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not (i == 0 and is_text):
                line = statement.lineno
                made += ast.parse(f"{PROBE}(({self.file!r}, {line}))").body
            made.append(statement)
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        is_function = isinstance(node, ast.FunctionDef)
        self.in_function += is_function
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                setattr(node, name, self._probed(body))
        self.in_function -= is_function
        return node


def probed(file: str) -> CodeType:
    """A module whose statements note that they run."""
    path = ROOT / file
    tree = _Probes(file).visit(ast.parse(path.read_text(encoding="utf-8")))
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


def measured(query: str, examples: int) -> Reach:
    """What so many cases of a query reach; the modules that this process has imported are :func:`probed`."""
    from tests.mutation.trying import seconds_of, tried

    search: Any = importlib.import_module("streamq.testing.search")
    now: set[tuple[str, int]] = set()
    setattr(builtins, PROBE, now.add)
    counts: Counter[tuple[str, int]] = Counter()
    reach = Reach()
    check_answers = search.check_answers

    def counted(*args: Any, **keywords: Any) -> list[str]:
        now.clear()
        try:
            return check_answers(*args, **keywords)
        finally:
            counts.update(now)
            reach.cases += 1

    search.check_answers = counted
    with seconds_of() as spent:
        failure = tried(query, examples)
    reach.wrong = "" if failure is None else failure.how
    reach.seconds = spent() / max(1, reach.cases)
    for (file, line), n in counts.items():
        reach.lines.setdefault(file, {})[line] = n
    return reach


__all__ = ["PROBE", "Reach", "measured", "probed"]
