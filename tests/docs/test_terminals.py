"""The pages that serve workflows: their commands, in a few terminals, print what is shown."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_terminals.py")
TUTORIALS = [page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if page.name != "README.md"]
PAGES = TUTORIALS + [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/howto").glob("*.md")))
    if re.search(r"^```sh\n(loom serve|temporal server)", page.read_text("utf-8"), re.MULTILINE)
]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the examples are for a shell")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows(page: Path) -> None:
    command = [sys.executable, str(RUNNER), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_a_tutorial_begins_with_an_environment_of_its_own(page: Path) -> None:
    commands, folder = _tutorials().set_up(page)
    assert f"cd {folder}" in commands
    assert "python3 -m venv .venv" in commands


def test_a_tutorial_without_an_installation_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- no-run -->\n```sh\nmkdir a && cd a\npip install something\n```\n")
    tutorials = _tutorials()
    with pytest.raises(tutorials.TutorialError, match="no block"):
        tutorials.set_up(page)


def _tutorials() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tutorials", ROOT / "tests" / "docs" / "run_tutorials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES = """\
`a.py`:

```python
print("first")
```

```sh
mkdir place && cd place
export WORD=heard
python ../a.py
```

```text
first
```

`a.py`:

<!-- no-run -->
```python
print("second")
```

```sh
python ../a.py
echo $WORD
```

```text
second
heard
```
"""


def test_a_file_that_is_shown_again_is_replaced_and_a_terminal_remembers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(FILES)
    command = [sys.executable, str(RUNNER), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page.write_text(FILES.replace("second\nheard", "second\nlost"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "line 24: it prints\nsecond\nheard" in done.stderr
