"""Restarts a `loom` process until it ends in order, as a service manager does. As a program: `RESTARTS ARGUMENT...`.

The command line is loaded once and forked, so that a restart costs little. It prints a line for every end, and kills a
process whose event loop hangs, as an operator would. SIGHUP restarts the process in order, SIGUSR1 by force.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import deadly_bodies

import loom.cli.engine_process
import loom.cli.serve_command
import loom.cli.session
import loom.cli.work_commands
import loom.runtime.durable.runtime
import loom.server.app
import loom.store.postgres
import loom.store.sqlite.store  # noqa: F401 - what is loaded here is not loaded by every child
from loom.cli.app import main

_POLL_S = 0.02


class Supervisor:
    """One process at a time."""

    def __init__(self) -> None:
        self.child = 0
        self.stopping = self.restarting = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGHUP, self._stop)
        signal.signal(signal.SIGUSR1, self._kill)

    def _stop(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self.stopping = True
        else:
            self.restarting = True
        if self.child:
            os.kill(self.child, signal.SIGTERM)

    def _kill(self, _number: int, _frame: object) -> None:
        if self.child:
            os.kill(self.child, signal.SIGKILL)

    def run(self, restarts: int, work: Callable[[], object]) -> int:
        """Let a process do the work, again and again until it ends in order."""
        for _ in range(restarts):
            code = self._once(work)
            sys.stdout.write(f"ended {code}\n")
            sys.stdout.flush()
            if (code == 0 and not self.restarting) or self.stopping:
                return code
            self.restarting = False
        return 99

    def _once(self, work: Callable[[], object]) -> int:
        sys.stdout.flush()
        self.child = os.fork()
        if not self.child:
            _become(work)
        while True:
            ended, status = os.waitpid(self.child, os.WNOHANG)
            if ended:
                self.child = 0
                return os.waitstatus_to_exitcode(status)
            if os.path.exists(hanging := f"{deadly_bodies.HANGING}-{self.child}"):
                os.unlink(hanging)
                os.kill(self.child, signal.SIGKILL)
            time.sleep(_POLL_S)


def _become(work: Callable[[], object]) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        sys.stderr.write(f"raised {error!r}\n")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(Supervisor().run(int(sys.argv[1]), lambda: main.main(sys.argv[2:], standalone_mode=False)))
