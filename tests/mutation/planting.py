"""Code in place of a module's own, for a process that imports it afterwards; no file is written."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType


class _Loader(SourceFileLoader):
    """Loads a module from other code than its file's."""

    def __init__(self, name: str, path: str, code: CodeType):
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class _Finder(MetaPathFinder):
    def __init__(self, codes: Mapping[str, CodeType]):
        self.codes = codes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a planted module, None for every other."""
        code = self.codes.get(name)
        spec = PathFinder.find_spec(name, path, target) if code is not None else None
        if code is None or spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(name, spec.origin, code)
        return spec


def plant(codes: Mapping[str, CodeType], fresh: Sequence[str]) -> None:
    """Have this process import the modules named in ``codes`` with that code.

    ``fresh``: packages of which every module is forgotten, so that importers of a planted module load it again. There is no
    way back: it is for a process that ends afterwards.
    """
    for name in list(sys.modules):
        if name.split(".")[0] in fresh and not name.startswith(__package__) and name not in _packages(__package__):
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder(codes))


def _packages(name: str) -> set[str]:
    """A package and those around it."""
    parts = name.split(".")
    return {".".join(parts[: n + 1]) for n in range(len(parts))}


__all__ = ["plant"]
