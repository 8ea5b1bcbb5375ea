"""What modules of a user's own say of themselves, the repository that lists them, and what packages publish."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import streamq as sq
from streamq.errors import PlanError
from streamq.plan.lowering import ship_runtime
from streamq.runtime.hosts.shipping import dumps
from streamq.user_code.repository import Repository


@sq.udf("string")
def size(toll: int | None, limit: int = 10) -> str | None:
    """Whether a toll is a large one.

    NULL has no size.
    """
    return None if toll is None else "large" if toll > limit else "small"


class Scale:
    """Multiplies."""

    def __call__(self, v: float, *, by: int = 2) -> float:
        return v * by


def test_a_module_says_what_it_is() -> None:
    assert (size.name, size.kind, size.returns.simpleString()) == ("size", "udf", "string")
    assert size.signature == "size(toll, limit=10)"
    assert size.summary == "Whether a toll is a large one."
    assert size.documentation.endswith("\n\nNULL has no size.")
    assert (size.registered_in, size.place) == (__name__, __name__)
    assert repr(size) == "<udf size(toll, limit=10) -> string>"
    assert (size.properties, size.options) == ((), {})


def test_where_code_of_another_place_was_registered() -> None:
    """What has to be imported is where the decorator was called, whoever wrote the code."""
    hypot = sq.udf("double")(math.hypot)
    assert (hypot.registered_in, hypot.place) == (__name__, f"{__name__} (math.hypot)")
    assert hypot.signature.startswith("hypot(")
    scale = sq.udf("double", name="twice")(Scale())
    assert (scale.place, scale.signature, scale.summary) == (f"{__name__} (Scale)", "twice(v, *, by=2)", "Multiplies.")
    script: dict[str, Any] = {"__name__": "__main__", "sq": sq}
    exec("@sq.udf('int')\ndef one(v): return 1", script)
    assert (script["one"].place, script["one"].documentation) == ("a notebook or script", "")


def test_options_are_set_and_what_was_decorated_stays() -> None:
    other = size.with_options({"limit": 3})
    assert (other.options, size.options, other.registered_in) == ({"limit": 3}, {}, __name__)
    assert other != size
    assert other.with_options({}) == size
    assert other.with_options({}).digest == size.digest


# the repository


def none_installed() -> list[metadata.EntryPoint]:
    return []


def test_what_is_decorated_is_there_by_its_name() -> None:
    registered_here = sq.udf("string", name="registered_here")(str)
    assert sq.modules.get("registered_here") is registered_here
    assert "registered_here" in sq.modules
    assert "registered_here" in list(sq.modules)
    assert len(sq.modules) == len(list(sq.modules)) > 0
    assert list(sq.modules) == sorted(sq.modules)


def test_a_later_one_replaces_an_earlier_one() -> None:
    first = sq.udf("int", name="replaced")(lambda v: 1)
    again = sq.udf("int", name="replaced")(lambda v: 2)
    assert first != again
    assert sq.modules.get("replaced") is again


def test_a_name_of_streamq_may_be_taken_and_stays_what_it_is() -> None:
    own = sq.udf("string", name="upper")(lambda text: text[:1])
    s = sq.events([(1, 2, {"k": "abc"})], name="s")
    query = s.select(ours=own("k"), theirs=sq.functions.upper("k"))
    (row,) = sq.from_json(query.to_json(), s=s).to_arrow().to_pylist()
    assert (row["ours"], row["theirs"]) == ("a", "ABC")


def test_a_lambda_without_a_name_is_not_registered() -> None:
    nameless = sq.udf("int")(lambda v: v)
    assert "<lambda>" not in sq.modules
    assert nameless.place == f"{__name__} (test_a_lambda_without_a_name_is_not_registered.<locals>.<lambda>)"


def listed() -> Repository:
    repository = Repository(none_installed)
    repository.register(size)

    def rough(v: float) -> float:
        """As <i>much</i> & more."""
        return v

    repository.register(sq.udf("double", takes="series", name="a|b")(rough))
    return repository


def test_the_listing_as_text() -> None:
    where = f"{__name__} (listed.<locals>.rough)"
    lines = [
        "name  kind  signature             results  properties  what it does                    where from",
        f"a|b   udf   a|b(v)                double               As <i>much</i> & more.          {where}",
        f"size  udf   size(toll, limit=10)  string               Whether a toll is a large one.  {__name__}",
    ]
    assert repr(listed()).splitlines() == lines
    assert repr(Repository(none_installed)) == "no modules: those that sq's decorators make are listed here"


def test_the_listing_in_a_notebook() -> None:
    page = listed()._repr_html_()
    assert page.count("<tr>") == 3
    assert "As &lt;i&gt;much&lt;/i&gt; &amp; more." in page
    assert "<i>" not in page
    assert "<table>" not in Repository(none_installed)._repr_html_()


def test_an_unknown_name() -> None:
    with pytest.raises(PlanError, match=r"^modules: no module 'sise'; there are: a\|b, size. Did you mean 'size'\?$"):
        listed().get("sise")
    with pytest.raises(PlanError, match="no module 'x'; there are: none.$"):
        Repository(none_installed).get("x")


# packages

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package of one Python module, with entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, code: str, *entry_points: str) -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code), encoding="utf-8")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text("\n".join(["[streamq.modules]", *entry_points]), encoding="utf-8")
        # what is imported in its place is forgotten after the test
        monkeypatch.setitem(sys.modules, module, sys)
        del sys.modules[module]

    return install


TOLLS = """
import streamq as sq

