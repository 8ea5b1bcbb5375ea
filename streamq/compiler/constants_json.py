"""Constants and modules as JSON: each constant is read back with the same value and type, each module by its name.

A module of the user's own has its options, and a digest that shows if its code has changed. Reading looks the name up in the
repository and imports nothing that the text names: ``{"module": "size", "kind": "udf", "registered_in": "my_pkg.tolls",
"package": "", "digest": ..., "options": {"limit": 3}}``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import dacite

from streamq.choices import Word
from streamq.errors import PlanError
from streamq.user_code.module import SCRIPT, UNNAMED, UserModule, place_of
from streamq.user_code.repository import modules

_MICROSECOND = dt.timedelta(microseconds=1)


def encoded(value: Any) -> Any:
    """Return a plain value as JSON: None, booleans, integers and strings as they are, tuples and lists as lists, others tagged.

    A list is read back as a tuple, and a value of a subclass of int, float, str or bytes as a plain int, float, str or bytes.

    ``{"float": "nan"}``, ``{"bytes": "00ff"}``, ``{"decimal": "1.50"}``, ``{"date": "2024-01-31"}``, ``{"timedelta": 5}``
    (microseconds), ``{"datetime": "2024-01-31T12:00:00", "zone": 0}`` (microseconds east of UTC, or a zone's name). Raises
    PlanError for any other value. A datetime that is the second of two equal ones on a clock that was set back has ``"fold": 1``,
    too.
    """
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case str():
            return str(value)
        case float():
            return {"float": repr(float(value))}
        case bytes():
            return {"bytes": value.hex()}
        case tuple() | list():
            return [encoded(v) for v in value]
    # a subclass, such as pandas.Timestamp, would be read back as another type
    if type(value) is Decimal:
        return {"decimal": str(value)}
    if type(value) is dt.date:
        return {"date": value.isoformat()}
    if type(value) is dt.timedelta:
        return {"timedelta": value // _MICROSECOND}
    if type(value) is dt.datetime:
        instant: dict[str, Any] = {"datetime": value.replace(tzinfo=None, fold=0).isoformat()}
        instant |= {"fold": 1} if value.fold else {}
        return instant if value.tzinfo is None else {**instant, "zone": _zone(value)}
    raise PlanError(
        "to_json", "a value that cannot be written", f"found {value!r}", "Give a plain Python value instead."
    )


def encoded_option(value: Any) -> Any:
    """Return a plain value, also a list or a dictionary, as JSON from which exactly that value is read back.

    Lists and dictionaries are tagged: ``{"list": [1, 2]}``, ``{"dict": [["a", 1]]}``. Raises PlanError for any other value, and
    for one that :func:`encoded` writes as another type, such as a NumPy number.
    """
    if type(value) is list:
        return {"list": [encoded_option(v) for v in value]}
    if type(value) is dict:
        return {"dict": [[encoded_option(k), encoded_option(v)] for k, v in value.items()]}
    if type(value) is tuple:
        return [encoded_option(v) for v in value]
    written = encoded(value)
    if type(decoded(written)) is not type(value):
        raise PlanError("to_json", "a value that cannot be written", f"found {value!r}")
    return written


def decoded_option(value: Any) -> Any:
    """Return the value that :func:`encoded_option` wrote; raise PlanError for anything else."""
    match value:
        case {"list": list(items), **rest} if not rest:
            return [decoded_option(v) for v in items]
        case {"dict": list(items), **rest} if not rest and all(isinstance(i, list) and len(i) == 2 for i in items):
            try:
                return {decoded_option(k): decoded_option(v) for k, v in items}
            except TypeError as error:  # a key that is a list
                raise PlanError("from_json", "not a value", f"found {value!r}") from error
        case list():
            return tuple(decoded_option(v) for v in value)
    return decoded(value)


def _zone(value: dt.datetime) -> Any:
    """Return an instant's time zone as JSON: an offset in microseconds, ``[offset, name]``, or a ZoneInfo's key.

    Raises PlanError for any other zone.
    """
    match value.tzinfo:
        case dt.timezone() as zone:
            offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
            return [offset // _MICROSECOND, *name] if name else offset // _MICROSECOND
        case ZoneInfo(key=str(key)):
            return key
    raise PlanError(
        "to_json", "a time zone that cannot be written", f"found {value!r}", "Give a zoneinfo.ZoneInfo or UTC."
    )


def decoded(value: Any) -> Any:
    """Return the plain value that :func:`encoded` wrote, with tuples for lists; raise PlanError for anything else."""
    try:
        return _decoded(value)
    except (ValueError, TypeError, ArithmeticError, KeyError, OSError) as error:
        raise PlanError("from_json", "not a value", f"found {value!r}") from error


def _decoded(value: Any) -> Any:
    """Return the plain value of some JSON; raise ValueError, or what the value's type raises, for anything else."""
    match value:
        case None | bool() | int() | str():
            return value
        case list():
            return tuple(_decoded(v) for v in value)
        case {"float": str(text), **rest} if not rest:
            return float(text)
        case {"bytes": str(text), **rest} if not rest:
            return bytes.fromhex(text)
        case {"decimal": str(text), **rest} if not rest:
            return Decimal(text)
        case {"date": str(text), **rest} if not rest:
            return dt.date.fromisoformat(text)
        case {"timedelta": int(micros), **rest} if not rest:
            return micros * _MICROSECOND
        case {"datetime": str(text), **rest} if rest.keys() <= {"fold", "zone"}:
            fold: Any = rest.get("fold", 0)
            instant = dt.datetime.fromisoformat(text).replace(fold=fold)
            return instant.replace(tzinfo=_read_zone(rest["zone"])) if "zone" in rest else instant
    raise ValueError(value)


def _read_zone(zone: Any) -> dt.tzinfo:
    """Return the time zone that :func:`_zone` wrote; raise ValueError, or what the zone raises, for anything else."""
    match zone:
        case int(micros):
            return dt.timezone(micros * _MICROSECOND)
        case [int(micros), str(name)]:
            return dt.timezone(micros * _MICROSECOND, name)
        case str(key):
            return ZoneInfo(key)
    raise ValueError(zone)


def plain_hooks() -> dict[Any, Callable[[Any], Any]]:
    """Return dacite's hooks by type, for integers and for words, which JSON has as strings; a hook refuses any other value."""
    return {int: _integer, **{words: partial(_word, words) for words in Word.__subclasses__()}}


def _integer(value: Any) -> Any:
    """Return an integer; raise WrongTypeError for a boolean, which is an ``int`` in Python."""
    if isinstance(value, bool):
        raise dacite.WrongTypeError(int, value)
    return value


def _word(words: type[Word], value: Any) -> Word:
    """Return the member of an enumeration of words that a string names; raise WrongTypeError if there is none."""
    try:
        return words(value)
    except ValueError as error:
        raise dacite.WrongTypeError(words, value) from error


_WRITE, _READ = "to_json", "from_json"


def module_to_json(module: UserModule) -> dict[str, Any]:
    """Return a module as JSON; raise PlanError for one without a name, and for options that cannot be written."""
    if module.name == UNNAMED:
        hint = f'Give it a name: sq.{module.kind}(..., name="f")(lambda v: ...).'
        raise PlanError(_WRITE, "a function without a name cannot be written", f"found {module!r}", hint)
    return {
        "module": module.name,
        "kind": module.kind,
        "registered_in": module.registered_in,
        "package": modules.package_of(module),
        "digest": module.with_options({}).digest,
        "options": {name: _option(module, name) for name in sorted(module.options)},
    }


def _option(module: UserModule, name: str) -> Any:
    """Return an option of a module as JSON; raise PlanError, which names the option, if it cannot be written."""
    value = module.options[name]
    try:
        return encoded_option(value)
    except PlanError as error:
        hint = "Give numbers, texts, instants, or tuples, lists and dictionaries of them."
        wrong = f"{name} of {module.name} cannot be written"
        raise PlanError(_WRITE, wrong, f"found {value!r}", hint) from error


def module_from_json(entry: Mapping[str, Any]) -> UserModule:
    """Return the repository's module that an entry written by :func:`module_to_json` names, with the entry's options.

    Raises PlanError if the repository has no module of that name, or one of another kind or with other code. Also raises
    PlanError for an entry of another form, and for options that are no values.
    """
    match entry:
        case {
            "module": str(name),
            "kind": str(kind),
            "registered_in": str(registered_in),
            "package": str(package),
            "digest": str(digest),
            "options": dict(options),
            **rest,
        } if not rest:
            place = f"{place_of(registered_in)}{f' (package {package})' if package else ''}"
        case _:
            raise PlanError(_READ, "not a module", f"found {dict(entry)!r}")
    if name not in modules:
        wrong = f"no module {name!r}, a {kind} that was registered in {place}"
        hint = " ".join(filter(None, (_how_to_get(registered_in, package), modules.not_loaded)))
        raise PlanError(_READ, wrong, f"there are: {', '.join(modules) or 'none'}", hint)
    module = modules.get(name)
    here = f"it was registered in {module.place}, that one in {place}"
    if module.kind != kind:
        wrong = f"the module {name!r} is a {module.kind}, the query was written with a {kind}"
        raise PlanError(_READ, wrong, here, "Give one of them another name.")
    if module.with_options({}).digest != digest:
        wrong = f"the module {name!r} is not the code that the query was written with"
        raise PlanError(_READ, wrong, here, "Load the code of then, or write the query anew.")
    return module.with_options({option: decoded_option(value) for option, value in options.items()})


def _how_to_get(registered_in: str, package: str) -> str:
    """Return, for an error, the advice on how to get a module that the repository lacks."""
    if place_of(registered_in) == SCRIPT:
        return "Define it first."
    return f"Import {registered_in} first{f', or install {package}' if package else ''}."
