"""Queries in JSON that name modules of a user's own: found again by name, and refused where they are missing or other code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamq as sq
from streamq import col
from streamq.compiler.constants_json import decoded_option, encoded_option
from streamq.errors import PlanError

S = sq.events([(1, 4, {"k": "a", "v": 4}), (2, 5, {"k": "b", "v": 90}), (3, 6, {"k": None, "v": None})], name="s")


@sq.udf("string")
def bulk(v: int | None, limit: int = 10) -> str | None:
    return None if v is None else "large" if v > limit else "small"


@sq.udf("bigint")
def mapped(v: int | None, codes: Any = None, default: int = 0) -> int:
    return dict(codes).get(v, default) if codes else default


def test_a_query_with_modules_is_read_back() -> None:
    small = S.where(bulk("v", limit=5) == "small")
    queries = [
        small,
        S.select(a=bulk("v"), b=bulk("v", limit=3), c=mapped("v", codes={4: 1}), d=mapped("v", codes=[(4, 2)])),
        S.group_by(bulk=bulk("v", limit=50)).tumbling_window(10).select(x=sq.max(mapped("v", default=2))),
        S.join(small, where=lambda a, b: bulk(a.v, limit=4) == bulk(b.v), suffixes=("", "_r")),
    ]
    for query in queries:
        text = query.to_json()
        assert '"module": "bulk"' in text
        again = sq.from_json(text, s=S)
        assert again.plan == query.plan
        assert again.to_json() == text
        assert again.to_arrow() == query.to_arrow()


def test_what_is_written_of_a_module() -> None:
    document = json.loads(S.select(x=bulk("v", limit=3)).to_json())
    (written,) = [entry["name"] for entry in document["expressions"] if entry["is"] == "Call"]
    assert written == {
        "module": "bulk",
        "kind": "udf",
        "registered_in": __name__,
        "package": "",
        "digest": bulk.digest,
        "options": {"limit": 3},
    }


@pytest.mark.parametrize("value", [[1, (2, [])], {"a": {1: None}}, (1.5,), None, {}, [], {(1, 2): b"x"}])
def test_options_come_back_as_they_were(value: Any) -> None:
    read = decoded_option(json.loads(json.dumps(encoded_option(value), allow_nan=False)))
    assert (type(read), repr(read)) == (type(value), repr(value))


@pytest.mark.parametrize("value", [np.arange(3), {1, 2}, [np.str_("x")], len], ids=repr)
def test_options_that_json_cannot_hold(value: Any) -> None:
    query = S.select(x=mapped("v", codes=value))
    with pytest.raises(PlanError, match="^to_json: codes of mapped cannot be written; found .* Give numbers, texts,"):
        query.to_json()


def test_a_function_without_a_name() -> None:
    query = S.select(x=sq.udf("int")(lambda v: v)("v"))
    with pytest.raises(PlanError, match=r'^to_json: a function without a name cannot be written; .*sq.udf\(.*name="f"'):
        query.to_json()


def saying(query: sq.Stream, **values: Any) -> str:
    """The text of a query that says other things of its modules."""
    document = json.loads(query.to_json())
    for entry in document["expressions"]:
        if isinstance(entry.get("name"), dict):
            entry["name"] |= values
    return json.dumps(document)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"module": "bulky", "registered_in": "__main__"},
            r"no module 'bulky', a udf that was registered in a notebook or script; there are: .*bulk.*\. Define it first",
        ),
        (
            {"module": "bulky", "registered_in": "my_pkg.tolls", "package": "my-pkg"},
            r".* in my_pkg.tolls \(package my-pkg\); .* Import my_pkg.tolls first, or install my-pkg\.",
        ),
        ({"kind": "uda"}, "the module 'bulk' is a udf, the query was written with a uda; it was registered in"),
        (
            {"digest": "0123456789abcdef", "registered_in": "elsewhere"},
            "the module 'bulk' is not the code that the query was written with; it was registered in .*test_modules_json, "
            "that one in elsewhere. Load the code of then",
        ),
        ({"options": {"limit": 4}}, "the text has been changed or damaged"),
        ({"options": {"limit": {"list": 4}}}, "not a value"),
        ({"options": {"limit": {"dict": [[{"list": []}, 4]]}}}, "not a value"),
        ({"options": {"limit": {"dict": [[1]]}}}, "not a value"),
        ({"options": []}, "not a module; found {'module': 'bulk'"),
        ({"more": 1}, "not a module; found {'module': 'bulk'"),
        ({"digest": 1}, "not a module; found {'module': 'bulk'"),
    ],
)
def test_what_is_not_there_or_is_other_code(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=f"^from_json: {message}"):
        sq.from_json(saying(S.select(x=bulk("v", limit=3)), **values), s=S)


def test_a_cell_that_was_run_again_with_other_code() -> None:
    def decorated(add: int) -> Any:
        return sq.udf("bigint", name="cell")(lambda v: None if v is None else v + add)

    before = decorated(1)
    text = S.select(x=before("v")).to_json()
    assert sq.from_json(text, s=S).plan == S.select(x=decorated(1)("v")).plan
    after = decorated(2)
    with pytest.raises(PlanError, match="the module 'cell' is not the code that the query was written with"):
        sq.from_json(text, s=S)
    with pytest.raises(
        PlanError, match="^to_json: two modules of the query are called 'cell'. Give one of them another"
    ):
        S.select(x=before("v"), y=after("v")).to_json()


# in processes of their own


def printed(script: str, folder: Path) -> str:
    """What a script prints that may import what is in a folder."""
    path = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


TOLLS = """
import streamq as sq

@sq.udf("string")
def toll_of_mine(toll, limit=10):
    return "large" if toll > limit else "small"
"""


@pytest.mark.slow
def test_another_process_reads_a_query_once_it_has_imported_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tolls_of_mine.py").write_text(TOLLS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import tolls_of_mine  # type: ignore[import-not-found]

    query = S.where(col("v") > 0).select(x=tolls_of_mine.toll_of_mine("v", limit=5))
    (tmp_path / "query.json").write_text(query.to_json(), encoding="utf-8")
    script = f"""
        from pathlib import Path
        import streamq as sq
        text = Path({str(tmp_path / "query.json")!r}).read_text(encoding="utf-8")
        s = sq.events([(1, 4, {{"k": "a", "v": 4}}), (2, 5, {{"k": "b", "v": 90}})], name="s")
        try:
            sq.from_json(text, s=s)
        except sq.StreamqError as error:
            print(error)
        import tolls_of_mine
        print(sq.from_json(text, s=s).to_arrow().column("x").to_pylist())
    """
    error, answer = printed(script, tmp_path).splitlines()
    assert error == (
        "from_json: no module 'toll_of_mine', a udf that was registered in tolls_of_mine; there are: none. "
        "Import tolls_of_mine first."
    )
    assert answer == "['small', 'large']"
