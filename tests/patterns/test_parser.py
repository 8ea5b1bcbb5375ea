"""What the parser makes of each construct of the CEDR language."""

from __future__ import annotations

import pytest

from streamq.choices import Consumption, Selection
from streamq.errors import CedrError
from streamq.patterns.advice import RESERVED, keywords
from streamq.patterns.operators.at_least import All, AnyOf, AtLeast, AtMost, Sequence
from streamq.patterns.operators.negation import CancelWhen, Not, Unless, UnlessBefore
from streamq.patterns.operators.repeat import Repeat
from streamq.patterns.parser import parse
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import (
    Apply,
    AttributeEquals,
    Condition,
    CorrelationKey,
    Definition,
    EventField,
    Expression,
    Literal,
    OutputField,
    Part,
    Place,
    Slice,
)

"""The running example of "Consistent Streaming Through Time" (CIDR 2007), section 3.1."""

A, B, C = Part(Type("A")), Part(Type("B")), Part(Type("C"))
X, Y, Z = EventField(None, "x"), EventField(None, "y"), EventField(None, "z")


def definition(text: str) -> Definition:
    (only,) = parse(text).definitions
    return only


def pattern(text: str) -> PatternOperator:
    return definition(f"EVENT E WHEN {text}").pattern.pattern


def where(text: str) -> tuple[Condition, ...]:
    return definition(f"EVENT E WHEN A WHERE {text}").where


def expression(text: str) -> Expression:
    (field,) = definition(f"EVENT E WHEN A OUTPUT {text} AS result").output
    return field.expression


def test_the_shorthands_of_the_paper() -> None:
    assert where("CorrelationKey(Machine_ID, Equal)") == (CorrelationKey(("Machine_ID",), equal=True),)
    assert where("[Machine_Id Equal 'BARGA_XP03']") == (AttributeEquals("Machine_Id", Literal("BARGA_XP03")),)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("A", Type("A")),
        ("SEQUENCE(A, B, 5)", Sequence((A, B), 5)),
        ("SEQUENCE(A, B, C, 5)", Sequence((A, B, C), 5)),
        ("ATLEAST(2, A, B, C, 5)", AtLeast(2, (A, B, C), 5)),
        ("ALL(A, B, 5)", All((A, B), 5)),
        ("ALL(A, 5)", All((A,), 5)),
        ("ANY(A, B)", AnyOf((A, B))),
        ("ANY(A)", AnyOf((A,))),
        ("ATMOST(3, A, B, 5)", AtMost(3, (A, B), 5)),
        ("UNLESS(A, B, 5)", Unless(A, B, 5)),
        ("UNLESS(A, B, 1, 5)", Unless(A, B, 5, 1)),
        ("UNLESS(SEQUENCE(A, B, 5), C, 2, 6)", Unless(Part(Sequence((A, B), 5)), C, 6, 2)),
        ("REPEAT(A, 3, 5)", Repeat(A, 3, 5)),
        ("REPEAT(A, 3, 4, 5 minutes)", Repeat(A, 3, "5 minutes", 4)),
        ("UNLESS_BEFORE(A, B, 5)", UnlessBefore(A, B, 5)),
        ("unless-before(A, B, 5)", UnlessBefore(A, B, 5)),
        ("NOT(A, SEQUENCE(B, C, 5))", Not(A, Part(Sequence((B, C), 5)))),
        ("NOT(A, ATLEAST(2, B, C, 5))", Not(A, Part(AtLeast(2, (B, C), 5)))),
        ("NOT(A, ALL(B, C, 5))", Not(A, Part(All((B, C), 5)))),
        ("CANCEL_WHEN(A, B)", CancelWhen(A, B)),
        ("CANCEL-WHEN(A, B)", CancelWhen(A, B)),
        ("cancel-When (A , B)", CancelWhen(A, B)),
        ("Sequence(A, any(B, C), 5)", Sequence((A, Part(AnyOf((B, C)))), 5)),
    ],
)
def test_pattern(text: str, tree: PatternOperator) -> None:
    assert pattern(text) == tree


