"""User modules of every kind: code with a name, options and guards, made by a decorator."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from pyspark.sql.types import DataType, NullType, StructField, StructType

from streamq.choices import ErrorPolicy, choose_word
from streamq.errors import PlanError, TypeMismatch, check_keywords, check_whole_number, kind_of, users_line
from streamq.plan.expr import Col, Expr, as_expr, is_sparks_column, plain_value
from streamq.plan.fingerprint import fingerprint, text_of
from streamq.plan.function import CallableModule
from streamq.plan.schema import check_names
from streamq.plan.spark_types import parse_fields, parse_type
from streamq.runtime.hosts.shipping import ship_module_of
from streamq.user_code import decorator_rooms
from streamq.user_code.forms import signature_without_self

F = TypeVar("F", bound=Callable[..., Any])

SCRIPT = "a notebook or script"
"""The name of Python's module ``__main__`` on pages and in messages."""

UNNAMED = "<lambda>"
"""Python's name for a function without one."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserModule(CallableModule):
    """A user's ``code`` under a name, made by a decorator of ``sq``; plans hold it, and the repository lists it.

    returns: the type of the results, a struct for the rows of an operator; options: the keyword arguments, plain values, of
    each call; arguments: the types of its arguments, the last one also of further ones, (): any; properties: its declared
    properties; time_limit: the seconds that a call may take, None: any number; checked: each call is made twice;
    on_error: the policy for events of failing calls; version: the number of the code's version; compatible_with: the version
    whose state this one continues, None: only equal code does; registered_in: the Python module that called the decorator.
    """

    kind: ClassVar[str]
    """The decorator that makes it: "udf", "uda", ..."""

    results: ClassVar[str] = ""
    """The word for its results in errors on the argument ``returns``, their type; empty: its results are rows."""

    name: str
    code: Any
    returns: DataType
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[DataType, ...] = ()
    properties: tuple[Property, ...] = ()
    time_limit: float | None = None
    checked: bool = False
    on_error: ErrorPolicy = ErrorPolicy.FAIL
    version: int = 1
    compatible_with: int | None = None
    registered_in: str = field(default_factory=lambda: users_line().module)
    memory: dict[str, str] = field(default_factory=dict)
    """The code's fingerprint, once computed; shared by the module and its copies with other options."""

    @classmethod
    def checked_fields(
        cls,
        *,
        returns: Any,
        arguments: Any,
        time_limit: Any,
        on_error: Any,
        version: Any,
        compatible_with: Any,
        properties: Any = (),
        **others: Any,
    ) -> dict[str, Any]:
        """Return the arguments of the kind's decorator as fields of its module; raises PlanError, TypeMismatch.

        ``returns`` and ``arguments`` are types or texts, ``arguments`` also one of them; ``time_limit`` is a number above 0 or
        None, ``on_error`` a word of ErrorPolicy, ``version`` a whole number of at least 1, and ``compatible_with`` an earlier one
        or None. ``others`` stay as they are.
        """
        verb = cls.kind
        is_number = isinstance(time_limit, int | float) and not isinstance(time_limit, bool)
        if time_limit is not None and not (is_number and time_limit > 0):
            raise PlanError(verb, "time_limit is a number of seconds above 0", f"found {time_limit!r}")
        check_whole_number(verb, "version", version)
        if compatible_with is not None and (type(compatible_with) is not int or not 0 < compatible_with < version):
            wrong = "compatible_with is an earlier version"
            hint = "Say version=2, compatible_with=1: the state of version 1 goes on with this code."
            raise PlanError(verb, wrong, f"found {compatible_with!r}, version={version}", hint)
        kinds = (arguments,) if isinstance(arguments, str | DataType) else arguments
        return {
            **others,
            "returns": cls._type_returned(returns),
            "arguments": tuple(parse_type(kind, verb) for kind in kinds),
            "time_limit": time_limit,
            "on_error": choose_word(ErrorPolicy, on_error, "on_error", verb),
            "version": version,
            "compatible_with": compatible_with,
            "properties": check_properties(properties, verb),
        }

    @classmethod
    def _type_returned(cls, returns: Any) -> DataType:
        """Return Spark's type for the argument ``returns``; raises TypeMismatch for text that names no type.

        Raises PlanError if it is neither text nor a type, as where the decorator has no brackets.
        """
        if not cls.results:
            fields = parse_fields(returns, cls.kind)
            check_names([field.name for field in fields], cls.kind)
            return StructType(list(fields))
        if not isinstance(returns, str | DataType):
            hint = f'Write @sq.{cls.kind}("double") above the function: the type of its {cls.results} in SQL.'
            raise PlanError(cls.kind, f"no type of the {cls.results}", f"found {returns!r}", hint)
        return parse_type(returns, cls.kind)

    def check(self) -> None:
        """Raise PlanError for values in the code that cannot be pickled; let Spark send the code to its workers.

        A kind also checks here that the code has a form that it can call, and keeps its promises as far as one can see.
        """
        ship_module_of(self.code, self.registered_in)
        try:
            fingerprint(self.code)
            for value in self.held:
                text_of(value)
        except Exception as error:
            what, why = "what it holds cannot be pickled", f"{type(error).__name__}: {error}"
            raise PlanError(self.name, what, why, "Make it within the code.") from error

    @property
    def held(self) -> tuple[Any, ...]:
        """The values beside code and options that distinguish it from other modules."""
        return ()

    @property
    def fields(self) -> tuple[StructField, ...]:
        """The columns of its rows, for a module that returns rows."""
        assert isinstance(self.returns, StructType)
        return tuple(self.returns.fields)

    @property
    def guards(self) -> dict[str, Any]:
        """The fields of its :class:`ModuleCall`: its name, and the guards of its calls."""
        fields = {"time_limit": self.time_limit, "checked": self.checked, "quarantine": self.sets_aside}
        return {"name": self.name, **fields}

    @property
    def sets_aside(self) -> bool:
        """True if the events of a failing call are set aside, and the query goes on."""
        return self.on_error is ErrorPolicy.QUARANTINE

    @property
    def fingerprint(self) -> str:
        """A short text that differs for other code; computed when first read, so that all functions the code calls exist."""
        if "fingerprint" not in self.memory:
            self.memory["fingerprint"] = fingerprint(self.code)
        return self.memory["fingerprint"]

    @property
    def identity(self) -> str:
        """A text that differs for every other module, code, options or guards; the same in every run of a program."""
        guards = str(self.time_limit), str(self.checked), str(self.on_error)
        return ":".join([self.state_identity, self.code_text, *guards])

    @property
    def layout(self) -> tuple[str, ...]:
        """The texts beside name, result and options that distinguish modules whose states differ in form."""
        return ()

    @property
    def state_identity(self) -> str:
        return f"{self.kind} {self.name}:{':'.join([self.returns.json(), self.options_text, *self.layout])}"

    @property
    def code_text(self) -> str:  # type: ignore[override]
        """A text that differs for other code: a checkpoint goes on with equal code, or with a version that is compatible."""
        return ":".join([self.fingerprint, *map(text_of, self.held)])

    @property
    def options_text(self) -> str:
        """A text that differs for other options, as part of the identity; raises PlanError for an option without such a text."""
        texts = []
        for name, value in sorted(self.options.items()):
            try:
                texts.append(f"({name!r}, {text_of(value)})")
            except Exception as error:
                what, why = f"{name} is no plain value", f"found {value!r}; {type(error).__name__}: {error}"
                raise PlanError(self.name, what, why, "Make it within the code.") from error
        return f"[{', '.join(texts)}]"

    @property
    def digest(self) -> str:
        """The identity in 16 hexadecimal digits."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:16]

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return the module with these keyword arguments instead of its own."""
        return replace(self, options=dict(options))

    def called_with(self, options: Mapping[str, Any]) -> Self:
        """Return the module with a call's keyword arguments beside earlier ones, of which they replace those of equal names.

        Without any it returns itself. Raises PlanError for a column.
        """
        for option, value in options.items():
            if isinstance(value, Expr) or is_sparks_column(value):
                hint = f"Columns come by position, as {self.name}(sq.col('v'), {option}=3)."
                raise PlanError(self.name, f"{option} is a plain value", "found a column", hint)
        plain = {option: plain_value(value) for option, value in options.items()}
        return self.with_options({**self.options, **plain}) if options else self

    def check_in_query(self, operands: Sequence[Any]) -> None:
        """Raise PlanError if an operand is a collection of values, such as a list, a Series or an array."""
        for value in operands:
            package = type(value).__module__.partition(".")[0]
            is_many = isinstance(value, list | tuple | dict | set) or hasattr(value, "__array__")
            if is_many and not isinstance(value, np.generic) and package != "pyspark":
                hint = f"In a query it takes columns; outside of one call {self.name}.code."
                raise PlanError(self.name, "values instead of columns", f"found {kind_of(value)}", hint)

    def columns_of(self, operands: Sequence[Any]) -> list[Expr]:
        """Return columns from expressions and names of columns; raises PlanError for a plain value or a collection."""
        self.check_in_query(operands)
        for value in operands:
            if not isinstance(value, str | Expr) and not is_sparks_column(value):
                hint = f"Plain values come by keyword, as {self.signature} calls them; a column of one value is sq.lit(...)."
                raise PlanError(self.name, "a plain value by position", f"found {value!r}", hint)
        return [Col(o) if isinstance(o, str) else as_expr(o) for o in operands]

    def check_types(self, kinds: Sequence[DataType | None]) -> None:
        """Raise TypeMismatch for an argument of another type than declared; None, a type that only Spark knows, passes."""
        for number, kind in enumerate(kinds if self.arguments else (), start=1):
            declared = self.arguments[min(number, len(self.arguments)) - 1].simpleString()
            if kind is not None and not isinstance(kind, NullType) and kind.simpleString() != declared:
                hint = f'Cast it, as in sq.col("v").cast("{declared}").'
                raise TypeMismatch(self.name, f"argument {number} is {declared}", f"found {kind.simpleString()}", hint)

    @property
    def signature(self) -> str:
        """Its name and the parameters of its code, without their types."""
        return f"{self.name}{signature_without_self(self.code) or '(...)'}"

    @property
    def documentation(self) -> str:
        """The docstring of its code; empty if there is none."""
        return inspect.getdoc(self.code) or ""

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return self.documentation.partition("\n")[0]

    @property
    def place(self) -> str:
        """The Python module that registered it; in brackets the code's own name, if it is registered under another."""
        place = place_of(self.registered_in)
        owner = self.code if hasattr(self.code, "__qualname__") else type(self.code)
        module = str(getattr(owner, "__module__", None) or type(owner).__module__)
        code = str(getattr(owner, "__qualname__", getattr(owner, "__name__", "")))
        code = code if module == self.registered_in else f"{module}.{code}"
        return place if code == self.name else f"{place} ({code})"

    def __repr__(self) -> str:
        return f"<{self.kind} {self.signature} -> {self.returns.simpleString()}>"


