"""One test over a table of cases: for hundreds of cases of milliseconds, of which pytest would make a test apiece."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any


def each(*choices: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a test of a check that takes a case: it goes over all cases, and names each one that fails.

    With several iterables a case is one of each, in the order of the check's parameters. No case sees a fixture of its own.
    """

    def over(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            failures = []
            cases = list(itertools.product(*choices))
            assert cases
            for case in cases:
                try:
                    check(*case)
                except Exception as failure:
                    failure.add_note(f"case: {', '.join(map(repr, case))}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases fail", failures)

        # not by functools.wraps: pytest would look for fixtures called as the parameters of the check
        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return over
