"""Write the tables of docs/expressions.md from the code: the functions and the casts that run in-process.

python scripts/expressions_page.py
"""

from __future__ import annotations

from pathlib import Path

from streamq.functions.built_in import BuiltIn
from streamq.functions.catalogue import ROOMS
from streamq.plan.function import called
from streamq.plan.spark_types import parse_type
from streamq.runtime.arrow.arrow_casts import can_cast

PAGE = Path(__file__).parents[1] / "docs" / "expressions.md"
BEGIN, END = "<!-- made by make docs -->\n", "<!-- end of what make docs makes -->\n"

NOTES = {
    "+": "no decimals of more than 38 digits, no dates",
    "%": "no decimals",
    "==": "no arrays, structs or maps",
    "round": "no decimals; the digits are a constant",
    "rlike": "the pattern is a constant, of the syntax that Java and Python share",
    "hour": "no timestamp_ntz",
    "concat": "no arrays",
}
"""What a function that runs in-process does not take there."""

TYPES = (
    "boolean",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(10,2)",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
"""The types of the table of casts."""


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """The page with the tables as the code has them now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + functions() + "\n" + casts() + "\n" + END + rest.partition(END)[2]


def functions() -> str:
    """A row for each room that has functions in-process, with limits of some; then the others that rooms have."""
    rows = ["| family | functions in-process | limits of that |", "| --- | --- | --- |"]
    elsewhere: list[str] = []
    for room in ROOMS:
        members = [f for f in vars(room).values() if isinstance(f, BuiltIn)]
        here = [shown(f) for f in members if f.arrow is not None]
        elsewhere += [shown(f) for f in members if f.arrow is None]
        limits = [f"{shown(f)}: {NOTES[f.name]}" for f in members if f.name in NOTES]
        if here:
            rows.append(f"| {room.__name__.rpartition('.')[2]} | {' '.join(here)} | {'; '.join(limits)} |")
    others = f"On Spark alone: {' '.join(elsewhere)}, and all other functions of `pyspark.sql.functions`."
    return "\n".join(rows) + f"\n\n{others}\n"


def casts() -> str:
    """A row for each type: to what it is cast in-process."""
    kinds = {name: parse_type(name) for name in TYPES}
    rows = ["| cast of | in-process to |", "| --- | --- |"]
    for name, kind in kinds.items():
        to = [other for other, target in kinds.items() if other != name and can_cast(kind, target)]
        rows.append(f"| {name} | {', '.join(to) or 'nothing else'} |")
    return "\n".join(rows) + "\n"


def shown(function: BuiltIn) -> str:
    """A function as it is called; a bar would end the cell of a table."""
    text = called(function).replace("|", "\\|") if function.notation is not None else f"f.{function.name}"
    return f"`{text}`"


if __name__ == "__main__":
    main()
