"""Python operations that an expression refuses because it has no value yet; each error says what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from streamq.errors import TypeMismatch, UnknownVerb


class ValueRefusals:
    """Refuses what Python does with values: truth, length, iteration, conversion, and operators that Spark lacks.

    Each method raises TypeMismatch, whose hint says what to write instead.
    """

    @property
    def _in_code(self) -> str:
        """The expression as hints write it."""
        return "..."

    def _refused(self, wrong: str, hint: str) -> TypeMismatch:
        """Return the error for an operation: ``wrong`` says what is wrong, ``hint`` what to write instead."""
        return TypeMismatch("expression", wrong, f"found {self!r}", hint)

    def _instead_of(self, name: str, methods: list[str]) -> str:
        """Return what to write instead of a method, or a NumPy function, of that name."""
        from streamq.plan.hints import for_method  # imported here because executors do not need it

        return for_method(name, self._in_code, methods)

    if not TYPE_CHECKING:  # otherwise a type checker would accept any method name

        def __getattr__(self, name):
            """Raise UnknownVerb with a hint, or AttributeError for a name that begins with an underscore."""
            if name.startswith("_"):
                raise AttributeError(name)
            hint = self._instead_of(name, [n for n in dir(type(self)) if not n.startswith("_")])
            raise UnknownVerb("expression", f"no method {name!r}", f"found {self!r}", hint)

    def __bool__(self) -> bool:
        hint = (
            "Use & | ~ instead of and, or, not; == inside parentheses. Besides: sq.when(...) for if, .isin(...) for in, "
            "sq.functions.greatest and least for max and min."
        )
        raise self._refused("a truth value of a column expression", hint)

    def __iter__(self) -> NoReturn:
        raise self._refused(
            "not iterable",
            "Python's own sum, min and max take lists, and so does a pyspark Column on the left of this: aggregates are "
            "sq.sum, sq.min, sq.max, and a Column goes on the right.",
        )

    def __contains__(self, part: object) -> bool:
        raise self._refused(
            "a Python `in` on an expression", "Write .contains(...) or sq.functions.array_contains(...)."
        )

    def __len__(self) -> int:
        raise self._refused(
            "the length of an expression",
            f"Write sq.functions.length({self._in_code}), or sq.functions.size({self._in_code}) of an array or map.",
        )

    def __float__(self) -> float:
        raise self._refused(
            "no number yet", "Write .cast('double'); for Python's math there is sq.functions, as sq.functions.sqrt."
        )

    def __int__(self) -> int:
        raise self._refused("no number yet", "Write .cast('bigint').")

    def __index__(self) -> int:
        raise self._refused("no number yet", "It has a value an event: a Python list or range has no use for it.")

    def __complex__(self) -> complex:
        raise self._refused("no number yet", "Write .cast('double').")

    def __round__(self, digits: int = 0) -> NoReturn:
        raise self._refused(
            "Python rounds halves to even, Spark away from zero",
            f"Write sq.functions.round({self._in_code}, {digits!r}) or sq.functions.bround.",
        )

    def __trunc__(self) -> NoReturn:
        raise self._refused("no number yet", "Write .cast('bigint').")

    def __floor__(self) -> NoReturn:
        raise self._refused("no number yet", f"Write sq.functions.floor({self._in_code}).")

    def __ceil__(self) -> NoReturn:
        raise self._refused("no number yet", f"Write sq.functions.ceil({self._in_code}).")

    def __floordiv__(self, other: Any) -> NoReturn:
        raise self._refused("no operator //", "Write sq.functions.floor(x / y).")

    def __divmod__(self, other: Any) -> NoReturn:
        raise self._refused("no divmod", "Write sq.functions.floor(x / y) and x % y.")

    def __matmul__(self, other: Any) -> NoReturn:
        raise self._refused("no operator @", "Products of numbers are x * y.")

    def __xor__(self, other: Any) -> NoReturn:
        raise self._refused("no operator ^", "Of booleans write x != y, of numbers sq.functions.pow(x, y).")

    def __lshift__(self, other: Any) -> NoReturn:
        raise self._refused("no operator <<", "Write sq.functions.shiftleft(x, n).")

    def __rshift__(self, other: Any) -> NoReturn:
        raise self._refused("no operator >>", "Write sq.functions.shiftright(x, n).")

    __rfloordiv__, __rdivmod__, __rmatmul__, __rxor__ = __floordiv__, __divmod__, __matmul__, __xor__
    __rlshift__, __rrshift__ = __lshift__, __rshift__

    def __format__(self, spec: str) -> str:
        raise self._refused(
            "text of an expression, which has no value yet",
            "Write sq.functions.concat(...) or sq.functions.format_string(...); {x!r} shows the expression.",
        )
