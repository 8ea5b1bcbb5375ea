"""Forms of user code over the members of a window: a function of all members, a class with states, and Spark's Aggregator."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from streamq.errors import PlanError, counted
from streamq.runtime.user_code.calls import ModuleStates
from streamq.runtime.user_code.event_readers import read_frame, read_series, read_values
from streamq.user_code.signature import (
    WITH_TIME,
    QueryCall,
    check_method,
    check_methods,
    has_states,
    make_object,
    positional_parameters,
    public_methods,
    signature_without_self,
    takes_any_number,
)


@dataclass(frozen=True)
class WindowForm(ABC):
    """The form of a user's ``code`` over windows: the arguments that it must take, and the calls that hosts make of it.

    verb: the decorator, and name: the module's, for errors; sensitive: the code reads lifetimes.
    """

    verb: str
    name: str
    code: Any
    sensitive: bool = False

    adding: ClassVar[str] = ""
    """The method that takes the arguments, after the state; empty: the code is called itself."""

    @abstractmethod
    def check(self) -> None:
        """Raise PlanError if the code lacks a method, or does not take the arguments of its calls."""

    @abstractmethod
    def query_call(self, columns: int, options: Mapping[str, Any]) -> QueryCall:
        """Return the call that a query makes of the code, or of its method ``adding``, with this many columns."""

    def check_call(self, columns: int, options: Mapping[str, Any]) -> None:
        """Raise PlanError if the code cannot be called with this many columns and these options."""
        self.query_call(columns, options).check(self.name, self.code)

    def argument_names(self, count: int) -> tuple[str, ...]:
        """Return the names that the code has for its ``count`` arguments; generated ones for those without a name."""
        return self.query_call(count, {}).argument_names(self.code, count)

    @abstractmethod
    def states(self, options: Mapping[str, Any], *, order_insensitive: bool = False) -> ModuleStates:
        """Return the states of the code, with the options; raises PlanError if it does not take them.

        order_insensitive: a function does not depend on the order of the members.
        """

    def _states(self, options: Mapping[str, Any], *methods: Any, **fields: Any) -> ModuleStates:
        """Return states with these methods, in the order of :class:`ModuleStates`; ``fields`` replaces its other fields."""
        read = read_frame if self.sensitive else read_series
        common = {"code": self.code, "options": dict(options), "sensitive": self.sensitive, "read": read}
        return ModuleStates(self.name, *methods, **{**common, **fields})


class FunctionForm(WindowForm):
    """A function of a pandas Series per argument, or of events and window; also an object or a type that is called like one.

    Its state is the events so far.
    """

    def check(self) -> None:
        """Raise PlanError if time-sensitive code takes fewer than two arguments, or other code begins with (events, window).

        Code without a signature, as some C functions are, passes.
        """
        signature = signature_without_self(self.code)
        if signature is None:
            return
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
        return QueryCall(0, options, leading=2) if self.sensitive else QueryCall(columns, options)

    def states(self, options: Mapping[str, Any], *, order_insensitive: bool = False) -> ModuleStates:
        """Return states that are a window's events themselves, without parts: the result calls the function with all of them."""
        is_type = inspect.isclass(self.code)
        function = self.code if is_type else make_object(self.name, self.code, options, self.verb)
        result: Callable[..., Any] = (
            (lambda events, window: function(events, window, **options))
            if self.sensitive
            else (lambda values: function(*values, **options))
        )
        methods = (lambda: None, lambda _, events: events, result)
        return self._states(options, *methods, in_parts=False, any_order=order_insensitive)


class ClassForm(WindowForm):
    """A class, made with the options, or an object, with the methods of one of the forms with states."""

    methods: ClassVar[Mapping[str, str]]
    """The methods that it must have, with their arguments."""

    def check(self) -> None:
        """Raise PlanError if a needed method is missing, or if a method that is there does not take its arguments."""
        check_methods(self.name, self.code, self.methods)
        for method, arguments in self._arguments().items():
            if getattr(self.code, method, None) is not None:
                check_method(self.name, self.code, method, arguments)

    @abstractmethod
    def _arguments(self) -> Mapping[str, str]:
        """Return the arguments of each method that it may have, as text, by the method's name."""

    def query_call(self, columns: int, options: Mapping[str, Any]) -> QueryCall:
        return QueryCall(1, {}, leading=1, method=self.adding)


