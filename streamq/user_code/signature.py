"""Signatures of user code: checks of the methods that it must have, and of the arguments that they must take."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamq.errors import PlanError, counted, nearest
from streamq.plan.schema import unnamed_argument

FORM_METHODS = ("initial", "add", "result", "zero", "reduce", "merge", "finish", "step")
"""The methods that the forms of code with states ask for."""

_MARKS = ("initial", "result", "step", "zero", "finish")
"""The methods that only objects with states have; ``add`` and ``reduce`` also occur in other classes."""

WITH_TIME = "With time_sensitive=True"
"""The beginning of a hint about lifetimes."""


def has_states(code: Any) -> bool:
    """Return True if code is meant to have states: it is no function, nor a type such as ``list`` that is called like one.

    A class needs any public method, or ``initial`` or ``zero`` if it is iterable. An object that can be called needs one of
    ``initial``, ``result``, ``step``, ``zero``, ``finish``. Any other object is meant to have states, so that a misspelt method
    is reported.
    """
    if inspect.isclass(code):
        has_first_state = hasattr(code, "initial") or hasattr(code, "zero")
        return has_first_state or (not hasattr(code, "__iter__") and bool(public_methods(code)))
    if inspect.isroutine(code):
        return False
    return not callable(code) or any(hasattr(code, mark) for mark in _MARKS)


def public_methods(code: Any) -> set[str]:
    """Return the names of the public methods, written in Python, of a class or an object, and of its known methods."""
    kind = code if inspect.isclass(code) else type(code)
    names = {n for owner in kind.__mro__ for n, method in vars(owner).items() if _is_written(method)}
    return {n for n in names if not n.startswith("_")} | {n for n in FORM_METHODS if hasattr(code, n)}


def _is_written(method: Any) -> bool:
    plain = method.__func__ if isinstance(method, staticmethod | classmethod) else method
    return inspect.isfunction(plain)


def check_methods(name: str, code: Any, needed: Mapping[str, str]) -> None:
    """Raise PlanError if one of the ``needed`` methods, by name with their arguments, is missing or is no method.

    ``zero`` may be a value.
    """
    public = public_methods(code)
    missing = [m for m in needed if getattr(code, m, None) is None]
    if missing:
        shown = ", ".join(f"{m}({needed[m]})" for m in missing)
        others = sorted(public - {*needed})
        close = [(m, near) for m in missing for near in difflib.get_close_matches(m, others, n=1, cutoff=0.6)]
        hint = f"Is {close[0][1]!r} meant to be {close[0][0]!r}?" if close else ""
        what = f"found {', '.join(sorted(public))}" if public else "found no method"
        raise PlanError(name, f"it has no {shown}", what, hint)
    for method in needed:
        if method != "zero" and not callable(getattr(code, method)):
            raise PlanError(name, f"{method} is a method", f"found {getattr(code, method)!r}")


def check_method(name: str, code: Any, method: str, arguments: str) -> None:
    """Raise PlanError if a method does not take the ``arguments`` of its calls, a text such as ``state, *values``.

    A star stands for any number. A method without a signature, as some C functions are, passes.
    """
    signature = signature_without_self(code, method)
    if signature is None:
        return
    count = len([a for a in arguments.split(", ") if a and not a.startswith("*")])
    # the number of values depends on the query
    spare = positional_parameters(signature)[count:] if "*" in arguments else []
    try:
        signature.bind(*range(count + sum(p.default is p.empty for p in spare)))
    except TypeError:
        is_timed = "window" in arguments or "events" in arguments
        asks = "window" in signature.parameters and not is_timed
        hint = f"{WITH_TIME} it gets the window." if asks else "It is time-sensitive." if is_timed else ""
        wrong = f"{method} is called with ({arguments})"
        raise PlanError(name, wrong, f"it is {method}{signature}", hint) from None


@dataclass(frozen=True)
class QueryCall:
    """A call of code by a query: ``columns`` by position, after ``leading`` arguments from streamq, and ``options``.

    method: the name of the method, if it is one.
    """

    columns: int
    options: Mapping[str, Any]
    leading: int = 0
    method: str = ""

    def check(self, name: str, code: Any) -> None:
        """Raise PlanError if code, or a method of it, does not take this many columns or these options; ``name``: for errors.

        Code without a signature passes.
        """
        signature = signature_without_self(code, self.method)
        if signature is None:
            return
        shown = f"Its {self.method} is {self.method}{signature}." if self.method else f"It is {name}{signature}."
        check_options(name, signature, self.options, shown, skipped=self.leading)
        own = self._parameters(signature)
        least = sum(p.default is p.empty for p in own)
        most = None if takes_any_number(signature) else len(own)
        has_count = bool(self.columns) or not self.leading
        if has_count and (self.columns < least or (most is not None and self.columns > most)):
            missing = [p.name for p in own[self.columns :] if p.default is p.empty]
            hint = f"{WITH_TIME} it gets (events, window). " if "window" in missing and not self.leading else ""
            wrong = f"it is called with {counted(self.columns, 'column')}"
            raise PlanError(name, wrong, f"it takes {_shown_range(least, most)}", hint + shown)
        try:
            signature.bind(*range(self.leading + self.columns), **self.options)
        except TypeError as error:
            raise PlanError(name, "it cannot be called so", str(error), shown) from None

    def argument_names(self, code: Any, count: int) -> tuple[str, ...]:
        """Return the names that code, or its method, has for ``count`` columns; generated ones for those without a name."""
        signature = signature_without_self(code, self.method)
        parameters = [] if signature is None else [p.name for p in self._parameters(signature)][:count]
        return (*parameters, *map(unnamed_argument, range(len(parameters), count)))

    def _parameters(self, signature: inspect.Signature) -> list[inspect.Parameter]:
        """Return the parameters that take columns: those by position, without options and leading arguments."""
        positional = positional_parameters(signature)
        by_position = [p for p in positional if p.name not in self.options or p.kind is p.POSITIONAL_ONLY]
        return by_position[self.leading :]


def check_options(
    name: str, signature: inspect.Signature, options: Mapping[str, Any], shown: str, *, skipped: int = 0
) -> None:
    """Raise PlanError for an option that is no parameter, with the nearest one; ``shown`` is the signature as a sentence.

    ``skipped``: the number of leading parameters that are no options.
    """
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [p.name for p in [*signature.parameters.values()][skipped:] if p.kind in kinds]
    for option in options:
        if option not in names:
            hint = f"{nearest(option, names)} {shown}".strip()
            raise PlanError(name, f"no parameter {option!r}", "", hint)


def make_object(name: str, code: Any, options: Mapping[str, Any], verb: str = "") -> Any:
    """Return an object of a class, made with the options; return code that is no class unchanged.

    Raises PlanError if the class does not take these options, and for an object with options, because only classes and
    functions take them.
    """
    if not inspect.isclass(code):
        if options and not inspect.isroutine(code):
            hint = "Give the class, which is made with them, or a function."
            raise PlanError(verb or name, "an object takes no parameters", f"found {', '.join(options)}", hint)
        return code
    signature = signature_without_self(code)
    shown = f"It is {name}{signature or '(...)'}."
    if signature is not None:
        check_options(name, signature, options, shown)
    try:
        return code(**options)
    except TypeError as error:
        raise PlanError(name, "it cannot be made", str(error), shown) from error


def signature_without_self(code: Any, method: str = "") -> inspect.Signature | None:
    """Return the signature of code, or of its method, without types; None if Python knows none, as for some C functions."""
    called = getattr(code, method) if method else code
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return None
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    if method and inspect.isclass(code) and inspect.isfunction(inspect.getattr_static(code, method)):
        parameters = parameters[1:]
    return signature.replace(parameters=parameters, return_annotation=signature.empty)


def positional_parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def takes_any_number(signature: inspect.Signature) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())


def _shown_range(least: int, most: int | None) -> str:
    """Return a number of columns as text, from ``least`` to ``most``."""
    if most is None:
        return f"at least {least}"
    return str(least) if least == most else f"{least} to {most}" if least else f"at most {most}"
