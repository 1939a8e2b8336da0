"""The file of a database: where it may be, whether it is still the one that was opened, and the lock of its engine."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from contextlib import suppress
from datetime import datetime

from loom.store.errors import StoreError, StoreLocked, StoreUnavailable

OLDEST = (3, 35, 0)
"""The first SQLite with all that the statements use: UPDATE ... FROM and RETURNING."""


def check_place(path: str) -> None:
    """Refuse a path where no database can be, with a reason that SQLite would not give."""
    if path == ":memory:" or not path:
        raise StoreError("SQLite keeps runs in a file, and this names none. For runs in memory use memory://.")
    if sqlite3.sqlite_version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise StoreError(f"SQLite {wanted} or newer is needed; this Python has {sqlite3.sqlite_version}.")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise StoreUnavailable(f"The database {path} cannot be used: it is a folder.")
    if not os.path.isdir(folder):
        raise StoreUnavailable(f"The database {path} cannot be used: the folder {folder} does not exist.")
    check_file_names(path)


def check_file_names(path: str) -> None:
    """Refuse a file with several names (hard links): each would have a lock and a write-ahead log of its own."""
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return  # it is not there yet, or SQLite will say why it cannot be opened
    if names > 1:
        raise StoreUnavailable(
            f"The database {path} cannot be used: the file has {names} names (hard links), and processes that open it "
            "by different ones would damage it. Remove the other names, or copy the file."
        )


def make_private(path: str) -> None:
    """Make an empty file that only its owner may read, if there is none. SQLite gives its other files the same mode."""
    with suppress(OSError):  # it is there, or SQLite will say why it cannot be
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))


def check_present(path: str) -> None:
    """Refuse to open a file that is not there, instead of making an empty one."""
    if not os.path.exists(path):
        error = sqlite3.OperationalError("the file is gone")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error


class OpenedFile:
    """Notes which file a connection has opened. SQLite would go on writing to one that was deleted or replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._now()

    def is_replaced(self) -> bool:
        """Tell whether the path is that of another file now, or of none."""
        return self._now() != self._file

    def check(self) -> None:
        """Raise an error of SQLite if the file was replaced or deleted."""
        if self.is_replaced():
            error = sqlite3.OperationalError("the file was deleted or replaced")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
            raise error

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


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
    """Lets one engine at a time work on a database file. The system frees it when the process ends."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._descriptor: int | None = None

    def take(self, name: str) -> None:
        """Take the lock; `StoreLocked` names the holder. An engine that has it already keeps it."""
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
        """Free the lock. The file stays: removing it could take it away from the next engine."""
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
