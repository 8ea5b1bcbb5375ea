"""The verbs, defined once more: what each means as nodes of a plan, read from the language's pages.

Of a scenario ``verify`` knows how its verbs were called as well, and not only the plan that they have made. This is a second
reading of those calls: where it gives another plan, the oracle answers by that one. It shares nothing with the verbs but nodes,
expressions, durations and the parser of patterns, and it reads calls that are right: the verbs refuse what is wrong.
The methods are called as the verbs, and say only what their names do not.
"""

from __future__ import annotations

from streamq.testing.verbs.reading import NOT_READ, meaning

__all__ = ["NOT_READ", "meaning"]
