"""Faults that are none: entries of ``equivalent.toml``, each with the reason why nothing can tell."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.faults import ROOT, Fault, faults_of

PAGE = Path(__file__).with_name("equivalent.toml")

Key = tuple[str, str, str, str]
"""A file, the qualified name of a function in it, a line as it is, and as the fault has it (white space counts as one blank);
as ANY fault of the line has it, where the line decides on cost alone."""

ANY = ""


@dataclass(frozen=True)
class Equivalents:
    """Reasons by the faults that they are for."""

    reasons: dict[Key, str]

    @staticmethod
    def read(path: Path = PAGE) -> Equivalents:
        """The entries of a file: tables ``[[equivalent]]`` of file, function, before, after (a line, some, or none), reason."""
        reasons = {}
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
            after = entry.get("after", ANY)
            lines = after if isinstance(after, list) else [after]
            for line in lines:
                reasons[entry["file"], entry["function"], entry["before"], line] = entry["reason"]
        return Equivalents(reasons)

    def reason(self, fault: Fault) -> str:
        """Why a fault changes nothing; "" if that is not said."""
        file, function, before, after = key(fault)
        return self.reasons.get((file, function, before, after)) or self.reasons.get((file, function, before, ANY), "")

    def stale(self) -> list[Key]:
        """The entries that no fault matches any more."""
        files = {file for file, *_ in self.reasons}
        there = {key(fault) for file in files if (ROOT / file).exists() for fault in faults_of(file)}
        there |= {(file, function, before, ANY) for file, function, before, _ in there}
        return [entry for entry in self.reasons if entry not in there]


def key(fault: Fault) -> Key:
    """What an entry names a fault by."""
    return fault.file, fault.function, fault.before, fault.after


__all__ = ["Equivalents", "key"]