def test_negation_nested_in_negation() -> None:
    scope = Part(Sequence((A, Part(Not(B, Part(All((A, C), 3))), "n")), 5))
    tree = CancelWhen(Part(Unless(Part(Not(Part(AnyOf((B, C))), scope)), C, 6)), Part(Type("B")))
    assert pattern("CANCEL_WHEN(UNLESS(NOT(ANY(B,C),SEQUENCE(A,NOT(B,ALL(A,C,3)) n,5)),C,6),B)") == tree


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("B AS b", Part(Type("B"), "b")),
        ("B b", Part(Type("B"), "b")),
        ("B AS first", Part(Type("B"), "first")),
        ("B `AS`", Part(Type("B"), "AS")),
        ("B EACH REUSE", B),
        ("B FIRST", Part(Type("B"), None, Selection.FIRST)),
        ("B last", Part(Type("B"), None, Selection.LAST)),
        ("B CONSUME", Part(Type("B"), None, Selection.EACH, Consumption.CONSUME)),
        ("B AS b First Consume", Part(Type("B"), "b", Selection.FIRST, Consumption.CONSUME)),
        ("SEQUENCE(B, C, 3) AS s LAST", Part(Sequence((B, C), 3), "s", Selection.LAST)),
    ],
)
def test_part(text: str, part: Part) -> None:
    assert pattern(f"SEQUENCE(A, {text}, 5)") == Sequence((A, part), 5)


