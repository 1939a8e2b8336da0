"""Types the tutorials as a reader does: `python run_tutorials.py [NAME...]`, or all of them.

Loom is built as a wheel. Each page gets an environment of its own by the commands of its block "Set up", with the wheel
in the place of the clone; everything else comes from where pip finds it. Then `run_terminals.py` types the page's files
and commands in order, and compares what is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_TERMINALS = Path(__file__).with_name("run_terminals.py")
_SET_UP = re.compile(
    r"^<!-- no-run -->\n```sh\n(mkdir (\w+) && cd \w+\n.*?pip install .*?)^```$", re.MULTILINE | re.DOTALL
)
_CLONE = "../loom"
PAGES = [page for page in sorted((_ROOT / "docs" / "tutorials").glob("*.md")) if page.name != "README.md"]


class TutorialError(Exception):
    """A tutorial cannot be followed as it is written."""


def set_up(page: Path) -> tuple[str, str]:
    """The commands that make a page's environment, and the folder that they make it in."""
    found = _SET_UP.search(page.read_text("utf-8"))
    if found is None or _CLONE not in found[1]:
        raise TutorialError(f"{page} has no block that makes a folder and installs '{_CLONE}' there.")
    return found[1], found[2]


def build(folder: Path) -> Path:
    """Build the wheel of this tree."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        _ROOT,
    ]
    subprocess.run(list(map(str, command)), check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def follow(page: Path, wheel: Path) -> None:
    """Make the environment of a page, see that it has the wheel's Loom, and type the page."""
    commands, name = set_up(page)
    typed = commands.replace("python3 -m venv", f'"{sys.executable}" -m venv').replace(_CLONE, str(wheel))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LOOM_", "PYTHON"))}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["bash", "-e", "-c", typed], cwd=folder, env={**environment, "PIP_QUIET": "1"}, check=True)
        programs = Path(folder, name, ".venv", "bin")
        where = [str(programs / "python"), "-c", "import loom; print(loom.__file__)"]
        installed = subprocess.run(
            where, cwd=folder, env=environment, capture_output=True, text=True, check=True
        ).stdout
        if not Path(installed.strip()).is_relative_to(Path(folder).resolve()):
            raise TutorialError(f"{page} would run with the Loom in {installed.strip()}, which is not the wheel's.")
        command = [sys.executable, str(_TERMINALS), str(page), "--programs", str(programs)]
        if subprocess.run(command, env=environment, check=False).returncode:
            raise TutorialError(f"{page} does not print what it shows: see above.")


def main(names: list[str]) -> None:
    """Follow the tutorials that are named, or all."""
    unknown = set(names) - {page.stem for page in PAGES}
    if unknown:
        raise TutorialError(
            f"There is no tutorial {', '.join(sorted(unknown))}. There are {', '.join(page.stem for page in PAGES)}."
        )
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        for page in PAGES:
            if not names or page.stem in names:
                began = time.monotonic()
                follow(page, wheel)
                took = time.monotonic() - began
                sys.stdout.write(f"{page.relative_to(_ROOT)}: as shown, in {took:.0f} s with its installation.\n")


if __name__ == "__main__":
    main(sys.argv[1:])
