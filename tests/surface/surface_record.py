"""Records the fixed store as a database of this version: `python tests/surface/surface_record.py 0.1`.

A database that is there already is never recorded again: later versions must open it as it is. Tracebacks in it name
the place of the repository, so a copy of the repository at `surface_golden.RECORDED_ROOT` does the recording.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from pathlib import Path

import surface_script
from surface_golden import FOLDER, RECORDED_ROOT, ROOT


def main(version: str) -> None:
    """Build the fixed store, and keep it compressed under a version."""
    if str(ROOT) != RECORDED_ROOT:
        sys.exit(f"The repository must lie at {RECORDED_ROOT}, so that the database names no other place.")
    target = FOLDER / "stores" / f"{version}.db.xz"
    if target.exists():
        sys.exit(f"{target} is there already.")
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loom.db"
        surface_script.build(path)
        target.write_bytes(lzma.compress(path.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
