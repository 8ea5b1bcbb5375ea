"""The repository: user modules by name, those of this program and of installed packages; and the modules that a plan calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from streamq import html
from streamq.errors import PlanError, nearest
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import functions
from streamq.user_code.module import UNNAMED, UserModule, name_of, place_of

if TYPE_CHECKING:
    from importlib import metadata

GROUP = "streamq.modules"
"""The group of entry points by which packages publish modules."""

M = TypeVar("M", bound=UserModule)

_published_meanwhile: ContextVar[dict[str, UserModule] | None] = ContextVar("published_meanwhile", default=None)
"""The modules made by decorators while an entry point is loaded, by name; None at other times."""


def installed_entry_points() -> Iterable[metadata.EntryPoint]:
    """Return the entry points of installed packages that publish modules, those of the group GROUP."""
    # its imports would be a twentieth of those of all public names
    from importlib import metadata

    return metadata.entry_points(group=GROUP)


HEADINGS = ("name", "kind", "signature", "results", "properties", "what it does", "where from")


class Repository:
    """Your own modules by name: those made by ``@sq.udf`` and the other decorators, and those published by installed packages.

    ``sq.modules.get(name)`` returns one. In a notebook, ``sq.modules`` shows all of them as a table, with their signatures, the
    types of their results, their declared properties and documentation. ``name in sq.modules``, ``len`` and iteration treat
    it as a set of names, iterated in order.

    Decorating another module of the same name replaces the first, as when a notebook's cell is run twice. A module may have the
    name of a streamq function or aggregate; ``sq`` still has the latter. A function without a name, a lambda, is not
    registered unless it gets one by ``name=``. Published modules (entry points of the group "streamq.modules", each a Python
    module or a decorated object in one) are imported once, when a name is first looked up that the program does not have; a
    module of the program takes precedence over a published one of the same name. Entry points that cannot be imported are
    listed with the reason. (docs/modules.md, "The repository")

    >>> import streamq as sq
    >>> @sq.udf("double")
    ... def with_tax(price, rate=0.19):
    ...     return price * (1 + rate)
    >>> sq.modules.get("with_tax")
    <udf with_tax(price, rate=0.19) -> double>
    >>> "without_tax" in sq.modules
    False
    """

    def __init__(self, entry_points: Callable[[], Iterable[metadata.EntryPoint]] = installed_entry_points) -> None:
        """Make an empty repository; ``entry_points`` returns those of published modules, and is called when first needed."""
        self._installed = entry_points
        self._own: dict[str, UserModule] = {}
        self._published: dict[str, tuple[UserModule, str]] = {}
        self._unloaded: list[str] = []
        self._is_loaded = False
        self._loading = threading.RLock()

    def register(self, module: M) -> M:
        """Store a module under its name, replacing any other, and return it; called by decorators.

        A module without a name is not stored. One that is made while an entry point is loaded counts as published by it.
        """
        meanwhile = _published_meanwhile.get()
        if module.name == UNNAMED:
            return module
        (self._own if meanwhile is None else meanwhile)[module.name] = module
        return module

    def get(self, name: str) -> UserModule:
        """Return the module of a name: the program's own, else the published one.

        Raises PlanError if there is none, which lists the existing ones, and the entry points that could not be loaded.
        """
        module = self._own.get(name)
        if module is not None:
            return module
        self._load()
        if name not in self._published:
            hint = " ".join(filter(None, (nearest(str(name), self), self.not_loaded)))
            there = f"there are: {', '.join(self) or 'none'}"
            raise PlanError("modules", f"no module {name!r}", there, hint)
        return self._published[name][0]

    def __contains__(self, name: object) -> bool:
        """True if the program has a module of this name, or an installed package publishes one, which is imported for that."""
        if name in self._own:
            return True
        self._load()
        return name in self._published

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted({*self._own, *self._published}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def package_of(self, module: UserModule) -> str:
        """Return the name of the package that publishes a module, or ""; loads no entry point.

        It has published the module already, or has an entry point in the Python module that registered it, or in a package
        around that one.
        """
        known, package = self._published.get(module.name, (None, ""))
        if known == module:
            return package
        for entry_point in self._entry_points:
            published_in = entry_point.value.partition(":")[0].strip()
            if f"{module.registered_in}.".startswith(f"{published_in}."):
                return _package(entry_point)
        return ""

    @property
    def unloaded(self) -> tuple[str, ...]:
        """The entry points that are missing a module, with the reasons: one failed to load, or another module has the name."""
        self._load()
        return tuple(self._unloaded)

    @property
    def not_loaded(self) -> str:
        """A sentence about those entry points, for messages; empty if there are none."""
        return f"Not loaded: {'; '.join(self.unloaded)}." if self.unloaded else ""

    @cached_property
    def _entry_points(self) -> tuple[metadata.EntryPoint, ...]:
        return tuple(self._installed())

    def _load(self) -> None:
        """Import the modules that packages publish, once, in the order of the packages' names; again if it was interrupted."""
        with self._loading:
            if self._is_loaded:
                return
            # a package that asks for a name while it is imported gets only the modules loaded so far
            self._is_loaded = True
            self._unloaded = []
            try:
                for entry_point in sorted(self._entry_points, key=lambda e: (_package(e), e.name)):
                    self._load_one(entry_point)
            except BaseException:
                # interrupted: the next request loads again
                self._is_loaded = False
                raise

    def _load_one(self, entry_point: metadata.EntryPoint) -> None:
        """Import an entry point and publish its modules; note why it cannot be loaded, or which of the names are in use.

        Modules that are made before the import fails are published, too.
        """
        meanwhile: dict[str, UserModule] = {}
        token = _published_meanwhile.set(meanwhile)
        try:
            reasons = _add_modules(entry_point.load(), meanwhile)
        except (Exception, SystemExit) as error:
            reasons = [f"{type(error).__name__}: {error}"]
        finally:
            _published_meanwhile.reset(token)
        package = _package(entry_point)
        reasons += [reason for module in meanwhile.values() if (reason := self._publish(module, package))]
        shown = f"{entry_point.name} = {entry_point.value}{_of_package(package)}"
        self._unloaded += [f"{shown}: {reason}" for reason in reasons]

    def _publish(self, module: UserModule, package: str) -> str:
        """Store a module of a package; return the reason if another one has its name."""
        other, owner = self._published.setdefault(module.name, (module, package))
        return "" if other == module else f"{module.name!r} is there already{_of_package(owner)}"

    # display

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        """The texts below HEADINGS, a row per module, by name; its place ends with its package."""
        return [
            (
                module.name,
                module.kind,
                module.signature,
                module.returns.simpleString(),
                ", ".join(map(str, module.properties)),
                module.summary,
                module.place + _of_package(self.package_of(module)),
            )
            for module in map(self.get, self)
        ]

    @property
    def _remarks(self) -> list[str]:
        """The lines below the table: entry points not loaded, and published modules whose names the program uses for others."""
        covered = [
            f"{name}{_of_package(package)} is not used: {place_of(self._own[name].registered_in)} has one of this name"
            for name, (module, package) in sorted(self._published.items())
            if name in self._own and self._own[name] != module
        ]
        return [f"not loaded: {one}" for one in self.unloaded] + covered

    def __repr__(self) -> str:
        """Return the rows as a table of text, or a sentence if there are none, and a line for each remark."""
        rows = self._rows
        lines = [f"! {remark}" for remark in self._remarks]
        if not rows:
            return "\n".join([_NONE, *lines])
        table = html.aligned_lines([HEADINGS, *rows], left=len(HEADINGS))
        return "\n".join([*map(str.rstrip, table), *lines])

    def _repr_html_(self) -> str:
        """Return the same as HTML, for notebooks."""
        rows, remarks = self._rows, [f"! {remark}" for remark in self._remarks]
        shown = html.tabulated(HEADINGS, rows, named=True) if rows else html.lines(_NONE)
        return html.fragment(shown, *([html.lines("\n".join(remarks))] if remarks else []))


