"""Write a user's module for a program: its code with the imports that it needs, or a look-up by its name."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import streamq as sq
from streamq.user_code.module import UserModule


def module_name(module: UserModule) -> str:
    """Return the name of a module in a program: that of its code, else its own."""
    names = (getattr(module.code, "__name__", ""), module.name, "module")
    return next(name for name in names if name.isidentifier())


def module_text(module: UserModule) -> tuple[list[str], str]:
    """Return the imports that a module's code needs, and the code, or the look-up of the module in ``sq.modules``.

    Code is written if it is decorated, and reads nothing from around it but what can be imported.
    """
    try:
        text = textwrap.dedent(inspect.getsource(module.code))
        definition = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError):
        # code without a file, such as a built-in function, or a lambda within a line
        definition = None
    if isinstance(definition, ast.FunctionDef | ast.ClassDef) and definition.decorator_list:
        around = getattr(module.code, "__globals__", None) or vars(sys.modules[module.code.__module__])
        lines = [_import(name, around, module.code.__module__) for name in _names_from_around(definition)]
        if None not in lines:
            return [line for line in lines if line], f"\n\n{text}\n"
    return [], f'{module_name(module)} = sq.modules.get("{module.name}")  # your module; run its code first'


def _names_from_around(definition: ast.AST) -> list[str]:
    """Return the names that code reads and does not define, without those of Python."""
    parts = list(ast.walk(definition))
    names = [part for part in parts if isinstance(part, ast.Name)]
    own = {part.id for part in names if not isinstance(part.ctx, ast.Load)}
    own |= {part.arg for part in parts if isinstance(part, ast.arg)}
    own |= {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.ClassDef)}
    own |= {(part.asname or part.name).partition(".")[0] for part in parts if isinstance(part, ast.alias)}
    return sorted({part.id for part in names} - own - {*dir(builtins)})


def _import(name: str, around: Mapping[str, Any], home: str) -> str | None:
    """Return the import of a name that stands around a module's code; "" for streamq, None if it cannot be imported."""
    value = around.get(name)
    if value is sq:
        return "" if name == "sq" else f"import streamq as {name}"
    if isinstance(value, ModuleType):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    place = getattr(value, "__module__", None) or ""
    is_there = place not in ("", "__main__", home) and getattr(sys.modules.get(place), name, None) is value
    return f"from {place} import {name}" if value is not None and is_there else None


__all__ = ["module_name", "module_text"]
