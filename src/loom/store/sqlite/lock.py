"""The lock that lets one engine at a time work on a database file: a lock of the system, gone with its process.

May import the standard library and the errors of the store.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime

from loom.store.errors import StoreLocked, StoreUnavailable

_FAR_BYTE = 1 << 30
"""Windows locks bytes against reading too, so a byte is locked that the text never reaches."""


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


class EngineLock:
    """Who works on a database file. Held from `take` to `release`, or to the end of the process."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._descriptor: int | None = None

    def take(self, name: str) -> None:
        """Take the lock, or say who has it: `StoreLocked`. Who has it already, and lost only its lease, keeps it."""
        if self._descriptor is not None:
            return
        # Beside the file itself: whatever symbolic links lead to it, there is one lock.
        path = f"{os.path.realpath(self._database)}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise StoreUnavailable(f"The lock file {path} cannot be opened: {error.strerror}.") from error
        try:
            if not _try_lock(descriptor):
                os.lseek(descriptor, 0, os.SEEK_SET)
                raise StoreLocked(self._refusal(os.read(descriptor, 1000)))
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            note = f"{name}, process {os.getpid()} on {socket.gethostname()}, since {since}"
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, note.encode("utf-8", "replace"))
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others in. The file stays: removing it could take it away from under the next one."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _refusal(self, note: bytes) -> str:
        holder = note.decode("utf-8", "replace") or "another process"
        return (
            f"Another engine works on the database {self._database}: {holder}. Only one may run its workflows; "
            "other processes may read it, start runs and send events. Stop that engine first, or use PostgreSQL "
            "for several."
        )
