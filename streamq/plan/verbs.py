"""The base of all classes of verbs: a plan, the tables behind its sources, and a way to derive another stream."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, Self, TypeVar, cast

from streamq.errors import PlanError, kind_of, sentence
from streamq.keywords import CallResult, check_keywords
from streamq.plan.node import Node


class Verbs(CallResult, ABC):
    """A plan and its tables by source name; each verb derives another one."""

    plan: Node
    tables: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        """Name the verbs after Stream in Python's own messages, as in a TypeError for a missing argument."""
        named_after(cls, "Stream")

    @abstractmethod
    def _derive(self, plan: Node, *others: Verbs) -> Self:
        """Return a stream of that plan over the tables of this one and of ``others``."""


class Placeholder(ABC):
    """A stand-in for a stream that does not exist yet; a function called with one runs as soon as the stream exists."""

    @abstractmethod
    def call_later(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the placeholder of the result of a call that has this among its arguments."""


F = TypeVar("F", bound=Callable[..., Any])


def accepts_placeholders(function: F) -> F:
    """Decorate a function of streams: a call with a placeholder as an argument returns a placeholder, and is made later."""

    # so that what is made later remembers the call, too
    later = check_keywords(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Placeholder):
                return value.call_later(later, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, call)


def tables_behind(streams: Iterable[Verbs], verb: str) -> dict[str, Any]:
    """Return the tables behind the sources of some streams, by name.

    Raises PlanError if two sources of one name have different tables; two objects are different, even with equal rows.
    """
    tables: dict[str, Any] = {}
    for stream in streams:
        for name, table in stream.tables.items():
            if tables.setdefault(name, table) is not table:
                reason, hint = "they are different tables", "Give each its own name=."
                raise PlanError(sentence(verb, f"two sources called {name!r}", reason, hint))
    return tables


def named_after(cls: type, name: str) -> None:
    """Set the qualified names of a class's functions to ``name.function``, and check the keywords of public ones."""
    functions = {attribute: function for attribute, function in vars(cls).items() if inspect.isfunction(function)}
    for function in functions.values():
        function.__qualname__ = f"{name}.{function.__name__}"
    # two names of one function stay names of one
    checked = {function: check_keywords(function) for function in functions.values()}
    for attribute, function in functions.items():
        if not attribute.startswith("_"):
            setattr(cls, attribute, checked[function])


def not_a_stream(verb: str, value: Any) -> NoReturn:
    """Raise PlanError for an argument that is not a stream."""
    kind = kind_of(value)
    hint = getattr(type(value), "not_yet", "")
    hint = f"Begin with the scenario: scenario.{verb}(stream)." if type(value).__name__ == "Scenario" else hint
    if kind.endswith("DataFrame") or kind == "pyarrow Table":
        hint = "Make a source of it, as sq.points(df, time=...)."
    raise PlanError(sentence(verb, "not a stream", f"found {kind}", hint))
