"""The faults of ``faults.toml``, by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tests.mutation.mutant import Edit, Mutant


def _mutant(name: str, fault: dict[str, Any]) -> Mutant:
    edit = Edit(f"streamq/{fault['file']}", *fault["edit"])
    return Mutant(name, fault["wrong"], fault["query"], edits=(edit,), spark=fault.get("spark", False))


def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))


MUTANTS = {name: _mutant(name, fault) for name, fault in _table().items()}

__all__ = ["MUTANTS"]
