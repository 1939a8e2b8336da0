"""Every Python example in the README and docs/ runs as it stands and prints what is shown; examples run; links hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_examples.py")
MARKDOWN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in MARKDOWN if "```python" in page.read_text("utf-8")]
SCRIPTS = [script for script in sorted((ROOT / "examples").glob("*.py")) if script.name != "demo.py"]
"""All but the demo, which tests/kill/test_demo.py runs and reads."""


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


def test_the_agent_comes_to_the_same_answer_in_both_styles_and_is_parked_at_its_limit(tmp_path: Path) -> None:
    done = _run(ROOT / "examples" / "react_loop.py", cwd=tmp_path)
    steps, _, flow = done.stdout.partition("flow:\n")
    found = ["  A scarf takes 3 metres of yarn per row.", "  mul(60, 3) = 180", "  180 metres"]
    assert flow.splitlines() == found
    assert steps.splitlines() == ["steps:", *found, "  parked: Step 'act' would be execution 22 in a row"]


@pytest.mark.parametrize("page", MARKDOWN, ids=_id)
def test_links_to_other_pages_hold(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def _graphs() -> list[tuple[str, str]]:
    shown = re.compile(r"^```sh\nloom graph (\S+)\n```\n\n```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [graph for page in MARKDOWN for graph in shown.findall(page.read_text("utf-8"))]


@pytest.mark.parametrize(("target", "shown"), _graphs(), ids=lambda value: value.partition("\n")[0])
def test_graphs_that_are_shown_are_what_the_command_prints(target: str, shown: str) -> None:
    done = _run("-m", "loom", "graph", target, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


@pytest.mark.parametrize("page", MARKDOWN, ids=_id)
def test_links_within_pages_hold(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text("utf-8"))
    missing = [
        f"{target}#{heading}"
        for target, heading in links
        if "://" not in target and heading not in _headings(page.parent / target if target else page)
    ]
    assert missing == []


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as they are made of its headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_wrong_output_is_noticed_and_can_be_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(2)\n```\n\n```text\n1\n```\n")
    assert "WrongOutputError" in _run(RUNNER, page, cwd=tmp_path).stderr
    assert _run(RUNNER, "--rewrite", page, cwd=tmp_path).returncode == 0
    assert page.read_text() == "```python\nprint(2)\n```\n\n```text\n2\n```\n"
    assert _run(RUNNER, page, cwd=tmp_path).returncode == 0


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
