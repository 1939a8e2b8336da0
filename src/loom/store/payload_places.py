"""Where payloads are kept: a folder, or the entries of the store itself.

In a folder each store has a folder of its own, which an entry of the store names. So several stores may be given the
same folder, and a disk that is not mounted is told from a payload that is missing. In it each run has a folder, named
by a digest of its id, with a file `run` that has the id. A payload is written to a temporary file that is synced and
then renamed, and its folder is synced too. So a file that has the name of a payload is whole.

In the store each run has one entry that lists its payloads, and each payload is an entry. The list is written first, so
that no payload is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import msgspec
from typing_extensions import override

from loom.store.errors import CorruptEntry, PayloadUnavailable
from loom.store.records import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom.store.encrypted import Sealer
    from loom.store.ports import EntryStore
    from loom.store.records import Entry

_log = logging.getLogger("loom.store")

_RUN = "run"
_NAME = re.compile(r"[0-9a-f]{32}")


def place_of_run(run_id: str) -> str:
    """Return the name under which the payloads of a run are kept: any id makes one that a file system takes."""
    return blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=20, person=b"loom payloads").hexdigest()


class PayloadFolder:
    """Payloads as files. All processes that work on the store must see the same folder."""

    KIND: ClassVar = "payload folder"
    """The kind of the entry that names the store's own folder in this one; its key is `KEY`."""
    KEY: ClassVar = "name"

    def __init__(self, folder: Path, store: EntryStore, sealer: Sealer | None = None) -> None:
        self.folder = folder
        self._store = store
        self._sealer = sealer
        self._own: Path | None = None
        """The store's own folder; None until it is known, and if it has none yet."""

    @override
    def __str__(self) -> str:
        return f"the folder {self.folder}"

    async def _found(self) -> Path | None:
        """Return the store's own folder; None if it has kept nothing here so far."""
        if self._own is None:
            entry = await self._store.entry(self.KIND, self.KEY)
            self._own = self.folder / self._name_in(entry) if entry is not None else None
        return self._own

    @staticmethod
    def _name_in(entry: Entry) -> str:
        name = entry.data.decode("ascii", "replace")
        if _NAME.fullmatch(name) is None:  # a changed entry must not choose where files are written
            raise CorruptEntry(entry.kind, entry.key, "it is not the name of a folder")
        return name

    async def _made(self) -> Path:
        """Return the store's own folder. It is made before the entry that names it, and never again."""
        while (own := await self._found()) is None:
            name = uuid4().hex
            await asyncio.to_thread(self._make, self.folder / name)
            if await self._store.put_entry(self.KIND, self.KEY, name.encode(), expect=ABSENT) is None:
                await asyncio.to_thread((self.folder / name).rmdir)  # another process has made one just now
        return own

    def _make(self, own: Path) -> None:
        own.mkdir(parents=True)
        sync_folder(self.folder)
        sync_folder(self.folder.parent)

    def _check(self, own: Path) -> None:
        """Raise if the store's own folder is gone: then nothing is missing, and nothing may be written."""
        if not own.is_dir():
            raise PayloadUnavailable(
                f"{self.folder} has no folder {own.name}, in which this store keeps its payloads. Is its disk mounted?"
            )

    async def put(self, run_id: str, payloads: Mapping[str, bytes]) -> None:
        """See `PayloadPlace`."""
        try:
            own = await self._made()
            await asyncio.to_thread(self._put, own, run_id, payloads)
        except OSError as error:
            raise PayloadUnavailable(f"A payload of run {run_id!r} could not be written: {error}") from error

    def _put(self, own: Path, run_id: str, payloads: Mapping[str, bytes]) -> None:
        self._check(own)
        folder = _folder_of(own, run_id)
        try:
            os.utime(folder / _RUN)
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True)
            self._write(folder, _RUN, run_id.encode("utf-8", "surrogatepass"))
            for each in (folder.parent, own):
                sync_folder(each)
        for name, payload in payloads.items():
            try:
                os.utime(folder / name)  # a purge that deletes old files must leave this one
            except FileNotFoundError:
                sealed = self._sealer.seal(payload, "payload", run_id, name) if self._sealer is not None else payload
                self._write(folder, name, sealed)
        sync_folder(folder)

    @staticmethod
    def _write(folder: Path, name: str, data: bytes) -> None:
        made = folder / f".{uuid4().hex}"
        try:
            with made.open("wb") as file:
                file.write(data)
                file.flush()
                sync_file(file.fileno())
            made.replace(folder / name)
        except BaseException:
            with suppress(OSError):
                made.unlink()
            raise

    async def get(self, run_id: str, name: str) -> bytes | None:
        """See `PayloadPlace`."""
        own = await self._found()
        if own is None:
            return None
        try:
            data = await asyncio.to_thread((_folder_of(own, run_id) / name).read_bytes)
        except FileNotFoundError:
            self._check(own)
            return None
        except OSError as error:
            raise PayloadUnavailable(f"A payload of run {run_id!r} could not be read: {error}") from error
        if self._sealer is None:
            return data
        return self._sealer.unseal(data, run_id, f"the payload {name}", "payload", run_id, name)

    async def drop(self, run_id: str, before: float) -> None:
        """See `PayloadPlace`."""
        own = await self._found()
        if own is not None:
            await asyncio.to_thread(self._drop, _folder_of(own, run_id), before)

    def _drop(self, folder: Path, before: float) -> None:
        try:
            files = sorted(folder.iterdir(), key=lambda file: file.name == _RUN)
        except FileNotFoundError:
            return
        for file in files:
            away = folder / f".{uuid4().hex}"
            with suppress(FileNotFoundError):
                if file.stat().st_mtime >= before:
                    continue
                # A run of the same id may use it again just now. A file that is out of the way is not touched.
                file.rename(away)
                if away.stat().st_mtime >= before:
                    away.rename(file)
                else:
                    away.unlink()
        with suppress(OSError):
            folder.rmdir()

    async def runs(self, after: str = "", limit: int = 100) -> list[tuple[str, str]]:
        """See `PayloadPlace`."""
        own = await self._found()
        return [] if own is None else await asyncio.to_thread(self._runs, own, after, limit)

    def _runs(self, own: Path, after: str, limit: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for shelf in sorted(each for each in _names_in(own) if each >= after[:2]):
            for position in sorted(each for each in _names_in(own / shelf) if each > after):
                file = own / shelf / position / _RUN
                try:
                    found.append((position, file.read_bytes().decode("utf-8", "surrogatepass")))
                except FileNotFoundError:
                    continue  # it is dropped just now
                except (OSError, UnicodeDecodeError) as error:
                    _log.warning("A folder of payloads is left alone: %s does not name its run: %s", file, error)
                if len(found) == limit:
                    return found
        return found


def _folder_of(own: Path, run_id: str) -> Path:
    place = place_of_run(run_id)
    return own / place[:2] / place


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_file(descriptor: int) -> None:
    """Return once all that was written to an open file outlives a power cut."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # a plain fsync stops at the cache of the drive
        except OSError:  # file systems that lack it, such as shares in a network
            os.fsync(descriptor)
    else:
        os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Windows opens no folders; there the file system keeps names by itself."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


class _Payloads(msgspec.Struct, frozen=True):
    """The list of a run's payloads: when each was last kept, by its name."""

    run_id: str
    kept: dict[str, float] = {}


class PayloadTable:
    """Payloads as entries of the store. They are backed up with it, and sealed as all entries are."""

    LISTS: ClassVar = "payloads"
    BODIES: ClassVar = "payload"

    def __init__(self, store: EntryStore) -> None:
        self._store = store

    @override
    def __str__(self) -> str:
        return "the store"

    async def put(self, run_id: str, payloads: Mapping[str, bytes]) -> None:
        """See `PayloadPlace`."""
        place = place_of_run(run_id)
        while True:
            found = await self._store.entry(self.LISTS, place)
            known = _read(found) if found is not None else _Payloads(run_id)
            kept = {**known.kept, **dict.fromkeys(payloads, time.time())}
            listed = msgspec.json.encode(_Payloads(run_id, kept))
            expected = found.version if found is not None else ABSENT
            if await self._store.put_entry(self.LISTS, place, listed, expect=expected) is not None:
                break
        for name, payload in payloads.items():
            # One that is not listed may be about to be deleted: a new version of it will not be.
            expect = ABSENT if name in known.kept else None
            await self._store.put_entry(self.BODIES, f"{place}.{name}", payload, expect=expect)

    async def get(self, run_id: str, name: str) -> bytes | None:
        """See `PayloadPlace`."""
        found = await self._store.entry(self.BODIES, f"{place_of_run(run_id)}.{name}")
        return found.data if found is not None else None

    async def drop(self, run_id: str, before: float) -> None:
        """See `PayloadPlace`."""
        place = place_of_run(run_id)
        found = await self._store.entry(self.LISTS, place)
        if found is None:
            return
        known = _read(found)
        if any(at >= before for at in known.kept.values()):
            return  # a run of the same id has begun
        keys = [f"{place}.{name}" for name in known.kept]
        bodies = [body for key in keys if (body := await self._store.entry(self.BODIES, key)) is not None]
        if await self._store.drop_entry(self.LISTS, place, expect=found.version):
            for body in bodies:
                await self._store.drop_entry(self.BODIES, body.key, expect=body.version)

    async def runs(self, after: str = "", limit: int = 100) -> list[tuple[str, str]]:
        """See `PayloadPlace`."""
        found = await self._store.entries(self.LISTS, after, limit)
        named: list[tuple[str, str]] = []
        for entry in found:
            try:
                named.append((entry.key, _read(entry).run_id))
            except CorruptEntry as error:
                _log.warning("Payloads are left alone: %s", error)
        return named


def _read(entry: Entry) -> _Payloads:
    try:
        return msgspec.json.decode(entry.data, type=_Payloads)
    except msgspec.MsgspecError as error:
        raise CorruptEntry(entry.kind, entry.key, str(error)) from error