_DECORATOR_OPTIONS: dict[str, tuple[str, ...]] = {}
"""The options of each decorator, by its name; a room adds its own as it is imported."""


def check_decorator(function: F) -> F:
    """Make a decorator raise PlanError for an unknown keyword, listing its own, and other decorators that have it.

    The decorator's own keywords are recorded for the errors of the others.
    """
    code = function.__code__
    _DECORATOR_OPTIONS[function.__name__] = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    return check_keywords(function, _decorators_with)


def _decorators_with(option: str) -> str:
    """Return a hint at the decorators that have an option; "" if none has it."""
    decorator_rooms()
    owners = sorted(name for name, options in _DECORATOR_OPTIONS.items() if option in options)
    return f"It is an option of {' and '.join(owners)}." if owners else ""


def name_of(code: Any, name: str | None) -> str:
    """Return the name of a module: the one given to its decorator, or its code's own."""
    return name or str(getattr(code, "__name__", type(code).__name__))


def place_of(module: str) -> str:
    """Return the name of a Python module for pages and messages."""
    return SCRIPT if module == "__main__" else module


# promises that its author makes, by which streamq may do more (docs/modules.md, "Properties")


@dataclass(frozen=True)
class Property:
    """A promise about a module of some ``kinds``. streamq never assumes one that was not made; tests can refute it."""

    name: str
    fields: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("udo",)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.fields)})" if self.fields else self.name

    __repr__ = __str__


