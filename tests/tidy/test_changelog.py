"""Fragments of the changelog are well formed, and become the section of a release."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "changelog.py"

CHANGELOG = """# Changelog

What changed.

## [Unreleased]

Words before the lists.

### Added

- **Old**: is here
  for long.

### Fixed

- **Older**: is mended.

## [0.1.0] - 2026-01-01

### Added

- **First**: all of it.
"""


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changelog", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("How to write one.\n")
    (tmp_path / "src" / "loom").mkdir(parents=True)
    (tmp_path / "src" / "loom" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def _write(project: Path, name: str, text: str) -> None:
    (project / "changelog.d" / name).write_text(text)


def test_the_fragments_of_this_repository_are_well_formed() -> None:
    assert tool.fragments() == sorted(tool.fragments(), key=lambda each: tool.KINDS.index(each.kind))


def test_the_draft_of_this_repository_has_every_fragment() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--draft"], capture_output=True, text=True, check=True)
    assert [each.path.name for each in tool.fragments() if each.bullet not in done.stdout] == []
    assert (ROOT / "CHANGELOG.md").read_text("utf-8").count("\n- ") <= done.stdout.count("\n- ")


def test_the_page_lists_every_kind() -> None:
    page = (ROOT / "changelog.d" / "README.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(tool.KINDS)


def test_a_release_takes_fragments_and_unreleased_entries(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(project, "new.added.md", "**New**: is here\nin two lines.\n")
    _write(project, "closed.security.md", "**A hole** is closed.\n")
    assert tool.main(["--date", "2026-05-04"], project) == 0
    assert "0.2.0, with 2 new entries" in capsys.readouterr().out
    assert (
        (project / "CHANGELOG.md").read_text()
        == """# Changelog

What changed.

## [Unreleased]

## [0.2.0] - 2026-05-04

Words before the lists.

### Added

- **New**: is here
  in two lines.
- **Old**: is here
  for long.

### Fixed

- **Older**: is mended.

### Security

- **A hole** is closed.

## [0.1.0] - 2026-01-01

### Added

- **First**: all of it.
"""
    )
    assert [path.name for path in (project / "changelog.d").iterdir()] == ["README.md"]


def test_a_draft_changes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(project, "new.added.md", "**New**: is here.\n")
    assert tool.main(["--draft"], project) == 0
    assert "- **New**: is here.\n- **Old**" in capsys.readouterr().out
    assert (project / "CHANGELOG.md").read_text() == CHANGELOG
    assert (project / "changelog.d" / "new.added.md").exists()


def test_a_version_is_released_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(project, "new.added.md", "**New**: is here.\n")
    (project / "src" / "loom" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    assert tool.main([], project) == 1
    assert "has a section of 0.1.0" in capsys.readouterr().err
    assert (project / "changelog.d" / "new.added.md").exists()


def test_a_release_of_nothing_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert tool.main([], project) == 1
    assert "Nothing has changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("new.better.md", "**New**: is here.", "name it SLUG.KIND.md"),
        ("New.added.md", "**New**: is here.", "name it SLUG.KIND.md"),
        ("added.md", "**New**: is here.", "name it SLUG.KIND.md"),
        ("new.added.md", "\n", "has no text"),
        ("new.added.md", "- **New**: is here.", "begins with a mark"),
        ("new.added.md", "One.\n\nTwo.", "several paragraphs"),
        ("new.added.md", "**New**: is here", "full stop"),
        ("new.added.md", "word " * 150 + ".", "more than 600 characters"),
        ("new.added.md", "[A page](docs/no-such-page.md) tells.", "docs/no-such-page.md, which is not there"),
    ],
)
def test_what_is_not_well_formed_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, says: str
) -> None:
    _write(project, name, text)
    assert tool.main(["--draft"], project) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"changelog.d/{name}: ")
    assert says in told
