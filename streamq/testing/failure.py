"""The error that ``verify`` raises: a query's answer differs from the oracle's, with the smallest case that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamq import html
from streamq.errors import StreamqError
from streamq.operators.scan import Scan
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import expression_nodes, infer
from streamq.testing.case import Case
from streamq.testing.difference import Difference
from streamq.testing.execution import Execution
from streamq.testing.program_text import string
from streamq.user_code.module import UserModule
from streamq.user_code.repository import called_modules

if TYPE_CHECKING:
    from streamq.tracing.trace import Trace


MAY_FAIL = (
    "If it may fail over such values, say so: may_fail=True. If there are none, leave them out: t.Intent(payload=...)."
)
"""The advice where a query fails by its own rules."""


class VerificationFailed(AssertionError):
    """Raised when a query's answer differs from the oracle's.

    ``case`` is the smallest failing case, ``how`` the execution, ``difference`` the difference of the histories, or None if the
    query failed with ``error``. ``result``: of several queries the number of the wrong one, from 1. ``is_legal``: the query
    fails by its own rules, as it does in the oracle. ``saved`` is the file that holds the case, if any. ``first`` is the failure
    from which shrinking started (this one, if no smaller was found), ``number`` the number of its trial. ``shrinking`` is the
    time in seconds after which shrinking was stopped, None if it ran to its end. ``is_steady`` is False if the oracle's answer
    differs when it is asked again, which only user modules can cause.
    """

    def __init__(
        self,
        case: Case,
        how: Execution,
        difference: Difference | None,
        error: Exception | None = None,
        *,
        result: int | None = None,
        is_legal: bool = False,
    ):
        super().__init__(case, how, difference, error)
        self.case, self.how, self.difference, self.error = case, how, difference, error
        self.result, self.is_legal = result, is_legal
        self.saved: Path | None = None
        self.first, self.number = self, 0
        self.is_steady = True
        self.shrinking: float | None = None

    @property
    def says(self) -> str:
        """The difference or the error, without the case."""
        wrong = str(self.difference) if self.difference is not None else f"{type(self.error).__name__}: {self.error}"
        if self.is_legal:
            return f"the query fails by its own rules ({self.how.shown(self.case.axis)})\n{self.suspects}{wrong}\n{MAY_FAIL}"
        of_result = f" of query {self.result}" if self.result is not None else ""
        return f"not the oracle's history{of_result} ({self.how.shown(self.case.axis)})\n{self.suspects}{wrong}"

    @property
    def suspects(self) -> str:
        """A line that names the user modules that the query calls and how to check them alone; empty if there are none."""
        names = [module.name for module in called_modules(self.case.plan)]
        checks = " and ".join(_check(self.case.plan, name) for name in names)
        if not names:
            return ""
        unsteady = "" if self.is_steady else "their results differ from call to call, in the oracle alone too; "
        return f"the query calls {', '.join(names)}: {unsteady}to see if a law of modules is broken, run {checks}\n"

    def trace(self) -> Trace:
        """Return the flow of the case's events through the query, in its micro-batches; raise the query's error if it fails.

        The query runs in-process, of several the wrong one alone; what fails on Spark or side by side alone is right here.
        """
        query = self.case.queries[(self.result or 1) - 1]
        return query.trace(self.case.batches, until=self.case.instant)

    def _repr_html_(self) -> str:
        """The difference, or the error, above the page of the trace, as a notebook shows them."""
        above = html.fragment(html.lines(self.says)) if self.difference is None else self.difference._repr_html_()
        try:
            return above + self.trace()._repr_html_()
        except StreamqError as error:
            # the query fails over the case, which is what was found
            return above + html.fragment(html.lines(str(error)))

    def __str__(self) -> str:
        """Return the difference or error, the items along the time axis, the case's program, and, if saved, how to run it again.

        If shrinking was stopped, the text says so.
        """
        again = ["the flow of its events: error.trace(), a page in a notebook; error.trace().save('trace.html')"]
        if self.saved is not None:
            again.append(f"saved; to run it again: t.replay({str(self.saved)!r}), or pytest {self.saved}")
        if self.shrinking:
            more = "for a smaller one allow more time: profile=t.Profile(shrinking=...)"
            again.append(f"the smallest case found in {self.shrinking:g} s; {more}")
        return "\n\n".join([self.says, self.case.drawn(), self.case.program(), *again])


def _check(plan: Node, module: str) -> str:
    """Return the call that checks a module alone, over the types of columns with which a plan calls it first."""
    for node in nodes(expanded(plan)):
        schema = getattr(node, "both", node.children[0].schema if node.children else node.schema)
        parts: list[Any] = [part for expr in expressions(node) for part in expression_nodes(expr)]
        for part in [*parts, node] if isinstance(node, Scan) else parts:
            called = getattr(part, "operator" if part is node else "function", None)
            if isinstance(called, UserModule) and called.name == module:
                types = ", ".join(infer(arg, schema, "verify").simpleString() for arg in part.args)
                return f"t.check_module({module}{'' if types == 'double' else f', {string(types)}'})"
    raise AssertionError(module)
