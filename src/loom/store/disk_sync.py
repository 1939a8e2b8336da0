"""What it takes on each system until written data outlives a power cut."""

from __future__ import annotations

import os
import sys

SQLITE_PRAGMAS: tuple[str, ...] = (
    # On macOS a plain fsync returns while the data is in the cache of the drive; SQLite has F_FULLFSYNC as an option.
    ("PRAGMA fullfsync = 1", "PRAGMA checkpoint_fullfsync = 1") if sys.platform == "darwin" else ()
)
"""What a connection that writes needs here beside `synchronous = full`."""


def sync_file(descriptor: int) -> None:
    """Return once all that was written to an open file is on the disk."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # file systems that lack it, such as shares in a network
            os.fsync(descriptor)
    else:
        os.fsync(descriptor)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable. Windows opens no folders; there the file system keeps names by itself."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
