"""Programs written for llama-index-workflows print the same on Loom as on the original, without a change to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("basic", "drawing", "fan_out", "human", "resources", "retries", "state", "streaming")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs run in forks")


def run(engine: str, folder: Path) -> tuple[dict[str, str], str]:
    """What each program prints, and the module of the `Workflow` class that they ran on."""
    folder.mkdir()
    files = [str(PROGRAMS / f"{name}.py") for name in NAMES]
    command = [sys.executable, str(PROGRAMS / "launch_each.py"), engine, str(folder), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return {name: (folder / f"{name}.out").read_text("utf-8") for name in NAMES}, done.stderr.splitlines()[-1]


def test_programs_print_the_same_on_both_engines(tmp_path: Path) -> None:
    """All in one test: what takes long is the import of the packages."""
    expected, original = run("original", tmp_path / "original")
    printed, engine = run("loom", tmp_path / "loom")
    assert (original, engine) == ("workflows.workflow", "loom.steps.workflow")
    assert all(expected.values())
    assert printed == expected
