"""Checks of key columns: the types that Spark groups, joins and orders by."""

from __future__ import annotations

from pyspark.sql import types as t

from streamq.errors import TypeMismatch, sentence


def check_key(kind: t.DataType, name: str, verb: str = "group_by", use: str = "group") -> None:
    """Raise TypeMismatch for a type that rows cannot be grouped, ordered or matched by.

    These are maps, variants, and types that no value has shown, also inside arrays and structs. ``use``, in the message, is what
    the verb does by the column ``name``.
    """
    if not has_equality(kind):
        hint = f"{use.capitalize()} by columns without maps: sq.functions.map_entries makes an array of one."
        if _untyped(kind):
            hint = "Say its type where the stream is made: sq.events(..., schema=), a column of a typed Arrow table."
        elif not isinstance(kind, t.MapType):
            hint = "Choose another column, or parts of it."
        raise TypeMismatch(sentence(verb, f"cannot {use} by column {name!r}", f"found {kind.simpleString()}", hint))


def _untyped(kind: t.DataType) -> bool:
    """True if the type, or a type nested in it, is unknown because no value showed it."""
    match kind:
        case t.ArrayType(elementType=of):
            return _untyped(of)
        case t.StructType(fields=fields):
            return any(_untyped(f.dataType) for f in fields)
    return isinstance(kind, t.NullType)


def has_equality(kind: t.DataType) -> bool:
    """True if Spark groups, joins and orders by values of the type: not maps, variants and untyped NULLs, also inside others."""
    match kind:
        case t.ArrayType(elementType=of):
            return has_equality(of)
        case t.StructType(fields=fields):
            return all(has_equality(f.dataType) for f in fields)
    return not isinstance(kind, t.MapType | t.VariantType | t.NullType)
