"""Forms of user code, and checks of its signatures: functions, classes with states, Spark's Aggregator, classes of steps."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from streamq.errors import PlanError, counted, nearest
from streamq.plan.schema import unnamed_argument
from streamq.runtime.user_code.calls import ModuleStates
from streamq.runtime.user_code.code_values import read_frame, read_series, read_values

WITH_TIME = "With time_sensitive=True"
"""The beginning of a hint about lifetimes."""


@dataclass(frozen=True)
class StateMethods:
    """The methods of code with states, each with its arguments as text, in which a star stands for any number of them.

    needed: those that it must have; adding: the one that takes a query's columns; optional: those that it may have; timed: the
    arguments of time-sensitive code, where they differ.
    """

    needed: Mapping[str, str]
    adding: str
    optional: Mapping[str, str] = field(default_factory=dict)
    timed: Mapping[str, str] = field(default_factory=dict)

    def check(self, name: str, code: Any, *, is_timed: bool) -> None:
        """Raise PlanError, about ``name``, for a method that is missing or is none, or does not take the arguments of its calls.

        ``zero`` may be a value. A method without a signature, as some C functions are, passes.
        """
        arguments = {**self.needed, **self.optional, **(self.timed if is_timed else {})}
        public = public_methods(code)
        missing = [method for method in self.needed if getattr(code, method, None) is None]
        if missing:
            shown = ", ".join(f"{method}({arguments[method]})" for method in missing)
            others = sorted(public - {*self.needed})
            close = [(m, near) for m in missing for near in difflib.get_close_matches(m, others, n=1, cutoff=0.6)]
            hint = f"Is {close[0][1]!r} meant to be {close[0][0]!r}?" if close else ""
            what = f"found {', '.join(sorted(public))}" if public else "found no method"
            raise PlanError(name, f"it has no {shown}", what, hint)
        for method, takes in arguments.items():
            value = getattr(code, method, None)
            if callable(value):
                _check_arguments(name, code, method, takes)
            elif value is not None and method != "zero":
                raise PlanError(name, f"{method} is a method", f"found {value!r}")


def _check_arguments(name: str, code: Any, method: str, arguments: str) -> None:
    """Raise PlanError if a method does not take the ``arguments`` of its calls, a text such as ``state, *values``."""
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


INCREMENTAL = StateMethods(
    {"initial": "", "add": "state, *values", "result": "state"},
    adding="add",
    optional={"remove": "state, *values", "merge": "a, b"},
    timed={"add": "state, events", "remove": "state, events", "result": "state, window"},
)
AGGREGATOR = StateMethods({"zero": "", "reduce": "buffer, value", "merge": "a, b", "finish": "buffer"}, adding="reduce")
STEPWISE = StateMethods(
    {"initial": "", "step": "state, *values"}, adding="step", timed={"step": "state, start, *values"}
)

_METHODS = tuple({**INCREMENTAL.needed, **AGGREGATOR.needed, **STEPWISE.needed})

_MARKS = ("initial", "result", "step", "zero", "finish")
"""The methods that only objects with states have; ``add`` and ``reduce`` also occur in other classes."""


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
    return {n for n in names if not n.startswith("_")} | {n for n in _METHODS if hasattr(code, n)}


def _is_written(method: Any) -> bool:
    plain = method.__func__ if isinstance(method, staticmethod | classmethod) else method
    return inspect.isfunction(plain)


# code over windows


@dataclass(frozen=True)
class WindowForm:
    """The form of a user's ``code`` over windows: the arguments that it must take, and the calls that hosts make of it.

    verb: the decorator, and name: the module's, for errors; sensitive: the code reads lifetimes. methods: those that it has;
    None: it is a function of a pandas Series per argument, or of events and window, or an object or a type that is called like
    one.
    """

    verb: str
    name: str
    code: Any
    sensitive: bool
    methods: StateMethods | None

    def check(self) -> None:
        """Raise PlanError if the code lacks a method, or does not take the arguments of its calls."""
        if self.methods is not None:
            self.methods.check(self.name, self.code, is_timed=self.sensitive)
        elif (signature := signature_without_self(self.code)) is not None:
            self._check_function(signature)

    def _check_function(self, signature: inspect.Signature) -> None:
        """Raise PlanError if a time-sensitive function takes fewer than two arguments, or another has (events, window) first."""
        parameters = positional_parameters(signature)
        if self.sensitive and len(parameters) < 2 and not takes_any_number(signature):
            wrong = "a time-sensitive function is called with (events, window)"
            takes = f"it takes {counted(len(parameters), 'argument')}"
            raise PlanError(self.name, wrong, takes, f"It is {self.name}{signature}.")
        if not self.sensitive and [p.name for p in parameters[:2]] == ["events", "window"]:
            hint = f"{WITH_TIME} it gets them; without it, a Series an argument."
            wrong = "events and a window are asked for"
            raise PlanError(self.name, wrong, "it is not time-sensitive", hint)

    def query_call(self, columns: int, options: Mapping[str, Any]) -> QueryCall:
        """Return the call that a query makes of the code, or of its method that takes columns, with this many of them."""
        if self.methods is None:
            return QueryCall(0, options, leading=2) if self.sensitive else QueryCall(columns, options)
        takes_one = self.sensitive or self.methods is AGGREGATOR
        return QueryCall(1 if takes_one else columns, {}, 1, self.methods.adding)

    def states(self, options: Mapping[str, Any], *, order_insensitive: bool = False) -> ModuleStates:
        """Return the states of the code, with the options; raises PlanError if it does not take them.

        Those of a function are a window's events themselves, without parts: the result calls it with all of them.
        order_insensitive: it does not depend on the order of the members.
        """
        read = read_frame if self.sensitive else read_series
        if self.methods is None:
            function: Any = (
                self.code if inspect.isclass(self.code) else make_object(self.name, self.code, options, self.verb)
            )
            result: Callable[..., Any] = (
                (lambda events, window: function(events, window, **options))
                if self.sensitive
                else (lambda values: function(*values, **options))
            )
            states = ModuleStates(self.name, lambda: None, lambda _, events: events, result, read=read)
            return replace(states, sensitive=self.sensitive, in_parts=False, any_order=order_insensitive)
        module = make_object(self.name, self.code, options, self.verb)
        spread: Any = (lambda method: method) if self.sensitive else _spread
        if self.methods is AGGREGATOR:
            if self.sensitive:
                hint = "Give initial(), add(state, events) and result(state, window)."
                raise PlanError(self.verb, "Spark's Aggregator does not know time", f"found {self.name}", hint)
            module, read, spread = Buffers(module), read_values, lambda method: method
        remove, merge = (getattr(module, method, None) for method in ("remove", "merge"))
        methods = (module.initial, spread(module.add), module.result, remove and spread(remove), merge)
        return ModuleStates(self.name, *methods, sensitive=self.sensitive, read=read)


@dataclass(frozen=True)
class Buffers:
    """The buffers of an object in the shape of Spark's Aggregator as states; it reduces one value, or tuple, at a time.

    Its methods may change and return a buffer, so they get a copy of it, ``merge`` of the first one.
    """

    aggregator: Any

    def initial(self) -> Any:
        zero = self.aggregator.zero
        return copy.deepcopy(zero() if callable(zero) else zero)

    def add(self, buffer: Any, events: Sequence[Any]) -> Any:
        return reduce(self.aggregator.reduce, events, copy.deepcopy(buffer))

    def merge(self, a: Any, b: Any) -> Any:
        return self.aggregator.merge(copy.deepcopy(a), b)

    def result(self, buffer: Any) -> Any:
        return self.aggregator.finish(copy.deepcopy(buffer))


def window_form(verb: str, name: str, code: Any, *, time_sensitive: bool = False) -> WindowForm:
    """Return the form of code over windows; a class or an object with states has the form of which it has more methods.

    If it has as many of both, its form is the incremental one.
    """
    methods = None
    if has_states(code):
        public = public_methods(code)
        of_spark = {*AGGREGATOR.needed} - {"merge"}
        is_of_spark = len(of_spark & public) > len({*INCREMENTAL.needed} & public)
        methods = AGGREGATOR if is_of_spark else INCREMENTAL
    return WindowForm(verb, name, code, time_sensitive, methods)


def is_window_code(code: Any) -> bool:
    """True if an object may be code over windows: it can be called, or has a method that takes members."""
    return callable(code) or hasattr(code, "add") or hasattr(code, "reduce")


def _spread(method: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a method that takes all arguments as one value, for one that takes a Series per argument."""
    return lambda state, values: method(state, *values)


# calls by queries


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
