"""A disk that fails as it is told, under a real SQLite: a VFS of apsw, and the connections of a store over it.

It also knows what would be left if the power were cut: only what was synced, and by chance parts of the rest. A sync
that fails loses what it was to save, as Linux does: a later one that succeeds does not bring it back.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import apsw

SECTOR = 512
_numbers = count(1)

_CODES = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "short": apsw.SQLITE_IOERR_WRITE,
    "full": apsw.SQLITE_FULL,
    "readonly": apsw.SQLITE_READONLY,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}
_COUNTED_AS = {"short": "write", "full": "write", "readonly": "write"}


class Fault(NamedTuple):
    """What fails: an operation on a file (`db` or `wal`) for the n-th time, once or from then on."""

    kind: str
    place: str
    number: int
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}:{self.number}{':lasts' if self.lasts else ''}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The other way round."""
        kind, place, number, *lasts = text.split(":")
        return cls(kind, place, int(number), bool(lasts))


@dataclass
class _Image:
    """What a disk holds of a file: what was synced, and what was written since."""

    durable: bytearray
    pending: list[tuple[int, bytes | None]]
    """Places and bytes; without bytes the file was cut there."""

    def sync(self) -> None:
        for offset, data in self.pending:
            _put(self.durable, offset, data)
        self.pending.clear()

    def after_power_cut(self, chance: random.Random | None) -> bytes:
        """Without chance, nothing that was not synced is there; else each sector of it may be."""
        left = bytearray(self.durable)
        for offset, data in self.pending if chance is not None else ():
            if data is None:
                if chance.random() < 0.5:
                    _put(left, offset, None)
                continue
            for start in range(0, len(data), SECTOR):
                if chance.random() < 0.7:
                    _put(left, offset + start, data[start : start + SECTOR])
        return bytes(left)


