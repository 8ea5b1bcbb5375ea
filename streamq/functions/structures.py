"""Parts of values with parts, and values made of parts."""

from __future__ import annotations

from streamq.functions.built_in import BuiltIn
from streamq.plan.function import Subscript, Text

GETITEM = BuiltIn(
    "getitem",
    lambda value, key: value[key],
    shown=lambda arguments: Text(f"{arguments[0].within(9)}[{arguments[1].text}]"),
    notation=Subscript(),
)
STRUCT = BuiltIn("struct", names_fields=True)
ARRAYS_ZIP = BuiltIn("arrays_zip", names_fields=True)
