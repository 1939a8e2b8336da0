"""What differs between systems is known in one place: which tests need POSIX, and what Loom does without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from posix_only import FILES, FOLDERS, TESTS, USES, needs_posix

ROOT = TESTS.parent

WITHOUT = """
import importlib, json, os, pkgutil, signal, sys

for name in ("curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"):
    sys.modules[name] = None
for name in ("chroot", "fchmod", "fchown", "fork", "getuid", "geteuid", "killpg", "setsid", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCHLD", "SIGQUIT"):
    if hasattr(signal, name):
        delattr(signal, name)
"""
"""Take away what Windows lacks, as far as Python itself works without it."""

BREAK = int(getattr(signal, "SIGUSR1", 0))
"""The signal that has the name of Ctrl-Break here."""

IMPORT_ALL = """
import loom

failed = {}
names = [module.name for module in pkgutil.walk_packages(loom.__path__, "loom.")]
for name in names:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = repr(error)
print(json.dumps([len(names), failed]))
"""

RUN = """
import asyncio

del sys.modules["fcntl"]  # the lock of a database is taken with msvcrt on Windows, which is not here

class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *_):
        raise NotImplementedError
    def remove_signal_handler(self, *_):
        raise NotImplementedError

class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop

asyncio.set_event_loop_policy(Policy())
from loom.cli import main

main(json.loads(sys.argv[1]))
"""
"""Run a command on an event loop that takes no signals, as those of Windows."""


def _python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COVERAGE_PROCESS_START": ""}
    command = [sys.executable, "-c", WITHOUT + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=ROOT)


def test_every_module_is_imported_without_posix() -> None:
    done = _python(IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    count, failed = json.loads(done.stdout)
    assert count > 300
    assert failed == {}


@pytest.fixture
def flow(tmp_path: Path) -> str:
    compose = {"Compose": {"type": "Compose", "inputs": "@concat('wo', 'ven')"}}
    path = tmp_path / "weave.json"
    path.write_text(json.dumps({"definition": {"triggers": {}, "actions": compose, "outputs": {}}}))
    return str(path)


def test_a_flow_runs_without_posix(flow: str) -> None:
    done = _python(RUN, json.dumps(["run", flow, "--json"]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["actions"]["Compose"]["outputs"] == "woven"


@pytest.mark.posix  # to ask a process to stop by SIGTERM is what Windows cannot do: there it is ended
@pytest.mark.parametrize("number", [signal.SIGTERM, BREAK], ids=["terminate", "break"])
def test_a_server_starts_and_stops_without_posix(flow: str, number: int) -> None:
    """Ctrl-Break is a signal of Windows alone; here another signal has its name."""
    arguments = json.dumps(["serve", flow, "--store", "memory://", "--port", "0"])
    named = f"signal.SIGBREAK = {BREAK}\n"
    command = [sys.executable, "-c", WITHOUT + named + RUN, arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            told = server.stdout.readline()
            found = re.search(r"at (http://127\.0\.0\.1:\d+)", told)
            assert found is not None, told + server.stdout.read()
            with urllib.request.urlopen(f"{found[1]}/v1/health/ready", timeout=60) as answer:
                assert answer.status == 200
            server.send_signal(number)
            assert server.wait(60) == 0
        finally:
            server.kill()


def test_files_that_use_posix_are_listed() -> None:
    using = [path for path in TESTS.rglob("test_*.py") if USES.search(path.read_text("utf-8"))]
    assert len(using) > 20
    here = Path(__file__)
    assert [str(path) for path in using if path != here and not needs_posix(path)] == []


def test_every_entry_is_needed() -> None:
    assert [name for name in FOLDERS if not (TESTS / name).is_dir()] == []
    stale = [name for name in FILES if not _uses(TESTS / name)]
    assert stale == []


def _uses(path: Path) -> bool:
    beside = path.with_name(path.name.replace("test_", "run_", 1))
    return any(USES.search(each.read_text("utf-8")) for each in (path, beside) if each.exists())


def test_marked_tests_can_be_left_out() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    places = ["tests/unit/cli/test_review_cli.py", "tests/unit/cli/test_describe.py"]
    done = subprocess.run(
        [*command, "-m", "not posix", *places], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert "test_describe.py" in done.stdout, done.stderr
    assert "test_review_cli.py" not in done.stdout
