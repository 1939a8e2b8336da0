"""`loom.connect(url)`: a runtime by the address of its store. May import loom.store and the rest of loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.store.ports import Store

_FORMS = "memory://, sqlite:///path.db or postgresql://user@host/database"


def connect(
    url: str | Store = "memory://", *, clock: Callable[[], float] | None = None, **options: Any
) -> DurableRuntime:
    """A runtime for `async with`, over the store that a URL names (or over a given store).

    `sqlite:///runs.db` is a path relative to the working directory, `sqlite:////var/runs.db` an absolute one. Options
    are those of `Settings`, `idle_timeout` among them.
    """
    store = open_store(url) if isinstance(url, str) else url
    return DurableRuntime(store, Settings(**options), clock=clock)


def open_store(url: str, *, upgrade: bool = True) -> Store:
    """The store that a URL names, not opened yet."""
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
    raise ValueError(f"No store is known for {urlsplit(url).scheme}:// in {url!r}: use {_FORMS}.")
