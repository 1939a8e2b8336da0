"""Where payloads are kept: a folder, or the entries of the store itself.

In a folder each run has a folder of its own, named by a digest of its id, with a file `run` that has the id. A payload
is written to a temporary file that is synced and then renamed, and its folder is synced too. So a file that has the
name of a payload is whole.

In the store each run has one entry that lists its payloads, and each payload is an entry. The list is written first, so
that no payload is forgotten.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

import msgspec
from typing_extensions import override

from loom.store.disk_sync import sync_file, sync_folder
from loom.store.errors import StoreUnavailable
from loom.store.records import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom.store.encrypted import Sealer
    from loom.store.ports import EntryStore

_RUN = "run"


def place_of_run(run_id: str) -> str:
    """Return the name under which the payloads of a run are kept: any id makes one that a file system takes."""
    return blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=20, person=b"loom payloads").hexdigest()


class PayloadFolder:
    """Payloads as files. All processes that work on the store must see the same folder."""

    def __init__(self, folder: Path, sealer: Sealer | None = None) -> None:
        self.folder = folder
        self._sealer = sealer

    @override
    def __str__(self) -> str:
        return f"the folder {self.folder}"

    async def put(self, run_id: str, payloads: Mapping[str, bytes]) -> None:
        """See `PayloadPlace`."""
        try:
            await asyncio.to_thread(self._put, run_id, payloads)
        except OSError as error:
            raise StoreUnavailable(f"A payload of run {run_id!r} could not be written: {error}") from error

    def _put(self, run_id: str, payloads: Mapping[str, bytes]) -> None:
        folder = self._of(run_id)
        if not (folder / _RUN).exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._write(folder, _RUN, run_id.encode("utf-8", "surrogatepass"))
            for each in (folder.parent, self.folder, self.folder.parent):
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
        try:
            data = await asyncio.to_thread((self._of(run_id) / name).read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"A payload of run {run_id!r} could not be read: {error}") from error
        if self._sealer is None:
            return data
        return self._sealer.unseal(data, run_id, f"the payload {name}", "payload", run_id, name)

    async def drop(self, run_id: str, before: float) -> None:
        """See `PayloadPlace`."""
        await asyncio.to_thread(self._drop, self._of(run_id), before)

    def _drop(self, folder: Path, before: float) -> None:
        try:
            files = sorted(folder.iterdir(), key=lambda file: file.name == _RUN)
        except FileNotFoundError:
            return
        for file in files:
            # A run of the same id may begin just now, and use a file again. One that is out of the way is not touched.
            away = folder / f".{uuid4().hex}"
            with suppress(FileNotFoundError):
                file.rename(away)
                if away.stat().st_mtime >= before:
                    away.rename(file)
                else:
                    away.unlink()
        with suppress(OSError):
            folder.rmdir()

    async def runs(self, after: str = "", limit: int = 100) -> list[tuple[str, str]]:
        """See `PayloadPlace`."""
        return await asyncio.to_thread(self._runs, after, limit)

    def _runs(self, after: str, limit: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for shelf in sorted(each for each in _names_in(self.folder) if each >= after[:2]):
            for position in sorted(each for each in _names_in(self.folder / shelf) if each > after):
                with suppress(FileNotFoundError, NotADirectoryError):
                    run_id = (self.folder / shelf / position / _RUN).read_bytes()
                    found.append((position, run_id.decode("utf-8", "surrogatepass")))
                if len(found) == limit:
                    return found
        return found

    def _of(self, run_id: str) -> Path:
        place = place_of_run(run_id)
        return self.folder / place[:2] / place


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


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
            known = msgspec.json.decode(found.data, type=_Payloads) if found is not None else _Payloads(run_id)
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
        known = msgspec.json.decode(found.data, type=_Payloads)
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
        return [(entry.key, msgspec.json.decode(entry.data, type=_Payloads).run_id) for entry in found]
