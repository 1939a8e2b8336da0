"""The commands that docs/cli.md shows, run in their order, print what it shows there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
_FILE = re.compile(r"`(\w+\.json)`:\n\n```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^```sh\n((?:(?!```).*\n)+)```\n\n```text\n((?:(?!```).*\n)+)```$", re.MULTILINE)


def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    for name, content in _FILE.findall(text):
        (tmp_path / name).write_text(content)
    shown = _SHOWN.findall(text)
    assert len(shown) >= 5
    env = {key: value for key, value in os.environ.items() if not key.startswith("LOOM_")}
    for commands, output in shown:
        script = f'loom() {{ "{sys.executable}" -W error -m loom "$@"; }}\n{commands}'
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert _without_times(done.stdout) == _without_times(output), f"{commands}\n{done.stdout}\n{done.stderr}"


def _without_times(text: str) -> str:
    return re.sub(r"\b\d+m?s\b", "…", text)
