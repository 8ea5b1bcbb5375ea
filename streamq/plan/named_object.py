"""Objects that plans refer to by name in digests and JSON."""

from __future__ import annotations

from typing import Any


class NamedObject:
    """An object that plans refer to by name; two with one ``identity`` mean the same."""

    name: str

    @property
    def identity(self) -> str:
        """The text that stands for the object in digests, hence in checkpoints: its name, to which a user's own adds more."""
        return self.name

    @property
    def state_identity(self) -> str:
        """The text that stands for the object in the names of operators' states; a user's code is no part of it."""
        return self.identity


class VersionedCode(NamedObject):
    """A user's code under a name, in a version; ``compatible_with``: an earlier version whose state goes on with this one."""

    version: int
    compatible_with: int | None

    @property
    def code_text(self) -> str:
        """A text that differs for other code."""
        raise NotImplementedError


class CallableModule(VersionedCode):
    """A module that a decorator made of a user's ``code``; a call with columns makes an expression of it."""

    code: Any

    @property
    def example_call(self) -> str:
        """Its call with a column, as messages show it."""
        return f'{self.name}("v")'
