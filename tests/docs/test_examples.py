"""Every Python example in the README and in docs/ runs as it stands, examples/ too, and links between pages hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_examples.py")
MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in MARKDOWN if "```python" in page.read_text("utf-8")]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


def _run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Each page in a process of its own: pages define events of the same name, and one installs loom.compat."""
    return subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    done = _run(RUNNER, page, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=_id)
def test_example_scripts_run(script: Path, tmp_path: Path) -> None:
    done = _run(script, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", MARKDOWN, ids=_id)
def test_links_to_other_pages_hold(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_a_broken_example_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nimport asyncio\nawait asyncio.sleep(0)\nassert x == 2\n```\n")
    done = _run(RUNNER, page, cwd=tmp_path)
    assert done.returncode == 1
    assert f'File "{page}", line 8' in done.stderr


def test_an_example_that_does_not_run_must_still_compile(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- no-run -->\n```python\nraise SystemExit(3)\n```\n")
    assert _run(RUNNER, page, cwd=tmp_path).returncode == 0
    page.write_text("<!-- no-run -->\n```python\ndef broken(:\n```\n")
    assert "SyntaxError" in _run(RUNNER, page, cwd=tmp_path).stderr
