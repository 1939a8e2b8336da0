"""A new user's first week, with Loom from its wheel: built from this tree, unpacked, and run in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_week_holds_no_surprises(tmp_path: Path) -> None:
    built, unpacked, home = tmp_path / "wheel", tmp_path / "site", tmp_path / "home"
    home.mkdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
        cwd=ROOT, capture_output=True, timeout=100, check=True,
    )  # fmt: skip
    [wheel] = built.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("first_week.py"))],
        cwd=home, env={**kept, "PYTHONPATH": str(unpacked)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Loom is at {unpacked}" in done.stdout
    assert done.stdout.rstrip().endswith(" passed, 0 failed")
