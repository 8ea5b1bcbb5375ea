"""``udso``: a user's operator that goes from event to event with a state, for the verb ``scan``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.plan.expr import Alias, Expr, as_expr
from streamq.plan.fingerprint import text_of
from streamq.plan.lazy import lazy
from streamq.plan.tree import show
from streamq.runtime.user_code.calls import StepCall
from streamq.runtime.user_code.code_values import RowShape
from streamq.user_code.forms import StatefulCode, check_steps, row_shape, steps_of
from streamq.user_code.module import UserModule, check_properties, guards_of, name_of, rows_returned
from streamq.user_code.repository import modules
from streamq.user_code.signature import QueryCall, argument_names, check_call, check_decorator


@check_decorator
def udso(
    returns: str | t.StructType,
    *,
    initial: Any = ...,
    time_sensitive: bool = False,
    name: str | None = None,
    properties: Iterable[Any] = (),
    time_limit: float | None = None,
    checked: bool = False,
    on_error: str = "fail",
) -> Callable[[Any], StatefulOperator]:
    """Make Python code an operator that goes from event to event with a state, for ``scan``.

    ``returns`` are the columns of its rows, as in SQL: ``"k string, delta double"``. The code is a class with ``initial()``,
    which returns the state before the first event, and ``step(state, *values)``, which returns ``(state, rows)``: the state
    after an event, and an iterable of rows, or None. A row is a dictionary by column, a tuple in the order of the columns,
    or, if there is one column, its value. Or the code is a function ``f(state, *values)`` that returns the same, with its
    first state as ``initial``.

    A step returns a new state, and does not change the old one; states are pickled. ``time_sensitive``: a step takes the start of
    the event before its values, ``step(state, start, *values)``: an integer, or on a timestamp axis a Timestamp in UTC.
    ``properties`` are promises; none applies to these operators yet. ``time_limit``: the seconds that one step may take.
    ``checked``: every step is made twice, the second time on copies, and fails if the results differ. ``on_error``: "fail",
    or "quarantine", which sets aside an event whose step fails: the state stays as it was before the event.

    Called with columns, names of columns or expressions, it returns the argument of ``scan``; keyword arguments are plain values,
    passed to the class when it is made, or to the function; ``where`` is a filter. The code must be deterministic. Raises
    PlanError, TypeMismatch. (docs/modules.md; Ali et al., The Extensibility Framework in Microsoft StreamInsight, section V)

    >>> import streamq as sq
    >>> @sq.udso("delta bigint")
    ... class Delta:
    ...     def initial(self):
    ...         return None
    ...
    ...     def step(self, last, value):
    ...         return value, None if last is None else [value - last]
    >>> s = sq.events([(1, 2, {"k": "a", "v": 2}), (3, 4, {"k": "a", "v": 7}), (4, 5, {"k": "b", "v": 1})]).to_points()
    >>> s.group_by("k").scan(Delta("v")).show()
    k  delta  start  end
    a      5      3    4
    """
    row = rows_returned("udso", returns)
    guards = guards_of("udso", time_limit=time_limit, checked=checked, on_error=on_error)
    if promises := check_properties(properties, "udso"):
        shown = ", ".join(map(str, promises))
        raise PlanError(sentence("udso", "a property that does not apply to stateful operators", f"found {shown}"))

    def decorate(code: Any) -> StatefulOperator:
        own_name = name_of(code, name)
        check_steps(own_name, code, initial, sensitive=time_sensitive)
        fields = {"name": own_name, "code": code, "returns": row, "initial": initial, "time_sensitive": time_sensitive}
        return modules.register(StatefulOperator(**fields, **guards))

    return decorate


class EventOperator(ABC):
    """An operator that goes from event to event with a state: a user's code, or one of streamq's own, under a ``name``.

    Plans identify a user's by its name in the repository, and one of streamq's own by the fields of its dataclass.
    """

    name: str

    @property
    def sets_aside(self) -> bool:
        """True if an event for which it fails is set aside, and the query goes on."""
        return False

    @property
    @abstractmethod
    def fields(self) -> tuple[t.StructField, ...]:
        """The columns of its rows."""

    @abstractmethod
    def calling(self, values: int) -> StepCall:
        """Return the call for events of this many values; raises PlanError if it cannot be called so."""

    def shown(self, args: Sequence[Expr]) -> str:
        """Return its form in explain over ``args``."""
        return f"{self.name}({', '.join(map(show, args))})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatefulOperator(UserModule, EventOperator):
    """User code that goes from event to event; ``initial`` is the first state if the code is a function."""

    kind = "udso"

    initial: Any = ...
    time_sensitive: bool = False

    @property
    def held(self) -> tuple[Any, ...]:
        return () if self.initial is ... else (self.initial,)

    @property
    def identity(self) -> str:
        initial = "" if self.initial is ... else text_of(self.initial)
        parts = [self.returns.json(), self.fingerprint, initial, self.told_options, str(self.time_sensitive)]
        parts += [str(self.time_limit), str(self.checked), *([self.on_error] if self.sets_aside else [])]
        return f"udso {self.name}:{':'.join(parts)}"

    def __call__(self, *operands: Any, where: Any = None, **options: Any) -> StatefulCall:
        """Return the operator over ``operands``, columns or names of columns, for events for which ``where`` is true.

        Keyword arguments are plain values: parameters of the class when it is made, or of the function.
        """
        operator = self.called_with(options)
        args = self.columns_of(operands)
        operator.calling(len(operands))  # called here, so that errors are raised at the user's line
        bare = tuple(arg.arg if isinstance(arg, Alias) else arg for arg in args)
        return StatefulCall(operator, bare, None if where is None else as_expr(where))

    @property
    def example_call(self) -> str:
        return f"scan({super().example_call})"

    @lazy
    def steps(self) -> StatefulCode:
        """The code in the form in which it is called, made once."""
        return steps_of(self.name, self.code, self.initial, self.options)

    def calling(self, values: int) -> StepCall:
        steps, before = self.steps, 1 + self.time_sensitive
        check_call(self.name, self.code, QueryCall(values, steps.options, before, steps.method))
        return StepCall(
            initial=steps.initial,
            step=steps.step,
            names=argument_names(steps.own, values, skipped=before),
            rows=row_shape(self.fields, RowShape),
            sensitive=self.time_sensitive,
            **self.guards,
        )


@dataclass(frozen=True)
class StatefulCall:
    """A stateful operator over columns, the argument of ``scan``."""

    operator: StatefulOperator
    args: tuple[Expr, ...]
    where: Expr | None

    def __repr__(self) -> str:
        return f"{self.operator.shown(self.args)}, which .scan(...) takes"


__all__ = ["StatefulCall", "StatefulOperator", "udso"]
