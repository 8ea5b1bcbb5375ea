"""Faults that are none: entries of ``equivalent.toml``, each with the reason why nothing can tell."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.comparisons.faults import ROOT, Fault, faults_of

PAGE = Path(__file__).with_name("equivalent.toml")

Key = tuple[str, str, str, str]
"""A file, the qualified name of a function in it, a line as it is, and as the fault has it (white space counts as one blank)."""


@dataclass(frozen=True)
class Equivalents:
    """Reasons by the faults that they are for."""

    reasons: dict[Key, str]

    @staticmethod
    def read(path: Path = PAGE) -> Equivalents:
        """The entries of a file: tables ``[[equivalent]]`` of file, function, before, after (one line, or some), reason."""
        reasons = {}
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
            lines = entry["after"] if isinstance(entry["after"], list) else [entry["after"]]
            for after in lines:
                reasons[entry["file"], entry["function"], entry["before"], after] = entry["reason"]
        return Equivalents(reasons)

    def reason(self, fault: Fault) -> str:
        """Why a fault changes nothing; "" if that is not said."""
        return self.reasons.get(key(fault), "")

    def stale(self) -> list[Key]:
        """The entries that no fault matches any more."""
        files = {file for file, *_ in self.reasons}
        there = {key(fault) for file in files if (ROOT / file).exists() for fault in faults_of(file)}
        return [entry for entry in self.reasons if entry not in there]


def key(fault: Fault) -> Key:
    """What an entry names a fault by."""
    return fault.file, fault.function, fault.before, fault.after


__all__ = ["Equivalents", "key"]
