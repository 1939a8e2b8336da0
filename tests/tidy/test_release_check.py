"""What `make release-check` would refuse: files, metadata and licenses. The whole of it takes a minute, by hand."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import release_check  # noqa: E402

METADATA = """Metadata-Version: 2.4
Name: loom-workflows
Version: 1.2.3
Summary: A durable workflow engine.
License-Expression: MIT
Requires-Python: >=3.11
Description-Content-Type: text/markdown
Requires-Dist: click>=8.1.7
Requires-Dist: asyncpg>=0.30; extra == 'postgres'
"""
FILES = ("loom/__init__.py", "loom/py.typed", "loom/web/dist/index.html", "pytest_loom.py")
MIGRATION = "loom/store/sqlite/migrations/0001_first.sql"


def wheel_of(folder: Path, *names: str, metadata: str = METADATA) -> Path:
    path = folder / "loom_workflows-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("loom_workflows-1.2.3.dist-info/METADATA", metadata)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "loom").mkdir(parents=True)
    (tmp_path / "src" / "loom" / "__init__.py").touch()
    return tmp_path


def test_a_good_wheel_has_no_problems(project: Path) -> None:
    wheel = wheel_of(project, *FILES, MIGRATION)
    assert list(release_check.wheel_problems(wheel, "1.2.3", project)) == []


def test_what_a_wheel_lacks_or_should_not_hold_is_named(project: Path) -> None:
    (project / "src" / "loom" / "new.py").touch()
    wheel = wheel_of(project, *FILES, "loom/tests/test_a.py", "loom/__pycache__/a.pyc")
    told = " ".join(release_check.wheel_problems(wheel, "1.2.3", project))
    for problem in ("lacks loom/store/sqlite/migrations/0001_", "holds loom/tests/", "a.pyc", "lacks loom/new.py"):
        assert problem in told


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("Version: 1.2.3", "Version: 1.2.4", "says version 1.2.4, the source 1.2.3"),
        ("Summary: A durable workflow engine.\n", "", "has no Summary"),
        ("click>=8.1.7", "click", "'click' has no lower bound"),
        ("click>=8.1.7", "click @ https://a.org/click.whl", "is an address"),
    ],
)
def test_metadata_that_an_index_would_miss_is_named(before: str, after: str, told: str) -> None:
    assert list(release_check.metadata_problems(METADATA, "1.2.3")) == []
    assert told in " ".join(release_check.metadata_problems(METADATA.replace(before, after), "1.2.3"))


def test_a_version_that_is_none_is_named() -> None:
    text = METADATA.replace("1.2.3", "1.2-next")
    assert list(release_check.metadata_problems(text, "1.2-next")) == ["1.2-next is no version of a release"]


def test_what_a_packager_would_miss_is_named(tmp_path: Path) -> None:
    path = tmp_path / "loom_workflows-1.2.3.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in release_check.IN_SDIST[1:]:
            archive.addfile(tarfile.TarInfo(f"loom_workflows-1.2.3/{name}"), io.BytesIO())
    assert list(release_check.sdist_problems(path)) == [f"{path.name} lacks LICENSE"]


def test_the_licenses_that_are_not_known_are_named() -> None:
    rows = [
        ["a", "1", "MIT"],
        ["b", "2", "Apache-2.0 OR BSD-3-Clause"],
        ["c", "3", "GPL-3.0-only"],
        ["d", "4", ""],
        ["e", "5", "MIT AND GPL-2.0"],
    ]
    assert release_check.license_problems(rows) == ["c 3: GPL-3.0-only", "d 4: no license", "e 5: MIT AND GPL-2.0"]


def test_the_files_that_a_wheel_needs_are_in_the_source() -> None:
    source = ROOT / "src"
    names = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert [part for part in release_check.IN_WHEEL if not any(part in name for name in names)] == []
