"""The program of the report on queries shows the fault of Temporal's SDK. The day it does not, the shield can go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "temporal-query-report.md"


@pytest.mark.full(reason="it shows a fault that is not Loom's")
def test_the_smallest_program_shows_the_fault(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "ahead.py").write_text(program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "ahead.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "the query was answered: False" in done.stdout, done.stderr
    assert "Activity type of scheduled event 'after' does not match" in done.stdout
