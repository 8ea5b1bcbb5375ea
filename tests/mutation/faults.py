"""Faults of ``faults.toml``: another text in our own code, which a query that is verified, or a law, must notice.

Replacing our own functions is the very point here, and has no place in any other test.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import tests.judges  # noqa: F401 (it registers the judge that catches some)
from streamq import testing as t
from tests.mutation.queries import QUERIES

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Edit:
    """Another text in a file of ``streamq/``: ``old`` stands there once, within a function, and becomes ``new``."""

    file: str
    old: str
    new: str

    def changes(self) -> Iterator[tuple[FunctionType, CodeType]]:
        """Yield functions and their code with the fault; they keep their identity, so that who has imported one has the fault."""
        path = ROOT / "streamq" / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {self.old!r} {text.count(self.old)} times")
        module = importlib.import_module(f"streamq.{self.file.removesuffix('.py').replace('/', '.')}")
        texts = (text, text.replace(self.old, self.new))
        before, after = (_functions(compile(text, str(path), "exec", dont_inherit=True)) for text in texts)
        changed = [name for name in after if after[name] != before.get(name)]
        if not changed:
            raise ValueError(f"{self.file}: no function has another code")
        yield from ((_live(module, name), after[name]) for name in changed)


@dataclass(frozen=True)
class Fault:
    """One mistake, what it does, and what must notice it.

    ``query``: a name in QUERIES, to be verified. ``laws``: functions that raise AssertionError, ``module:function`` below
    ``tests``, each with the arguments of its calls, every one of which must notice. ``spark``: only Spark runs the code.
    """

    name: str
    wrong: str
    edits: tuple[Edit, ...]
    query: str = ""
    laws: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    spark: bool = False

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While the mistake is made."""
        with contextlib.ExitStack() as stack:
            for function, code in [change for edit in self.edits for change in edit.changes()]:
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield


def law_of(name: str) -> Callable[..., object]:
    """Return the function ``module:function`` below ``tests``."""
    module, _, function = name.partition(":")
    law: Callable[..., object] = getattr(importlib.import_module(f"tests.{module}"), function)
    return law


def _fault(name: str, entry: dict[str, Any]) -> Fault:
    edits = entry["edits"] if "edits" in entry else [[entry["file"], *entry["edit"]]]
    calls = [(law, tuple(call) if isinstance(call, list) else (call,))
             for law, of in entry.get("laws", {}).items() for call in of or [[]]]  # fmt: skip
    edits = tuple(Edit(*edit) for edit in edits)
    return Fault(name, entry["wrong"], edits, entry.get("query", ""), tuple(calls), entry.get("spark", False))


_TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
FAULTS = {name: _fault(name, entry) for name, entry in _TABLE.items()}
"""The faults of ``faults.toml`` by name."""

ON_SPARK = replace(t.PROFILES["default"], shrinking=0.0)
"""What verify tries by default; a smaller case than the first is not asked for."""

IN_PROCESS = replace(ON_SPARK, batch=0, streams=0)
"""What it tries before it comes to Spark."""


def caught(fault: Fault, failures: str | None = None) -> t.VerificationFailed:
    """How verify's default settings catch it; ``failures``: where the case is saved. Raises AssertionError if they do not."""
    tried = replace(ON_SPARK if fault.spark else IN_PROCESS, failures=failures)
    with fault.in_place():
        try:
            report = t.verify(QUERIES[fault.query](), profile=tried, may_fail=True)
        except t.VerificationFailed as failed:
            return failed
    raise AssertionError(f"{fault.name} survives: {report}")


def _functions(code: CodeType) -> dict[str, CodeType]:
    """The codes of a module's functions and of its classes' methods, by name."""
    codes: dict[str, CodeType] = {}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            codes |= {part.co_qualname: part} if part.co_flags & inspect.CO_OPTIMIZED else _functions(part)
    return codes


def _live(module: ModuleType, name: str) -> FunctionType:
    """The function of a module, or of one of its classes, behind what decorators made of it."""
    value: Any = module
    for part in name.split("."):
        value = vars(value)[part]
    while not isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
        value = next(
            f
            for a in ("__wrapped__", "__func__", "fget", "func", "function")
            if (f := getattr(value, a, None)) is not None
        )
    return value
