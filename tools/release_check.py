"""Build a release and use it as a stranger would: in a clean environment, from the wheel, with the examples.

`make release-check` leaves what a release is made of in build/release: the wheel, the sdist, the bill of materials, the
licenses and the checksums. It publishes nothing. CONTRIBUTING.md has the list of what a person does before and after.
"""

from __future__ import annotations

import argparse
import email.parser
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from changelog import fragments, source_version

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "release"

IN_WHEEL = ("loom/py.typed", "loom/web/dist/index.html", "loom/store/sqlite/migrations/0001_", "pytest_loom")
"""What a wheel must have beside modules: parts of names."""
NOT_IN_WHEEL = re.compile(r"(^|/)(tests?|docs|bench|__pycache__)/|\.pyc$|\.db$")
IN_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src/loom/__init__.py", "tests/conftest.py")
LICENSES = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL[- ]2|Mozilla Public License 2|Unlicense|0BSD|CC0",
    re.IGNORECASE,
)
"""Licenses that a program may be shipped with, whatever its own is; their texts stay with the packages."""

LIST_LICENSES = """
import json
from importlib.metadata import distributions

rows = []
for each in distributions():
    data = each.metadata
    told = data.get("License-Expression") or ""
    classified = [c.rpartition(" :: ")[2] for c in data.get_all("Classifier", []) if c.startswith("License ::")]
    text = (data.get("License") or "").strip().splitlines()
    rows.append([data["Name"], data["Version"], told or ", ".join(classified) or (text[0] if text else "")])
print(json.dumps(sorted(rows, key=lambda row: row[0].lower())))
"""


class ReleaseError(Exception):
    """Something is wrong with the release; the text says what."""


def build() -> tuple[Path, Path]:
    """Build the sdist, and the wheel from what the sdist holds. Return the wheel and the sdist."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(OUTPUT)], ROOT)
    [sdist] = OUTPUT.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
                archive.extractall(folder, filter="data")
            else:
                archive.extractall(folder)  # noqa: S202 - it was made two lines above
        [source] = Path(folder).iterdir()
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(OUTPUT)], source)
    [wheel] = OUTPUT.glob("*.whl")
    return wheel, sdist


def wheel_problems(wheel: Path, version: str, root: Path = ROOT) -> Iterator[str]:
    """Tell what is wrong with the files and the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        yield from (f"{wheel.name} lacks {part}" for part in IN_WHEEL if not any(part in name for name in names))
        yield from (f"{wheel.name} holds {name}" for name in names if NOT_IN_WHEEL.search(name))
        modules = {path.relative_to(root / "src").as_posix() for path in (root / "src" / "loom").rglob("*.py")}
        yield from (f"{wheel.name} lacks {name}" for name in sorted(modules - {*names}))
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        yield from metadata_problems(archive.read(metadata).decode("utf-8"), version)


def metadata_problems(text: str, version: str) -> Iterator[str]:
    """Tell what an index or an installer would miss."""
    data = email.parser.Parser().parsestr(text)
    if data["Version"] != version:
        yield f"the metadata says version {data['Version']}, the source {version}"
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.dev\d+)?", version):
        yield f"{version} is no version of a release"
    for name in ("Name", "Summary", "License-Expression", "Requires-Python", "Description-Content-Type"):
        if not data[name]:
            yield f"the metadata has no {name}"
    required = [line for line in data.get_all("Requires-Dist", []) if "extra ==" not in line]
    yield from (f"'{line}' has no lower bound" for line in required if ">=" not in line)
    yield from (f"'{line}' is an address, which no index takes" for line in required if " @ " in line)


def sdist_problems(sdist: Path) -> Iterator[str]:
    """Tell what a packager of a distribution would miss."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    yield from (f"{sdist.name} lacks {name}" for name in IN_SDIST if name not in names)


def license_problems(rows: list[list[str]]) -> list[str]:
    """Name the packages whose license is not known, or forbids to ship them with a program of any license."""
    wrong = [row for row in rows if not LICENSES.search(row[2]) or "GPL" in row[2]]
    return [f"{name} {version}: {told or 'no license'}" for name, version, told in wrong]


def install(wheel: Path, folder: Path) -> Path:
    """Install the pins of the image and the wheel into a new environment; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "-q", "--require-hashes", "-r", str(ROOT / "requirements" / "deploy.txt")], folder)
    _run([*pip, "install", "-q", "--no-deps", str(wheel)], folder)
    _run([*pip, "check"], folder)
    return python


def use(python: Path, folder: Path, version: str) -> None:
    """Run the command line, all examples and the demo with what was installed, far from the repository."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    home = _run([str(python), "-c", "import loom; print(loom.__file__)"], folder).strip()
    if not Path(home).is_relative_to(python.parents[1]):
        raise ReleaseError(f"The environment uses {home}, which is not the wheel")
    loom = [str(python), "-m", "loom"]
    if _run([*loom, "--version"], folder).strip() != f"loom, version {version}":
        raise ReleaseError("loom --version tells another version")
    _run([*loom, "validate", *map(str, sorted((folder / "examples" / "flows").iterdir()))], folder)
    for script in sorted((folder / "examples").glob("*.py")):
        began = time.monotonic()
        _run([str(python), str(script)], folder)
        _say(f"  examples/{script.name}: {time.monotonic() - began:.1f} s")


def describe(python: Path, wheel: Path, sdist: Path) -> None:
    """Write the bill of materials, the licenses and the checksums beside the wheel."""
    bill = _run([sys.executable, str(ROOT / "deploy" / "sbom.py")], ROOT)
    (OUTPUT / "sbom.json").write_text(bill, "utf-8")
    ours = {component["name"] for component in json.loads(bill)["components"]}
    rows = [row for row in json.loads(_run([str(python), "-c", LIST_LICENSES], ROOT)) if _plain(row[0]) in ours]
    lines = ["# Licenses of the packages in the image", "", "| package | version | license |", "|---|---|---|"]
    (OUTPUT / "licenses.md").write_text("\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows], ""]), "utf-8")
    if wrong := license_problems(rows):
        raise ReleaseError("Licenses to look at:\n  " + "\n  ".join(wrong))
    files = (wheel, sdist, OUTPUT / "sbom.json", OUTPUT / "licenses.md")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (OUTPUT / "SHA256SUMS").write_text("".join(sums), "utf-8")


def check() -> None:
    """Do all of it, and raise at the first thing that is wrong."""
    version = source_version()
    _say(f"Release {version}: {len(fragments())} fragments of the changelog are well formed")
    wheel, sdist = build()
    if wrong := [*wheel_problems(wheel, version), *sdist_problems(sdist)]:
        raise ReleaseError("\n".join(wrong))
    _say(f"Built {wheel.name} ({wheel.stat().st_size:,} bytes) and {sdist.name} ({sdist.stat().st_size:,} bytes)")
    with tempfile.TemporaryDirectory(prefix="loom-release-") as name:
        folder = Path(name)
        python = install(wheel, folder / "environment")
        _say("Installed into a clean environment with the pins of the image")
        use(python, folder, version)
        describe(python, wheel, sdist)
    _say(f"{OUTPUT.relative_to(ROOT)}: " + ", ".join(sorted(path.name for path in OUTPUT.iterdir())))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: list[str], cwd: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(  # noqa: S603 - its own commands
        command, cwd=cwd, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Check, and say what is wrong."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(
        arguments
    )
    try:
        check()
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
