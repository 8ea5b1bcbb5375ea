"""What users install: the wheel holds every file of the package, and works away from the repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "streamq").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == package
    assert {"streamq/py.typed", "streamq/run/session/log4j2.properties"} <= names


@pytest.mark.slow
def test_installed_wheel_imports_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel), cwd=tmp_path)
    code = (
        f"import sys; sys.path[:] = [{str(site)!r}, *(p for p in sys.path if p and p != {str(ROOT)!r})]\n"
        "import streamq, importlib.metadata as metadata\n"
        "missing = [name for name in streamq.__all__ if not hasattr(streamq, name)]\n"
        "print(streamq.__file__, metadata.version('streamq'), missing, sep='|')"
    )
    file, version, missing = run("-I", "-c", code, cwd=tmp_path).split("|")
    assert Path(file) == site / "streamq" / "__init__.py"
    assert (version, missing) == ("0.1.0", "[]")
