"""Mutants: one deliberate mistake each, put in place of our own code while a query that it should spoil is verified.

Replacing our own functions is the very point here, and has no place in any other test.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import tests.judges  # noqa: F401 (it registers the judge that catches some)
from streamq import testing as t
from streamq.plan.function import NamedObject
from tests.mutation.faults import ROOT, read_table
from tests.mutation.queries import QUERIES

Change = tuple[Any, str, Any]
"""A target, its attribute, and what stands there instead."""


@dataclass(frozen=True)
class Edit:
    """Another text in a file: ``old`` stands there once, within a function, and becomes ``new``."""

    file: str
    old: str
    new: str

    def changes(self) -> tuple[Change, ...]:
        """The changes of functions that it makes. They keep their identity, so that whoever has imported one has it changed."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {self.old!r} {text.count(self.old)} times")
        module = importlib.import_module(self.file.removesuffix(".py").replace("/", "."))
        texts = (text, text.replace(self.old, self.new))
        before, after = (_functions(compile(t, str(ROOT / self.file), "exec", dont_inherit=True)) for t in texts)
        changed = [name for name in after if after[name] != before.get(name)]
        if not changed:
            raise ValueError(f"{self.file}: no function has another code")
        return tuple((_live(module, name), "__code__", after[name]) for name in changed)


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    ``wrong``: what the mutant does; ``query``: its name in QUERIES; ``changes``: (target, attribute, what stands there
    instead), or ``edits`` of files; ``spark``: whether the mistake is in code that runs on Spark only.
    """

    name: str
    wrong: str
    query: str
    changes: tuple[Change, ...] = ()
    spark: bool = False
    edits: tuple[Edit, ...] = ()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While the mistake is made."""
        with contextlib.ExitStack() as stack:
            edits = (change for edit in self.edits for change in edit.changes())
            for target, attribute, instead in (*self.changes, *edits):
                if isinstance(target, FunctionType):
                    # what a function has itself cannot be deleted, which is how a patch ends
                    stack.callback(setattr, target, attribute, getattr(target, attribute))
                    setattr(target, attribute, instead)
                else:
                    stack.enter_context(patch.object(target, attribute, instead))
            yield


def _mutant(name: str, fault: dict[str, Any]) -> Mutant:
    edit = Edit(f"streamq/{fault['file']}", *fault["edit"])
    return Mutant(name, fault["wrong"], fault["query"], spark=fault.get("spark", False), edits=(edit,))


MUTANTS = {name: _mutant(name, fault) for name, fault in read_table().items()}
"""The faults of ``faults.toml`` by name."""

IN_PROCESS = replace(t.PROFILES["default"], batch=0, streams=0, shrinking=0.0)
"""What verify tries by default before it comes to Spark; a smaller case than the first is not asked for."""

ON_SPARK = replace(t.PROFILES["default"], shrinking=0.0)
"""What it tries by default."""


def caught(mutant: Mutant, failures: str | None = None) -> t.VerificationFailed:
    """How verify's default settings catch it; ``failures``: where the case is saved. Raises AssertionError if they do not."""
    tried = replace(ON_SPARK if mutant.spark else IN_PROCESS, failures=failures)
    with mutant.in_place():
        try:
            report = t.verify(QUERIES[mutant.query](), profile=tried, may_fail=True)
        except t.VerificationFailed as failed:
            return failed
    raise AssertionError(f"{mutant.name} survives: {report}")


def made_anew(value: Any) -> Any:
    """A plan, or a part of it, made once more without the mistake, so that it knows nothing that was computed with it."""
    if isinstance(value, tuple):
        return tuple(map(made_anew, value))
    if not is_dataclass(value) or isinstance(value, NamedObject | type):
        return value
    return replace(value, **{f.name: made_anew(getattr(value, f.name)) for f in fields(value) if f.init})


def broken(failed: t.VerificationFailed) -> str:
    """In a line, the property that a failure says is broken."""
    return "history differs" if failed.difference is not None else str(failed.error).partition("\n")[0]


def wrapped(target: Any, attribute: str, around: Callable[..., Any]) -> Change:
    """A change of a function: ``around`` is called with the right function and its arguments."""
    right = getattr(target, attribute)
    return target, attribute, lambda *args, **kwargs: around(right, *args, **kwargs)


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
