"""%%cedr in a notebook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

import streamq as sq
from streamq.errors import CedrError, PlanError


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "streamq")
    shell.user_ns |= {
        "installs": sq.events([(1, 2, {"m": 1}), (3, 4, {"m": 2})]),
        "shutdowns": sq.events([(5, 6, {"m": 1})]),
        "n": 7,
    }
    yield shell
    shell.reset()


TEXT = """EVENT Pair WHEN SEQUENCE(installs AS x, shutdowns AS y, 12) WHERE x.m = y.m OUTPUT x.m AS m
EVENT Late WHEN SEQUENCE(Pair AS p, shutdowns AS z, 3)
"""


def test_event_types_are_the_notebooks_streams(shell: InteractiveShell) -> None:
    pattern = shell.run_cell_magic("cedr", "", TEXT.partition("\n")[0])
    assert pattern.to_arrow().to_pylist() == [{"m": 1, "start": 5, "end": 13}]


def test_the_pattern_gets_a_name(shell: InteractiveShell) -> None:
    assert shell.run_cell_magic("cedr", "late", TEXT) is None
    assert shell.user_ns["late"].columns == ["p_m", "z_m", "root"]


def test_what_is_wrong_is_said_at_its_place(shell: InteractiveShell) -> None:
    with pytest.raises(CedrError) as refused:
        shell.run_cell_magic("cedr", "", "EVENT E\nWHEN SEQUENCE(instals AS x, n AS y, 12)")
    assert str(refused.value) == (
        "cedr, line 2, column 15: no stream 'instals' in this notebook; there are: installs, shutdowns. "
        "Did you mean 'installs'?\n"
        "    WHEN SEQUENCE(instals AS x, n AS y, 12)\n"
        "                  ^"
    )
    with pytest.raises(PlanError, match="%%cedr: not a name for the pattern; found 'a b'"):
        shell.run_cell_magic("cedr", "a b", TEXT)