@sq.udf("string")
def toll_class(toll, limit=10):
    '''The class of a toll.'''
    return "large" if toll > limit else "small"

half = sq.udf("double", name="half_of_tolls")(lambda v: v / 2)
"""


def test_a_package_publishes_what_its_module_has(install: Install) -> None:
    install("tolls-pkg", TOLLS, "tolls = tolls_pkg")
    repository = Repository()
    repository.register(size)
    assert repository.get("size") is size
    assert "tolls_pkg" not in sys.modules, "imported although it was not needed"
    toll_class = repository.get("toll_class")
    assert (toll_class.registered_in, repository.package_of(toll_class)) == ("tolls_pkg", "tolls-pkg")
    assert list(repository) == ["half_of_tolls", "size", "toll_class"]
    assert "toll_class" not in sq.modules
    assert "The class of a toll.            tolls_pkg (package tolls-pkg)" in repr(repository)
    assert repository.unloaded == ()


def test_a_package_that_is_imported_already(install: Install) -> None:
    install("early-pkg", TOLLS, "one = early_pkg:toll_class")
    import early_pkg  # type: ignore[import-not-found]

    repository = Repository()
    assert repository.package_of(early_pkg.toll_class) == "early-pkg"
    assert repository.get("toll_class") is early_pkg.toll_class
    assert sq.modules.get("toll_class") is early_pkg.toll_class


def test_what_the_program_has_stands_before_what_packages_have(install: Install) -> None:
    install("size-pkg", "import streamq as sq\n@sq.udf('int')\ndef size(v): return 1", "size = size_pkg")
    repository = Repository()
    repository.register(size)
    assert len(repository) == 1
    assert repository.get("size") is size
    remark = f"size (package size-pkg) is not used: {__name__} has one of this name"
    assert repr(repository).endswith(f"! {remark}")
    assert remark in repository._repr_html_()


def test_what_cannot_be_loaded_is_listed_and_hides_nothing_else(install: Install) -> None:
    install("bad-pkg", "import no_such_package", "bad = bad_pkg")
    install("exit-pkg", "raise SystemExit('<b>3</b>')", "exits = exit_pkg")
    install("late-pkg", f"{TOLLS.replace('toll_class', 'late_class')}\n1 / 0", "late = late_pkg")
    install("other-pkg", "number = 3", "number = other_pkg:number", "nothing = other_pkg")
    install("tolls2-pkg", TOLLS, "tolls = tolls2_pkg")
    install("twin-pkg", TOLLS.replace("/ 2", "/ 3"), "tolls = twin_pkg")
    repository = Repository()
    assert list(repository) == ["half_of_tolls", "late_class", "toll_class"]
    reasons = [
        "bad = bad_pkg (package bad-pkg): ModuleNotFoundError: No module named 'no_such_package'",
        "exits = exit_pkg (package exit-pkg): SystemExit: <b>3</b>",
        "late = late_pkg (package late-pkg): ZeroDivisionError: division by zero",
        "nothing = other_pkg (package other-pkg): nothing in other_pkg is made by a decorator of streamq's",
        "number = other_pkg:number (package other-pkg): 3 is not made by a decorator of streamq's",
        "tolls = twin_pkg (package twin-pkg): 'half_of_tolls' is there already (package late-pkg)",
    ]
    for one, reason in zip(repository.unloaded, reasons, strict=True):
        assert one.startswith(reason)
        assert f"! not loaded: {reason}" in repr(repository)
    assert "SystemExit: &lt;b&gt;3&lt;/b&gt;" in repository._repr_html_()
    with pytest.raises(
        PlanError, match="no module 'x'; there are: half_of_tolls, .*Not loaded: bad = bad_pkg .package"
    ):
        repository.get("x")


def test_who_interrupts_the_import_gets_the_rest_the_next_time(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("a-pkg", "import no_such_package", "a = a_pkg")
    install("b-pkg", "import os\nif 'B' not in os.environ: raise KeyboardInterrupt", "b = b_pkg")
    install("c-pkg", TOLLS, "c = c_pkg")
    repository = Repository()
    with pytest.raises(KeyboardInterrupt):
        repository.get("toll_class")
    monkeypatch.setenv("B", "1")
    assert repository.get("toll_class").registered_in == "c_pkg"
    assert [one[:4] for one in repository.unloaded] == ["a = ", "b = "]


def test_a_module_travels_to_workers_without_the_repository() -> None:
    """By value, with streamq's own code; read in this process, it would replace the methods of streamq's classes by copies."""
    ship_runtime()
    code = dumps(size.with_options({"limit": 3}))
    assert b"RLock" not in code
    assert b"Repository" not in code