_NONE = "no modules: those that sq's decorators make are listed here"


def _add_modules(value: Any, modules: dict[str, UserModule]) -> list[str]:
    """Add an entry point's modules to ``modules``, beside those that decorators made while loading it.

    ``value`` is what the entry point loads: a user module, or a Python module that holds some. Return the reason, as a list of
    one text, if ``modules`` is still empty; else an empty list.
    """
    values = list(vars(value).values()) if isinstance(value, ModuleType) else [value]
    for module in values:
        if isinstance(module, UserModule) and module.name != UNNAMED:
            modules.setdefault(module.name, module)
    if modules:
        return []
    what = f"nothing in {value.__name__} is" if isinstance(value, ModuleType) else f"{value!r} is not"
    return [f"{what} made by a decorator of streamq's"]


def _package(entry_point: metadata.EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else ""


def _of_package(package: str) -> str:
    return f" (package {package})" if package else ""


def called_modules(plan: Node) -> list[UserModule]:
    """Return the modules that a plan calls, in the order of its nodes; for a repeated name the first."""
    modules: dict[str, UserModule] = {}
    for node in nodes(expanded(plan)):
        called = [function for expr in expressions(node) for function in functions(expr)]
        for module in (*called, getattr(node, "operator", None)):
            if isinstance(module, UserModule):
                modules.setdefault(module.name, module)
    return list(modules.values())


modules = Repository()
"""The repository of this process."""


def decorator(kind: type[M], *, name: str | None, **arguments: Any) -> Callable[[Any], M]:
    """Return the decorator that makes a module of a kind and registers it; ``arguments`` are all that a function of ``sq`` takes.

    They are checked at once, and the code when it is decorated; raises PlanError, TypeMismatch.
    """
    fields = kind.checked_fields(**arguments)

    def decorate(code: Any) -> M:
        module = kind(name=name_of(code, name), code=code, **fields)
        module.check()
        return modules.register(module)

    return decorate
