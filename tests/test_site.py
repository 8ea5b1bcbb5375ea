"""The documentation as a site: it builds without a warning, has every page and notebook, and loads nothing from elsewhere."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LOADED = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?https?://[^"'> ]+""")
"""An element that loads something from another host; a link that a reader follows does not."""


@pytest.mark.slow
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert [record.getMessage() for record in caplog.records if record.name.startswith("mkdocs")] == []
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert [page for page in sorted(pages) if not (tmp_path / page / "index.html").exists()] == []
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (tmp_path / "notebooks").iterdir() if (path / "index.html").exists()} == notebooks
    texts = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    loaded = {str(path.relative_to(tmp_path)): LOADED.findall(text) for path, text in texts.items()}
    assert {name: found for name, found in loaded.items() if found} == {}
    notebook = texts[tmp_path / "notebooks" / "02_windows" / "index.html"]
    assert 'role="img"' in notebook and 'href="../../language/"' in notebook and 'href="../03_joins/"' in notebook
    assert "<table" in texts[tmp_path / "benchmarks" / "index.html"]
    assert "tutorial of ten minutes" in texts[tmp_path / "index.html"]
