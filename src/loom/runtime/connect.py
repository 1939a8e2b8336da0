"""`loom.connect(url)`: a runtime by the address of its store.

A cluster is a store that brings its runtime along: its room stands above this one, and is reached by its name.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from loom.store.encrypted import ENCRYPTION_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from loom.runtime.durable.connect_options import ConnectOptions
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.store.keyring import Keyring
    from loom.store.ports import OwnedStore, Store

PAYLOADS, PAYLOADS_ABOVE = "LOOM_PAYLOADS", "LOOM_PAYLOADS_ABOVE"

_FORMS = "memory://, sqlite:///path.db, postgresql://user@host/database or temporal://host:7233/namespace"


@runtime_checkable
class BringsRuntime(Protocol):
    """A store whose runs are not moved by residents of a process: it knows who moves them."""

    def runtime(self, *, clock: Callable[[], float] | None = None, **options: Unpack[ConnectOptions]) -> WorkerRuntime:
        """The runtime over this store, with options as `connect` takes them."""
        ...


def connect(
    url: str | Store = "memory://",
    *,
    clock: Callable[[], float] | None = None,
    encryption_keys: Keyring | str | None = None,
    payloads: str | None = None,
    payloads_above: int | None = None,
    **options: Unpack[ConnectOptions],
) -> WorkerRuntime:
    """A runtime for `async with`, over the store that a URL names (or over a given store).

    `sqlite:///runs.db` is a path relative to the working directory, `sqlite:////var/runs.db` an absolute one. Options
    are fields of `Settings`, `idle_timeout` among them; a length of time is a number of seconds, or a text such as `5s`
    or `2h`. `encryption_keys` is `id1:base64,id0:base64`, where the first key encrypts and all of them decrypt, and the
    word `plain` allows for what was stored without; for a URL, None means `LOOM_ENCRYPTION_KEYS`.

    `payloads` says where texts of more than `payloads_above` bytes are kept (256 KiB): `file:///folder`, or `table` for
    a place of their own in the store. None means `LOOM_PAYLOADS` for a URL, and without that with everything else.

    `temporal://host:7233/namespace?task_queue=loom` is a Temporal cluster, which moves the runs: options of `Settings`
    that are about runs in memory mean nothing there.
    """
    if isinstance(url, str):
        store = open_store(url, encryption_keys=encryption_keys, payloads=payloads, payloads_above=payloads_above)
    else:
        store = url if encryption_keys is None else _encrypted(url, encryption_keys)
        store = _with_payloads(store, payloads, payloads_above) if payloads else store
    if isinstance(store, BringsRuntime):
        return store.runtime(clock=clock, **options)
    # A process that only opens a store does without these imports.
    from loom.runtime.durable.connect_options import settings_of
    from loom.runtime.durable.runtime import DurableRuntime
    from loom.runtime.durable.settings import Settings

    return DurableRuntime(_owned(store), settings_of(Settings, options), clock=clock)


def open_store(
    url: str,
    *,
    upgrade: bool = True,
    encryption_keys: Keyring | str | None = None,
    payloads: str | None = None,
    payloads_above: int | None = None,
) -> Store:
    """The store that a URL names, not opened yet. With keys, or `LOOM_ENCRYPTION_KEYS`, it encrypts.

    With `payloads`, or `LOOM_PAYLOADS`, it keeps large texts apart.
    """
    store = plain_store(url, upgrade=upgrade)
    keys = os.environ.get(ENCRYPTION_KEYS, "") if encryption_keys is None else encryption_keys
    store = _encrypted(store, keys) if keys else store
    place = os.environ.get(PAYLOADS, "") if payloads is None else payloads
    if url.startswith("memory:"):
        return store  # what is in memory is not copied there
    return _with_payloads(store, place, payloads_above) if place else store


def _with_payloads(store: Store, place: str, above: int | None) -> Store:
    if not store.keyed:
        raise ValueError(
            f"payloads and {PAYLOADS} are for stores in databases. A Temporal cluster takes 2 MiB at most, unless the "
            "client has a storage for larger payloads: use TemporalStore(address, client) with such a client."
        )
    from loom.store.payload_store import payload_store

    if above is None and os.environ.get(PAYLOADS_ABOVE):
        above = int(os.environ[PAYLOADS_ABOVE])
    return payload_store(_owned(store), place, above)


def _encrypted(store: Store, keys: Keyring | str) -> Store:
    if not store.keyed:
        raise ValueError(
            f"encryption_keys and {ENCRYPTION_KEYS} are for stores in databases. What a Temporal cluster keeps is "
            "encrypted by a payload codec of Temporal's: use TemporalStore(address, client) with a client that has one."
        )
    from loom.store.encrypted import PLAIN, EncryptedStore
    from loom.store.keyring import parse_keys

    ring = parse_keys(keys, what=ENCRYPTION_KEYS, lenient=PLAIN) if isinstance(keys, str) else keys
    return EncryptedStore(_owned(store), ring)


def _owned(store: Store) -> OwnedStore:
    """Return a store whose runs processes own; `TypeError` for a store that has no owners."""
    from loom.store.ports import Ownership

    if not isinstance(store, Ownership):
        raise TypeError(f"{type(store).__name__} lets no process own runs, and has no runtime of its own.")
    return store


def plain_store(url: str, *, upgrade: bool = True) -> Store:
    """The store that a URL names, not opened yet, as its database has it."""
    scheme, found, rest = url.partition("://")
    if not found:
        raise ValueError(f"{url!r} is not the URL of a store: use {_FORMS}.")
    if scheme == "memory":
        from loom.store.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from loom.store.sqlite import SqliteStore

        path = unquote(rest[1:]) if rest.startswith("/") else ""
        if not path:
            raise ValueError(f"{url!r} names no file: use sqlite:///runs.db, or sqlite:////absolute/path.db.")
        return SqliteStore(path, upgrade=upgrade)
    if scheme in ("postgresql", "postgres"):
        try:
            from loom.store.postgres import PostgresStore
        except ImportError as error:
            raise ImportError("PostgreSQL needs an extra: pip install 'loom-workflows[postgres]'") from error
        return PostgresStore(url, upgrade=upgrade)
    if scheme == "temporal":
        return _cluster(url)
    raise ValueError(f"No store is known for {urlsplit(url).scheme}:// in {url!r}: use {_FORMS}.")


def _cluster(url: str) -> Store:
    try:
        room = import_module("loom.temporal.store")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "temporalio":
            raise
        raise ImportError("Temporal needs an extra: pip install 'loom-workflows[temporal]'") from error
    store: Store = room.TemporalStore.at(url)
    return store
