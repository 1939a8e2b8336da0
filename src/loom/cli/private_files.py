"""Files that only their owner may read: what commands write may hold the data of runs. Standard library only."""

from __future__ import annotations

import os
import stat

_MODE = 0o600


def write_private(path: str, data: bytes) -> None:
    """Write a file for its owner alone, also if it was there and others could read it. `OSError` if that fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), _MODE)
    with os.fdopen(descriptor, "wb") as file:
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, _MODE)
        file.write(data)