mergeable = Property("mergeable", kinds=("uda", "udo"))
"""States of parts of a window, merged, are the state of the whole: each basic window is computed once."""

order_insensitive = Property("order_insensitive", kinds=("uda", "udo"))
"""The result is the same in whatever order the events come: they need not be sorted, nor their other columns read."""

time_bound = Property("time_bound")
"""Input from an instant on changes no result before it: results go out as their input comes, and so does progress."""

one_output_per_group = Property("one_output_per_group")
"""An operator gives one row a window and group: it can be written as an upsert."""


_ALL = (mergeable, order_insensitive, time_bound, one_output_per_group)


@check_keywords
def filters_on(*fields: str) -> Property:
    """Promise that an operator's rows depend only on events equal to them in ``fields``, columns of the result and arguments.

    Without such an event there is no such row. A filter on those columns may then be moved below the operator.

    >>> import streamq as sq
    >>> sq.filters_on("symbol")
    filters_on(symbol)
    """
    if not fields or not all(isinstance(field, str) for field in fields):
        raise PlanError("filters_on", "no names of columns", f"found {fields!r}", 'Write filters_on("k").')
    return Property("filters_on", fields)


def check_properties(properties: Any, verb: str) -> tuple[Property, ...]:
    """Return declared properties (one, or several), each once.

    Raises PlanError for a value that is no property, and for one that modules of this kind do not have.
    """
    if isinstance(properties, Property | str):
        properties = (properties,)
    checked = []
    for one in properties:
        if not isinstance(one, Property):
            names = ", ".join(f"sq.{p}" for p in _ALL)
            hint = f'Give some of {names}, sq.filters_on("k").'
            raise PlanError(verb, "not a property of modules", f"found {one!r}", hint)
        if verb not in one.kinds:
            owners, such = (
                ("code over windows", "Such code is") if "uda" in one.kinds else ("operators", "Operators are")
            )
            hint = f"{such} made with {' or '.join(f'@sq.{kind}' for kind in one.kinds)}."
            raise PlanError(verb, f"{one.name} is a promise of {owners}", f"found {one}", hint)
        checked.append(one)
    return tuple(dict.fromkeys(checked))
