"""Hooks of the site's build: the README is its first page, and the notebooks are pages."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs import plugins
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

_ELSEWHERE = re.compile(r"\]\((?!docs/|notebooks/|https?:|#)([^)]+)\)")
"""A link of the README to a file that is no page."""

_FILE_OF_NOTEBOOK = re.compile(r'href="((?:\.\./docs/)?[\w]+)\.(?:md|ipynb)(?=["#])')
"""A link of a notebook to a page of docs/ or to another notebook."""


@plugins.event_priority(100)  # before the plugin that makes pages of notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README and the notebooks, which are not in the folder of pages."""
    files.append(
        File.generated(config, "index.md", content=front_page((ROOT / "README.md").read_text(encoding="utf-8")))
    )
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File(f"notebooks/{notebook.name}", str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have the links of a notebook lead to pages: those to files of docs/ and to other notebooks."""
    if not page.file.src_uri.startswith("notebooks/"):
        return html
    return _FILE_OF_NOTEBOOK.sub(lambda link: f'href="../{link[1].replace("docs/", "")}/', html)


def front_page(readme: str) -> str:
    """Return the README as the first page: links lead to pages, those to other files are their names alone."""
    names = _ELSEWHERE.sub(r" (`\1`)", readme)
    return names.replace("](docs/", "](")
