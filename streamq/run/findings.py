"""The doctor's findings, one for each thing it checks, and the report of all findings."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from streamq import html
from streamq.errors import SessionError, sentence


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was observed and, in case of a problem, what is wrong and how to fix it."""

    subject: str
    observed: str
    wrong: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.wrong

    def message(self, verb: str = "") -> str:
        """Return the message of an error about this finding."""
        text = sentence(verb, self.wrong, self.observed, self.hint)
        return text if verb else text.removeprefix(": ")


@dataclass(frozen=True)
class Report:
    """The findings of :func:`streamq.doctor`; it prints as a table, also in a notebook."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are problems."""
        return tuple(finding for finding in self.findings if not finding.ok)

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    @property
    def headline(self) -> str:
        """The first line of the printed report."""
        count = len(self.problems)
        return "streamq doctor: " + ("all is well" if not count else f"{count} problem{'s'[: count > 1]}")

    def raise_problems(self, verb: str = "session", advice: str = "") -> None:
        """Raise one SessionError for all problems, if there are any; ``advice`` is a hint that solves each of them."""
        match self.problems:
            case ():
                return
            case (problem,):
                text = problem.message(verb)
                raise SessionError(f"{text}{'' if text.endswith('.') else '.'} {advice}" if advice else text)
            case problems:
                lines = "".join(f"\n  - {p.message()}" for p in problems) + (f"\n{advice}" if advice else "")
                raise SessionError(f"{verb}: {len(problems)} things are not as they must be.{lines}")

    def __str__(self) -> str:
        width = max((len(finding.subject) for finding in self.findings), default=0)
        indent = " " * (width + 11)
        lines = [self.headline]
        for finding in self.findings:
            text = finding.observed if finding.ok else finding.message()
            head = f"  {'ok' if finding.ok else 'PROBLEM':7}  {finding.subject:{width}}"
            lines += textwrap.wrap(
                text, 118, initial_indent=f"{head}  ", subsequent_indent=f"{indent}  ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(f.subject, "ok" if f.ok else "PROBLEM", f.observed if f.ok else f.message()) for f in self.findings]
        return html.fragment(html.tabulated((), rows, self.headline, named=True))