def _put(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """Where files are that can fail. `connect` is what a store takes."""

    def __init__(self, *, remembers: bool = False, checkpoint_pages: int = 1000) -> None:
        self.fault: Fault | None = None
        self.struck = 0
        """How often the fault has come."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self.failed_checkpoints = 0
        self.checkpoint_pages = checkpoint_pages
        self.lock = threading.RLock()
        self.images: dict[str, _Image] | None = {} if remembers else None
        self._vfs = _Vfs(f"faulty{next(_numbers)}", self)

    def connect(self, path: str) -> Connection:
        """A connection over this disk."""
        return Connection(path, self)

    @property
    def name(self) -> str:
        """The name of the VFS."""
        return self._vfs.vfs_name

    def fail(self, fault: Fault | None) -> None:
        """From now on this fails, counted from now; None: nothing does."""
        with self.lock:
            self.counts.clear()
            self.struck = 0
            self.fault = fault

    def comes_to(self, operation: str, place: str) -> str | None:
        """Something is to be done: the kind of the fault, if it fails."""
        self.counts[operation, place] += 1
        fault = self.fault
        if fault is None or (_COUNTED_AS.get(fault.kind, fault.kind), fault.place) != (operation, place):
            return None
        number = self.counts[operation, place]
        if number == fault.number or (fault.lasts and number > fault.number):
            self.struck += 1
            return fault.kind
        return None

    def cut_power(self, path: Path, to: Path, chance: random.Random | None = None) -> None:
        """Write what would be left now to another place. Whoever works on the old one does not notice."""
        assert self.images is not None, "a disk that remembers nothing cannot tell"
        with self.lock:
            for suffix in ("", "-wal", "-journal"):
                image = self.images.get(f"{path}{suffix}")
                if image is not None:
                    Path(f"{to}{suffix}").write_bytes(image.after_power_cut(chance))


class _Vfs(apsw.VFS):
    """The system's files, opened so that they can fail."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.vfs_name = name
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802 - SQLite's name
        return _File(name, flags, self._disk)

    def xDelete(self, filename: str, sync_directory: bool) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            super().xDelete(filename, sync_directory)
            if self._disk.images is not None:
                self._disk.images.pop(filename, None)


class _File(apsw.VFSFile):
    """A file that can fail."""

    def __init__(self, name: Any, flags: list[int], disk: Disk) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._place = "wal" if self._path.endswith("-wal") else "db"
        super().__init__("", name, flags)
        images = disk.images
        if images is not None and self._path not in images:
            with disk.lock:
                size = super().xFileSize()
                images[self._path] = _Image(bytearray(super().xRead(size, 0)) if size else bytearray(), [])

    def excepthook(self, _kind: Any, _error: Any, _trace: Any) -> None:
        """Where SQLite has no use for an error it goes on without; so does this."""

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            kind = self._disk.comes_to("read", self._place)
        if kind is not None:
            raise _error(kind)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            kind = self._disk.comes_to("write", self._place)
            if kind == "short":
                self._write(bytes(data)[: len(data) // 2], offset)
            if kind is not None:
                raise _error(kind)
            self._write(bytes(data), offset)

    def _write(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._remember(offset, data)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            if (kind := self._disk.comes_to("truncate", self._place)) is not None:
                raise _error(kind)
            super().xTruncate(size)
            self._remember(size, None)

    def _remember(self, offset: int, data: bytes | None) -> None:
        if self._disk.images is not None:
            self._disk.images[self._path].pending.append((offset, data))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            image = self._disk.images[self._path] if self._disk.images is not None else None
            if (kind := self._disk.comes_to("sync", self._place)) is not None:
                if image is not None:
                    image.pending.clear()
                raise _error(kind)
            if image is not None:
                image.sync()


def _error(kind: str) -> Exception:
    error: Exception = apsw.exception_for(_CODES[kind])
    return error


class Connection:
    """What the store wants of a connection, over apsw, with the errors of the standard library."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._disk = disk
        try:
            self._connection = apsw.Connection(os.fspath(path), vfs=disk.name)
        except apsw.Error as error:
            raise _as_sqlite3(error) from error

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has been neither committed nor rolled back."""
        return bool(self._connection.in_transaction)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> int:
        """Run a statement that gives no rows."""
        self.query(sql, parameters)
        return int(self._connection.changes())

    def query(self, sql: str, parameters: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """All rows that a statement gives."""
        if sql.startswith("PRAGMA wal_autocheckpoint"):
            self._connection.set_wal_hook(self._committed)
            return []
        try:
            return list(self._connection.execute(sql, tuple(parameters)).fetchall())
        except apsw.Error as error:
            raise _as_sqlite3(error) from error

    def _committed(self, connection: apsw.Connection, _database: str, pages: int) -> int:
        """Checkpoint now and then, as SQLite does by itself: if that fails, the commit is durable all the same."""
        if pages >= self._disk.checkpoint_pages:
            try:
                connection.wal_checkpoint()
            except apsw.BusyError:
                pass
            except apsw.Error:
                self._disk.failed_checkpoints += 1
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Let go of the file. Like the standard library, it says nothing of a last checkpoint that fails."""
        try:
            self._connection.close()
        except apsw.Error:
            self._disk.failed_checkpoints += 1


_TEXTS = {
    apsw.SQLITE_IOERR: "disk I/O error",
    apsw.SQLITE_FULL: "database or disk is full",
    apsw.SQLITE_READONLY: "attempt to write a readonly database",
}
"""What SQLite says itself; errors that are made here have no text."""


def _as_sqlite3(error: apsw.Error) -> sqlite3.Error:
    """The same error as the standard library would raise it."""
    code = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
    primary = code & 0xFF
    kinds: dict[int, type[sqlite3.Error]] = {
        apsw.SQLITE_CONSTRAINT: sqlite3.IntegrityError,
        apsw.SQLITE_CORRUPT: sqlite3.DatabaseError,
        apsw.SQLITE_NOTADB: sqlite3.DatabaseError,
    }
    found = kinds.get(primary, sqlite3.OperationalError)(str(error) or _TEXTS.get(primary, "an error"))
    found.sqlite_errorcode = code
    return found
