"""Modules of the user's own as JSON: by name, with their options, and with a digest that shows if their code has changed.

``{"module": "size", "kind": "udf", "registered_in": "my_pkg.tolls", "package": "", "digest": ..., "options": {"limit": 3}}``.
Reading looks the name up in the repository and imports nothing that the text names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamq.compiler.constants_json import decoded_option, encoded_option
from streamq.errors import PlanError, sentence
from streamq.user_code.module import SCRIPT, UNNAMED, UserModule, place_of
from streamq.user_code.repository import modules

_WRITE, _READ = "to_json", "from_json"


def module_to_json(module: UserModule) -> dict[str, Any]:
    """Return a module as JSON; raise PlanError for one without a name, and for options that cannot be written."""
    if module.name == UNNAMED:
        hint = f'Give it a name: sq.{module.kind}(..., name="f")(lambda v: ...).'
        raise PlanError(sentence(_WRITE, "a function without a name cannot be written", f"found {module!r}", hint))
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
        raise PlanError(sentence(_WRITE, wrong, f"found {value!r}", hint)) from error


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
            raise PlanError(sentence(_READ, "not a module", f"found {dict(entry)!r}"))
    if name not in modules:
        wrong = f"no module {name!r}, a {kind} that was registered in {place}"
        hint = " ".join(filter(None, (_how_to_get(registered_in, package), modules.not_loaded)))
        raise PlanError(sentence(_READ, wrong, f"there are: {', '.join(modules) or 'none'}", hint))
    module = modules.get(name)
    here = f"it was registered in {module.place}, that one in {place}"
    if module.kind != kind:
        wrong = f"the module {name!r} is a {module.kind}, the query was written with a {kind}"
        raise PlanError(sentence(_READ, wrong, here, "Give one of them another name."))
    if module.with_options({}).digest != digest:
        wrong = f"the module {name!r} is not the code that the query was written with"
        raise PlanError(sentence(_READ, wrong, here, "Load the code of then, or write the query anew."))
    return module.with_options({option: decoded_option(value) for option, value in options.items()})


def _how_to_get(registered_in: str, package: str) -> str:
    """Return, for an error, the advice on how to get a module that the repository lacks."""
    if place_of(registered_in) == SCRIPT:
        return "Define it first."
    return f"Import {registered_in} first{f', or install {package}' if package else ''}."


__all__ = ["module_from_json", "module_to_json"]
