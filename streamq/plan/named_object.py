"""What plans hold by name: objects that digests and JSON know by what they are called."""

from __future__ import annotations

from typing import Any


class NamedObject:
    """An object of which plans know the name; two with one ``identity`` mean the same."""

    name: str

    @property
    def identity(self) -> str:
        """What digests have for it, and so checkpoints: the name of a built-in one; of another also what tells it from others."""
        return self.name


class CallableModule(NamedObject):
    """A module, which a decorator makes of a user's ``code``; called with columns, it becomes what a query takes."""

    code: Any

    @property
    def example_call(self) -> str:
        """Its call with a column, as messages show it."""
        return f'{self.name}("v")'
