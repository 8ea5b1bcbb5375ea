"""The pictures of docs/benchmarks.md show the numbers of its tables, and are small."""

from __future__ import annotations

from benchmarks.plots import pictures


def test_the_pictures_show_the_tables_above_them() -> None:
    files = {picture.file: picture.description for picture in pictures()}
    assert files
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    assert [file for file, numbers in files.items() if numbers not in texts[file]] == [], "python -m benchmarks plots"
    assert max(map(len, texts.values())) < 60_000
