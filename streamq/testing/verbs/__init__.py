"""A second definition of the verbs: the plan that each call means, after the language's pages.

For a scenario ``verify`` knows the calls of its verbs, not only the plan that they build. This package reads those calls a second
time; if it gets another plan, the oracle answers by that one. It shares only nodes, expressions, durations and the parser of
patterns with the verbs, and covers legal calls only, as the verbs refuse others. Its methods have the names of the verbs; their
docstrings state only what the names do not.
"""

from __future__ import annotations

from streamq.testing.verbs.reading import NOT_READ, meaning

__all__ = ["NOT_READ", "meaning"]
