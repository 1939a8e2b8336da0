"""Programs written for llama-index-workflows print the same on Loom as on the original, without a change to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("basic", "drawing", "fan_out", "human", "resources", "retries", "state", "streaming")


def run(engine: str, name: str) -> tuple[str, str]:
    """What a program prints, and the module of the `Workflow` class that it ran on."""
    command = [sys.executable, str(PROGRAMS / "launch.py"), engine, str(PROGRAMS / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", NAMES)
def test_program_prints_the_same_on_both_engines(name: str) -> None:
    expected, original = run("original", name)
    printed, engine = run("loom", name)
    assert (original, engine) == ("workflows.workflow", "loom.steps.workflow")
    assert expected
    assert printed == expected
