"""Open stores for commands: beside a running engine, never as one.

A client reads the store and writes to the inbox of runs. It registers no workflow, so it takes no lock and owns no run.
It loads most of Loom, so commands import it when they run.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from loom.cli.problems import NoStore, WrongUse, told
from loom.runtime.connect import connect, open_store
from loom.store.encrypted import check_readable
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from loom.flows.limits import Limits
    from loom.runtime.durable.store_client import StoreClient
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.store.ports import Store

_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&#]+", re.IGNORECASE)

T = TypeVar("T")
OpenT = TypeVar("OpenT", "WorkerRuntime", "StoreClient")


def perform(work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a command; what goes wrong with stores and runs is told in one line."""
    with told():
        return asyncio.run(work)


def store_at(url: str, *, upgrade: bool) -> Store:
    """The store of a URL, not opened yet; a URL that names none is told."""
    try:
        store = open_store(url, upgrade=upgrade)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    except ImportError as error:
        raise NoStore(str(error)) from error
    if url.startswith("temporal:"):
        from loom.temporal.client.cluster import log_with_the_rest

        log_with_the_rest()
    return store


def store_beside(url: str) -> Store:
    """Make the store of an engine that may be running, for a client that reads and leaves messages."""
    if url.startswith("memory:"):
        raise WrongUse("memory:// lives in the process that made it: name the store of your engine.")
    return store_at(url, upgrade=False)


@asynccontextmanager
async def opened_store(store: Store) -> AsyncIterator[Store]:
    """A store alone, open, for those who need no runs; whatever keeps it from opening means that it cannot be used."""
    try:
        await store.open()
    except StoreError as error:
        raise NoStore(str(error)) from error
    try:
        await check_readable(store)
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened(store: Store, **settings: Any) -> AsyncIterator[WorkerRuntime]:
    """A runtime over a store; whatever keeps it from opening means that the store cannot be used."""
    try:
        made = connect(store, **settings)
    except StoreError:
        raise
    except ValueError as error:
        raise WrongUse(str(error)) from error
    async with _open(made) as runtime:
        yield runtime


@asynccontextmanager
async def _open(runtime: OpenT) -> AsyncIterator[OpenT]:
    try:
        await runtime.__aenter__()
    except StoreError as error:
        raise NoStore(str(error)) from error
    try:
        yield runtime
    finally:
        await runtime.close()


@asynccontextmanager
async def client(url: str) -> AsyncIterator[StoreClient]:
    """The runs of a store, from outside: to look at them, and to tell them something. That needs no engine."""
    from loom.runtime.durable.store_client import StoreClient

    async with _open(StoreClient(store_beside(url))) as runtime:
        yield runtime


@asynccontextmanager
async def starter(url: str, targets: Sequence[str], limits: Limits | None) -> AsyncIterator[WorkerRuntime]:
    """The same with all that starts runs. With targets, their types are known and events are stored as they say."""
    from loom.cli.targets import named_workflows
    from loom.runtime.durable.registration import registration_of

    store = store_beside(url)
    named = named_workflows(targets, limits) if targets else {}
    async with opened(store) as runtime:
        # Their code is known from here on, but `register` would make this process work for them.
        for name, workflow in named.items():
            for known_as in (name, workflow.workflow_name):
                runtime.codes[known_as] = registration_of(known_as, workflow)
        yield runtime


def safe_url(url: str) -> str:
    """The URL of a store without the password in it, which may be among its options too."""
    password = urlsplit(url).password
    return _PASSWORD.sub(r"\1***", url.replace(f":{password}@", ":***@") if password else url)
