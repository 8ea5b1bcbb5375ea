"""Lines as careless writers, broken networks and other readers' habits make them."""

from __future__ import annotations

import random

SCHEMA = "i int, x double, f float, e decimal(5,2), b boolean, s string, d date, t timestamp, n timestamp_ntz"
NAMES = [column.split()[0] for column in SCHEMA.split(", ")]

TEXTS = {
    "i": ["1", "-1", "2147483647", "007", "+1", "1.0", " 1", "2147483648", "x", "1e3", "0x10", "1_000", "-", "--1", ""],
    "x": ["1", "1.5", "-0.0", "1e3", "0.1", "NaN", "Infinity", "-Inf", "Inf", "1.", ".5", "1d", "1,5", "1e400", "-1e-400",
          " 1 ", "+1.5", "nan", "INF", "1e", "."],
    "f": ["0.1", "16777217", "3.4e38", "1e39", "1.00000017881393432617187499", "1F"],
    "e": ["1.25", "-3", "0.5", "123.45", "1.255", "999.995", "1000", "1e2", "+1", "1.", " 1", "1e-9", "1e99"],
    "b": ["true", "false", "TRUE", "tRuE", "1", "yes", "t", " true"],
    "s": ["a", "a b", "  a ", "\u00e4\U0001f600", "NaN", "2024-01-01", "", "null", "a\x00b", "\u2028", "a'b", "#a", "-"],
    "d": ["2024-02-29", "0001-01-01", "9999-12-31", "1582-10-10", "2024-1-1", "2024-02-30", "2024", "2024-01", "0000-01-01",
          "2024-01-01T00:00:00", " 2024-01-01", "2024-01-01x", "today", "24-01-01", "2024/01/01"],
    "t": ["2024-01-01T00:00:00Z", "2024-01-01 00:00:00.123456", "2024-01-01T00:00:00+02:00", "0001-01-01T00:00:00Z",
          "2024-01-01", "2024-01-01T24:00:00", "2024-01-01T00:00:00.1234567", "2024-01-01T00:00", "2024-1-1 1:2:3", "now",
          "2024-01-01T00:00:00+0200", "2024-01-01T00:00:00+2", "2024-01-01T00:00:00-18:00", "2024-01-01T00:00:00+19:00",
          "2024-01-01T00:00:00z", "2024-01-01T00:00Z", "2024-01-01T00:00:00.Z", "2024-02-30T00:00:00", "1704067200"],
    "n": ["2024-01-01T00:00:00", "2024-01-01 12:34:56.5", "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T00:00"],
}  # fmt: skip
"""Texts of each column, right and wrong."""

JSON = ["1", "1.0", "1.50", "-0", "1e3", "1e400", "12345678901234567890", "true", "null", "NaN", "01", "[]", "{}", '""',
        "[1, null]", '{"a": [1, {"b": "\\u00e9"}]}', '"\\ud83d\\ude00"', '"\\x"', '"\t"', '"\\u0000"', "nope"]  # fmt: skip
"""Values of JSON."""


def hostile_lines(kind: str, seed: int, count: int) -> list[bytes]:
    """Draw lines, of which about half are as they should be."""
    drawn = random.Random(f"{kind} {seed}")
    lines = [(_csv if kind == "csv" else _json)(drawn) for _ in range(count)]
    return [line for line in lines if b"\n" not in line and b"\r" not in line]


def _csv(drawn: random.Random) -> bytes:
    fields = [drawn.choice(TEXTS[name][:3] if drawn.random() < 0.95 else TEXTS[name]) for name in NAMES]
    if drawn.random() < 0.5:
        fields = [field if drawn.random() < 0.3 else "" for field in fields]
    if drawn.random() < 0.3:
        at = drawn.randrange(len(fields))
        fields[at] = drawn.choice(['"{}"', '"{}" ', '"{},"', '"\\"{}"', '"{}\\\\"', '"{}', '{}"', "{}\\"]).format(
            fields[at]
        )
    line = ",".join(fields + drawn.choice([[], [], [], [], [""], ["more"]]))
    return _broken(drawn, line.encode())


def _json(drawn: random.Random) -> bytes:
    members = []
    for name in drawn.sample(NAMES, drawn.randrange(4)):
        text = drawn.choice(TEXTS[name][:3] if drawn.random() < 0.6 else TEXTS[name])
        bare = text if name in "ixfeb" or drawn.random() < 0.05 else '"' + text.replace("\x00", "") + '"'
        members.append(f'"{name}": {drawn.choice(JSON) if drawn.random() < 0.15 else bare}')
    if drawn.random() < 0.2:
        members.append(f'"zz": {drawn.choice(JSON)}')
    if drawn.random() < 0.05:
        members *= 2
    return _broken(drawn, ("{" + ", ".join(members) + "}").encode())


def _broken(drawn: random.Random, line: bytes) -> bytes:
    """Return the line, in one of eight cases with something in the wrong place."""
    at = drawn.randrange(len(line) + 1)
    match drawn.randrange(32):
        case 0:
            return line[:at] + bytes([drawn.choice(b'",:{}[]\\ \x00\xff\xe4;#')]) + line[at:]
        case 1:
            return line[:at] + line[at + 1 :]
        case 2:
            return line[:at]
        case 3:
            return line + drawn.choice([b" ", b",", b" x", line, b"\t"])
    return line
