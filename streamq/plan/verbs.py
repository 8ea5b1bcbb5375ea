"""What every room of verbs builds on: a plan, the tables behind its sources, and how to go on from there."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, Self, TypeVar, cast

from streamq.errors import PlanError, kind_of, sentence
from streamq.plan.node import Node


class Verbs(ABC):
    """A plan and the tables by source name; each verb derives another one."""

    plan: Node
    tables: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        """A verb is called after Stream where Python itself tells of it, as in a TypeError for a missing argument."""
        named_after(cls, "Stream")

    @abstractmethod
    def _derive(self, plan: Node, *others: Verbs) -> Self:
        """A stream of that plan over the tables of this one and of ``others``."""


class Placeholder(ABC):
    """A stand-in for a stream that is not there yet: a function of streams that is called with one runs once it is."""

    @abstractmethod
    def call_later(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what stands for the result of a call that has this among its arguments."""


F = TypeVar("F", bound=Callable[..., Any])


def accepts_placeholders(function: F) -> F:
    """Have a function of streams called later where one of its arguments is not there yet."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Placeholder):
                return value.call_later(call, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, call)


def tables_behind(streams: Iterable[Verbs], verb: str) -> dict[str, Any]:
    """Return the tables behind the sources of some streams; PlanError where two sources of one name are different tables."""
    tables: dict[str, Any] = {}
    for stream in streams:
        for name, table in stream.tables.items():
            if tables.setdefault(name, table) is not table:
                reason, hint = "they are different tables", "Give each its own name=."
                raise PlanError(sentence(verb, f"two sources called {name!r}", reason, hint))
    return tables


def named_after(cls: type, name: str) -> None:
    """Call the functions of a class by a name that its users know."""
    for function in vars(cls).values():
        if inspect.isfunction(function):
            function.__qualname__ = f"{name}.{function.__name__}"


def not_a_stream(verb: str, value: Any) -> NoReturn:
    """Raise for what a verb was given instead of a stream."""
    kind = kind_of(value)
    hint = getattr(type(value), "not_yet", "")
    hint = f"Begin with the scenario: scenario.{verb}(stream)." if type(value).__name__ == "Scenario" else hint
    if kind.endswith("DataFrame") or kind == "pyarrow Table":
        hint = "Make a source of it, as sq.points(df, time=...)."
    raise PlanError(sentence(verb, "not a stream", f"found {kind}", hint))
