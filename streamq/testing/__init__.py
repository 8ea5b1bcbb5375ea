"""streamq.testing: a test framework for people who write queries and modules, and streamq's own safety net.

After the test framework of StreamInsight (DBTest 2010): queries and data with parts left out are filled in at random, run, and
held against the same query as SQL over histories. How to use it: ``docs/testing.md``.
"""

from importlib.util import find_spec

if missing := [package for package in ("duckdb", "hypothesis") if find_spec(package) is None]:
    raise ImportError(f"streamq.testing needs {' and '.join(missing)}: pip install 'streamq[testing]'")

from streamq.testing.case import Case, VerificationFailed
from streamq.testing.folding import fold_physical
from streamq.testing.history import Difference, assert_same_history, history, plot, same_history
from streamq.testing.intent import Intent
from streamq.testing.lateness import inject_duplicates, make_speculative
from streamq.testing.module_laws import LawBroken
from streamq.testing.modules import check_module
from streamq.testing.profiles import PROFILES, Profile, Verification, load_profile
from streamq.testing.program import program
from streamq.testing.replay import replay
from streamq.testing.scenario import ANY, Scenario, concrete, stream
from streamq.testing.table import table
from streamq.testing.validator import StreamCheck, StreamViolation, check_stream, find_breaches
from streamq.testing.verify import verify

__all__ = [
    "ANY",
    "PROFILES",
    "Case",
    "StreamCheck",
    "Difference",
    "Intent",
    "LawBroken",
    "Profile",
    "VerificationFailed",
    "Scenario",
    "StreamViolation",
    "Verification",
    "assert_same_history",
    "check_module",
    "check_stream",
    "concrete",
    "find_breaches",
    "fold_physical",
    "history",
    "inject_duplicates",
    "load_profile",
    "make_speculative",
    "plot",
    "program",
    "replay",
    "table",
    "same_history",
    "stream",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
