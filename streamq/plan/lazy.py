"""A cached property for classes that are pickled by value: the one of functools has a lock in Python 3.11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """A property that is computed on first access and then kept as an attribute of the object."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> lazy[T] | T:
        """Return the value, which the first access computes and stores in the instance; without an instance, this property."""
        if instance is None:
            return self
        value = self.function(instance)
        # a frozen dataclass refuses assignments; an instance attribute takes precedence over this descriptor
        instance.__dict__[self.function.__name__] = value
        return value


__all__ = ["lazy"]