class IncrementalForm(ClassForm):
    """``initial()``, ``add(state, values)``, ``result(state)``, and optionally ``remove(state, values)`` and ``merge(a, b)``."""

    methods = {"initial": "", "add": "state, *values", "result": "state"}
    adding = "add"

    def _arguments(self) -> Mapping[str, str]:
        arguments = {**self.methods, "remove": "state, *values", "merge": "a, b"}
        of_time = {"add": "state, events", "remove": "state, events", "result": "state, window"}
        return {**arguments, **of_time} if self.sensitive else arguments

    def query_call(self, columns: int, options: Mapping[str, Any]) -> QueryCall:
        # without lifetimes it takes a Series per argument
        call = super().query_call(columns, options)
        return call if self.sensitive else replace(call, columns=columns)

    def states(self, options: Mapping[str, Any], *, order_insensitive: bool = False) -> ModuleStates:
        """Return states by the methods of an object of the class, made with the options; None for a missing optional method."""
        module = make_object(self.name, self.code, options, self.verb)
        spread: Any = (lambda method: method) if self.sensitive else _spread
        remove, merge = getattr(module, "remove", None), getattr(module, "merge", None)
        methods = (module.initial, spread(module.add), module.result, remove and spread(remove), merge)
        return self._states(options, *methods)


class AggregatorForm(ClassForm):
    """The shape of Spark's Aggregator: ``zero()``, or a value; ``reduce(buffer, value)``, ``merge(a, b)``, ``finish(buffer)``.

    It reduces one value (a tuple of several) at a time into a buffer. Its methods may change and return the buffer, so they
    get a copy of it, ``merge`` of the first one.
    """

    methods = {"zero": "", "reduce": "buffer, value", "merge": "a, b", "finish": "buffer"}
    adding = "reduce"

    def _arguments(self) -> Mapping[str, str]:
        return {name: arguments for name, arguments in self.methods.items() if callable(getattr(self.code, name))}

    def states(self, options: Mapping[str, Any], *, order_insensitive: bool = False) -> ModuleStates:
        """Return states that are buffers, to which events are added one by one; raises PlanError for time-sensitive code."""
        module = make_object(self.name, self.code, options, self.verb)
        if self.sensitive:
            hint = "Give initial(), add(state, events) and result(state, window)."
            raise PlanError(self.verb, "Spark's Aggregator does not know time", f"found {self.name}", hint)

        def zero() -> Any:
            return copy.deepcopy(module.zero() if callable(module.zero) else module.zero)

        def reduce(buffer: Any, events: Sequence[Any]) -> Any:
            """Return a copy of the buffer with the events added, one call each."""
            buffer = copy.deepcopy(buffer)
            for event in events:
                buffer = module.reduce(buffer, event)
            return buffer

        def merge(a: Any, b: Any) -> Any:
            return module.merge(copy.deepcopy(a), b)

        def finish(buffer: Any) -> Any:
            return module.finish(copy.deepcopy(buffer))

        return self._states(options, zero, reduce, finish, merge=merge, read=read_values)


def window_form(verb: str, name: str, code: Any, *, time_sensitive: bool = False) -> WindowForm:
    """Return the form of code over windows; a class or an object with states has the form of which it has more methods.

    If it has as many of both, its form is the incremental one.
    """
    if not has_states(code):
        return FunctionForm(verb, name, code, time_sensitive)
    public = public_methods(code)
    of_spark = {*AggregatorForm.methods} - {"merge"}
    is_of_spark = len(of_spark & public) > len({*IncrementalForm.methods} & public)
    return (AggregatorForm if is_of_spark else IncrementalForm)(verb, name, code, time_sensitive)


def is_window_code(code: Any) -> bool:
    """True if an object may be code over windows: it can be called, or has a method that takes members."""
    return callable(code) or hasattr(code, "add") or hasattr(code, "reduce")


def _spread(method: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a method that takes all arguments as one value, for one that takes a Series per argument."""
    return lambda state, values: method(state, *values)
