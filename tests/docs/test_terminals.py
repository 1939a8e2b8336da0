"""The pages that serve workflows: their commands, in a few terminals, print what is shown."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

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
