"""Programs as text in normal form, and read back from it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from streamq.patterns.parser import parse
from streamq.patterns.pattern_text import render
from streamq.patterns.syntax import Program
from tests.drawn.programs import programs

TEXT = """\
EVENT Unattended
WHEN UNLESS(SEQUENCE(INSTALL AS x, SHUTDOWN AS y FIRST CONSUME, 12 hours), RESTART AS z, 2, 5 minutes) AS whole
WHERE CorrelationKey(machine_id, EQUAL)
  AND [`site name` EQUAL 'it''s']
  AND (x.a = 1 OR NOT y.event IN (1, -2.5, NULL) AND z.b IS NOT NULL)
  AND x.a - (y.a - -1) NOT BETWEEN 0 AND - x.b
OUTPUT x.machine_id AS machine, y.ts, x.a * (x.b + 1) AS event
@ [1, )
# ['2024-01-01', '2024-02-01')

EVENT `ALL`
WHEN NOT(ANY(A, B), ALL(C, ATMOST(1, D, 5), '1 hour, 5 minutes'))"""


def test_a_text_in_normal_form_stays_as_it_is() -> None:
    text = TEXT.replace("y.event IN", "(y.event IN").replace("NULL) AND z", "NULL)) AND z")
    assert render(parse(text)) == TEXT.replace("NOT y.event IN", "y.event NOT IN")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("((x))", "x"),
        ("{x} and ({y or z})", "x\n  AND (y OR z)"),
        ("(x and y) or z", "x AND y OR z"),
        ("x and y or z", "x AND y OR z"),
        ("not (x and y)", "NOT (x AND y)"),
        ("(not x) = y", "(NOT x) = y"),
        ("(x = y) = z", "(x = y) = z"),
        ("x != - (y)", "x <> - y"),
        ("(x + y) + z", "x + y + z"),
        ("x * (y * z)", "x * (y * z)"),
        ("-(-x)", "- - x"),
        ("negative(1)", "negative(1)"),
        ("(case when x then (y) else z end) in (1)", "CASE WHEN x THEN y ELSE z END IN (1)"),
        ("cast((x) as STRING) = 'a'", "CAST(x AS string) = 'a'"),
        ("a.`first` = `first`", "a.first = `first`"),
        ("1e3 = .5", "1000.0 = 0.5"),
        ("not not x in (1)", "NOT x NOT IN (1)"),
    ],
)
def test_normal_form_of_conditions(text: str, normal: str) -> None:
    assert render(parse(f"EVENT E WHEN A WHERE {text}")) == f"EVENT E\nWHEN A\nWHERE {normal}"


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_a_program_is_read_back_from_its_text(program: Program) -> None:
    text = render(program)
    assert parse(text) == program
    assert repr(parse(text)) == repr(program)
    assert render(parse(text)) == text