def test_the_whole_pattern_may_have_a_variable() -> None:
    assert definition("EVENT E WHEN ANY(A, B) AS e WHERE e.Vs > 5").pattern == Part(AnyOf((A, B)), "e")
    assert definition("EVENT E WHEN A a OUTPUT a.v").pattern == Part(Type("A"), "a")


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("5", 5), ("12 hours", "12 hours"), ("'12 hours'", "12 hours"), ("12h", "12 h"), ("5 min", "5 min"),
        ("90 SECONDS", "90 seconds"), ("250ms", "250 ms"), ("2 days", "2 days"), ("1 week", "1 week"), ("1.5 hours", "1.5 hours"),
        ("1 hour 30 minutes", "1 hour 30 minutes"), ("'1  Hour,30 minutes'", "1 hour,30 minutes"),
        ("12 /* a long day */ hours", "12 hours"),
    ],
)  # fmt: skip
def test_scope(text: str, within: str | int) -> None:
    assert pattern(f"SEQUENCE(A, B, {text})") == Sequence((A, B), within)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("x AND y AND z", (X, Y, Z)),
        ("{x} AND {y AND z}", (X, Y, Z)),
        ("({x AND (y)}) and {{z}}", (X, Y, Z)),
        ("x OR y AND z", (Apply("or", (X, Apply("and", (Y, Z)))),)),
        ("{x OR y} AND z", (Apply("or", (X, Y)), Z)),
        ("x OR (y OR z)", (Apply("or", (X, Y, Z)),)),
        ("NOT (x AND y)", (Apply("not", (Apply("and", (X, Y)),)),)),
        ("NOT x = y AND z", (Apply("not", (Apply("=", (X, Y)),)), Z)),
        ("{[x EQUAL 3]} AND (CorrelationKey(y, z, UNIQUE))",
         (AttributeEquals("x", Literal(3)), CorrelationKey(("y", "z"), equal=False))),
        ("[event EQUAL -1.5] AND [`a b` EQUAL NULL] AND [x equal true]",
         (AttributeEquals("event", Literal(-1.5)), AttributeEquals("a b", Literal(None)), AttributeEquals("x", Literal(True)))),
        ("x BETWEEN y AND z AND y", (Apply("between", (X, Y, Z)), Y)),
    ],
)  # fmt: skip
def test_where(text: str, conditions: tuple[Condition, ...]) -> None:
    assert where(text) == conditions


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        *((f"x {o} y", Apply(o, (X, Y))) for o in ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")),
        ("x != y", Apply("<>", (X, Y))),
        ("x IS NULL", Apply("is null", (X,))),
        ("x is Not null", Apply("is not null", (X,))),
        ("x IN (1, y)", Apply("in", (X, Literal(1), Y))),
        ("x NOT IN (1)", Apply("not", (Apply("in", (X, Literal(1))),))),
        ("x BETWEEN 1 AND y + z", Apply("between", (X, Literal(1), Apply("+", (Y, Z))))),
        ("x NOT BETWEEN y AND z", Apply("not", (Apply("between", (X, Y, Z)),))),
        ("x LIKE 'a%'", Apply("like", (X, Literal("a%")))),
        ("x NOT LIKE y", Apply("not", (Apply("like", (X, Y)),))),
        ("x - y - z", Apply("-", (Apply("-", (X, Y)), Z))),
        ("x - (y - z)", Apply("-", (X, Apply("-", (Y, Z))))),
        ("x + y * z", Apply("+", (X, Apply("*", (Y, Z))))),
        ("{x + y} % z", Apply("%", (Apply("+", (X, Y)), Z))),
        ("x * - y", Apply("*", (X, Apply("negative", (Y,))))),
        ("-x < y", Apply("<", (Apply("negative", (X,)), Y))),
        ("x - -1", Apply("-", (X, Literal(-1)))),
        ("- -1", Apply("negative", (Literal(-1),))),
        ("CASE WHEN x THEN y END", Apply("case when", (X, Y))),
        ("case when x = 1 then y when y then z else 0 end + 1",
         Apply("+", (Apply("case when", (Apply("=", (X, Literal(1))), Y, Y, Z, Literal(0))), Literal(1)))),
        ("CAST(x + 1 AS bigint)", Apply("cast as", (Apply("+", (X, Literal(1))), Literal("bigint")))),
        ("cast (x as DECIMAL(10,2)) = y", Apply("=", (Apply("cast as", (X, Literal("decimal(10, 2)"))), Y))),
        ("CAST(x AS 'array<bigint>')", Apply("cast as", (X, Literal("array<bigint>")))),
        ("case", EventField(None, "case")), ("cast", EventField(None, "cast")),
        ("end = case(x)", Apply("=", (EventField(None, "end"), Apply("case", (X,))))),
        ("f()", Apply("f", ())),
        ("f(x, g(y), 1 = 2)", Apply("f", (X, Apply("g", (Y,)), Apply("=", (Literal(1), Literal(2)))))),
        ("first(x)", Apply("first", (X,))),
        ("negative(1)", Apply("negative", (Literal(1),))),
        ("a.first", EventField("a", "first")),
        ("a . event", EventField("a", "event")),
        ("`a b`.`c``d`", EventField("a b", "c`d")),
        ("größe", EventField(None, "größe")),
    ],
)  # fmt: skip
def test_expression(text: str, tree: Expression) -> None:
    assert expression(text) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("12", 12), ("-12", -12), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("2.5E-3", 0.0025), ("-1e+2", -100.0),
        ("9223372036854775808", 2**63), ("''", ""), ("'it''s'", "it's"), ("'-- no comment'", "-- no comment"), ("'a\nb'", "a\nb"),
        ("TRUE", True), ("false", False), ("Null", None),
    ],
)  # fmt: skip
def test_literal(text: str, value: object) -> None:
    literal = expression(text)
    assert isinstance(literal, Literal)
    assert (type(literal.value), literal.value) == (type(value), value)


def test_literals_of_different_types_differ() -> None:
    assert len({Literal(1), Literal(1.0), Literal(True), Literal("1")}) == 4


