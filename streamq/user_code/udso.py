"""``udso``: a user's operator that goes from event to event with a state, for the verb ``scan``."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import PlanError
from streamq.plan.expr import Alias, Expr, as_expr
from streamq.plan.tree import lazy, show
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.scan import ModuleScanEvaluator, ScanEvaluator, ScanKernel
from streamq.runtime.user_code.calls import StepCall
from streamq.runtime.user_code.code_values import RowShape
from streamq.user_code.forms import STEPWISE, QueryCall, has_states, make_object
from streamq.user_code.module import UserModule, check_decorator
from streamq.user_code.repository import decorator


@check_decorator
def udso(
    returns: str | t.StructType,
    *,
    initial: Any = ...,
    time_sensitive: bool = False,
    arguments: str | DataType | Iterable[str | DataType] = (),
    name: str | None = None,
    properties: Iterable[Any] = (),
    time_limit: float | None = None,
    checked: bool = False,
    on_error: str = "fail",
    version: int = 1,
    compatible_with: int | None = None,
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
    ``checked``: every step is made twice, each time on a copy of the state, and fails if the results differ. ``on_error``:
    "fail", or "quarantine", which sets aside an event whose step fails: the state stays as it was before the event.

    ``arguments``, ``version`` and ``compatible_with`` are as for :func:`uda`.

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
    return decorator(StatefulOperator, **locals())


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
    def evaluator(self, values: int, **site: Any) -> ScanEvaluator:
        """Return the evaluator for events with this many values each; raises PlanError if it does not take them.

        ``site`` are the fields of ScanEvaluator: the group's keys and the columns that it reads.
        """

    @abstractmethod
    def kernel(self, *, sets_aside: bool, **parameters: Any) -> Kernel:
        """Return the kernel of its evaluator; ``parameters`` are those of RecomputeKernel.

        ``sets_aside``: events for which it fails are set aside.
        """

    def shown(self, args: Sequence[Expr]) -> str:
        """Return its form in explain over ``args``."""
        return f"{self.name}({', '.join(map(show, args))})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatefulOperator(UserModule, EventOperator):
    """User code that goes from event to event; ``initial`` is the first state if the code is a function."""

    kind = "udso"

    initial: Any = ...
    time_sensitive: bool = False

    def check(self) -> None:
        """Raise PlanError unless code has ``initial()`` and ``step``, or is a function with an ``initial`` state, not both."""
        if not self._is_function and has_states(self.code):
            STEPWISE.check(self.name, self.code, is_timed=self.time_sensitive)
        has_methods = all(callable(getattr(self.code, method, None)) for method in STEPWISE.needed)
        if has_methods and self._is_function:
            both = "the code has initial(), and initial= is given"
            raise PlanError("udso", "two initial states", both, "Say it in one of them.")
        if not has_methods and not (self._is_function and inspect.isroutine(self.code)):
            hint = "Give a class with initial() and step(state, *values), or say initial= and give a function."
            wrong = "no code that goes from event to event"
            found = getattr(self.code, "__qualname__", None) or repr(self.code)
            raise PlanError("udso", wrong, f"found {found}", hint)
        super().check()

    @property
    def held(self) -> tuple[Any, ...]:
        return (self.initial,) if self._is_function else ()

    @property
    def layout(self) -> tuple[str, ...]:
        return (str(self.time_sensitive),)

    def __call__(self, *operands: Any, where: Any = None, **options: Any) -> StatefulCall:
        """Return the operator over ``operands``, columns or names of columns, for events for which ``where`` is true.

        Keyword arguments are plain values: parameters of the class when it is made, or of the function. Raises PlanError if the
        code does not take them, and for an operand that is no column.
        """
        operator = self.called_with(options)
        args = self.columns_of(operands)
        operator.calling(len(operands))  # called here, so that errors are raised at the user's line
        bare = tuple(arg.arg if isinstance(arg, Alias) else arg for arg in args)
        return StatefulCall(operator, bare, None if where is None else as_expr(where))

    @property
    def example_call(self) -> str:
        return f"scan({super().example_call})"

    @property
    def _is_function(self) -> bool:
        return self.initial is not ...

    @lazy
    def steps(self) -> tuple[Callable[[], Any], Callable[..., Any]]:
        """The functions that return the first state, and the next state with rows; raises PlanError for a generator."""
        code, initial, options = self.code, self.initial, self.options
        if self._is_function:
            # copied, so that a step that changes the first state affects only its group
            start: Callable[[], Any] = partial(copy.deepcopy, initial)
            step = (lambda *arguments: code(*arguments, **options)) if options else code
        else:
            module = make_object(self.name, code, options)
            start, step = module.initial, module.step
        if inspect.isgeneratorfunction(code if self._is_function else step):
            hint = "Return the state, and a list of rows."
            raise PlanError(self.name, "a step gives (state, rows)", "this one is a generator", hint)
        return start, step

    def evaluator(self, values: int, **site: Any) -> ModuleScanEvaluator:
        return ModuleScanEvaluator(calling=self.calling(values), **site)

    def kernel(self, *, sets_aside: bool, **parameters: Any) -> ScanKernel:
        return ScanKernel(**parameters, sets_aside=sets_aside)

    def calling(self, values: int) -> StepCall:
        """Return the call of the step with this many values; raises PlanError if the code does not take them, or the options."""
        (initial, step), leading = self.steps, 1 + self.time_sensitive
        by_name, method = (self.options, "") if self._is_function else ({}, "step")
        call = QueryCall(values, by_name, leading, method)
        call.check(self.name, self.code)
        return StepCall(
            initial=initial,
            step=step,
            names=call.argument_names(self.code, values),
            rows=RowShape.from_fields(self.fields),
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