def test_output() -> None:
    fields = definition("EVENT E WHEN A AS x OUTPUT x.a, x.b AS c, x.a + 1 AS `next a`, y, 1 AS event").output
    assert [field.name for field in fields] == ["a", "c", "next a", "y", "event"]
    assert fields[0] == OutputField(EventField("x", "a"), "a")
    assert definition("EVENT E WHEN A").output == ()


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("[1, 5)", Slice(Literal(1), Literal(5))),
        ("[-5, )", Slice(Literal(-5), None)),
        ("[, 5)", Slice(None, Literal(5))),
        ("[,)", Slice(None, None)),
        ("['2024-01-01', '2024-02-01T12:00')", Slice(Literal("2024-01-01"), Literal("2024-02-01T12:00"))),
    ],
)
def test_slices(text: str, bounds: Slice) -> None:
    assert definition(f"EVENT E WHEN A @{text}").occurrence == bounds
    assert definition(f"EVENT E WHEN A # {text}").validity == bounds
    both = definition(f"EVENT E WHEN A WHERE x OUTPUT x @ {text} #[7, 8)")
    assert (both.occurrence, both.validity) == (bounds, Slice(Literal(7), Literal(8)))


def test_definitions_that_use_each_other() -> None:
    text = "EVENT Pair WHEN SEQUENCE(A, B, 5); EVENT Two WHEN UNLESS(Pair AS p, C, 2, 5) EVENT `WHEN` WHEN Two;"
    pair, two, last = parse(text).definitions
    assert two.pattern.pattern == Unless(Part(Type("Pair"), "p"), C, 5, 2)
    assert (pair.name, last.name) == ("Pair", "WHEN")


def test_a_variable_counts_within_its_definition() -> None:
    assert len(parse("EVENT E WHEN A AS x EVENT F WHEN B AS x").definitions) == 2


def test_comments_blanks_and_bytes() -> None:
    text = "\ufeff-- the first\nEVENT/**/E // a name\r\n\tWHEN\u00a0A /* EVENT F * / **/ WHERE x --"
    assert parse(text.encode()) == parse(text) == parse("EVENT E WHEN A WHERE x")


@pytest.mark.parametrize("word", keywords())
def test_keywords_as_names(word: str) -> None:
    """Reserved words are names after a dot only; the others wherever no keyword can stand, or in backticks."""
    assert where(f"x.{word} AND [{word} EQUAL 1]") == (EventField("x", word), AttributeEquals(word, Literal(1)))
    assert pattern(f"ANY(`{word}`, A)") == AnyOf((Part(Type(word)), A))
    if word in RESERVED:
        with pytest.raises(CedrError, match=f"found the keyword {word}"):
            parse(f"EVENT {word} WHEN A")
    else:
        assert definition(f"EVENT {word} WHEN A AS {word}").pattern == Part(Type("A"), word)


def test_words_that_begin_with_keywords_are_names() -> None:
    text = "EVENT EVENTS WHEN SEQUENCE(ALLOWED ASK, ANYONE FIRSTS, 5) WHERE ORDERS.NOTE = INSIDE AND TRUEST"
    only = definition(text)
    assert only.pattern.pattern == Sequence((Part(Type("ALLOWED"), "ASK"), Part(Type("ANYONE"), "FIRSTS")), 5)
    assert only.where == (
        Apply("=", (EventField("ORDERS", "NOTE"), EventField(None, "INSIDE"))),
        EventField(None, "TRUEST"),
    )


def test_places() -> None:
    (only,) = parse("EVENT E\nWHEN SEQUENCE(A AS x, B, 5)\nWHERE x.a = 1 AND NOT x.b\nOUTPUT x.c @ [1, 2)").definitions
    sequence = only.pattern.pattern
    assert isinstance(sequence, Sequence)
    assert (only.place, sequence.place) == (Place(1, 7), Place(2, 6))
    assert [part.place for part in sequence.parts] == [Place(2, 20), Place(2, 23)]
    assert [condition.place for condition in only.where] == [Place(3, 7), Place(3, 19)]
    assert only.output[0].place == Place(4, 8)
    assert only.occurrence is not None and only.occurrence.place == Place(4, 14)
