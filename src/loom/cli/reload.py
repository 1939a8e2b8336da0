"""`loom serve --reload`: serve workflows while their files are edited.

A supervising process has the port and watches files; a child serves. When a file changes, the supervisor begins a new
child, which loads the targets beside the old one. Only if that works does the old child stop, and the new one opens the
store and serves: the code that was checked is the code that serves. If it does not work, the new child says what is
broken and ends, and the old one goes on. See ADR 0073.

The supervisor never loads a target. Its sockets listen all the time, so that a client that connects during a change
waits and is not refused.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from loom.cli.engine_process import named_problems
from loom.cli.flow_files import files_of
from loom.cli.problems import WrongUse
from loom.cli.targets import TargetError, flow_place
from loom.effects.exceptions import traceback_text
from loom.runtime.durable.registration import instance_of, prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from loom.cli.engine_process import Logs
    from loom.steps.workflow import Workflow

_VARIABLE = "LOOM_RELOADED"
"""Tells a child the descriptors that it has from its supervisor."""
_POLL_S = 0.2
"""Seconds between two looks at the files, at a child and for signals."""
_SHARE, _MAX_POLL_S = 20, 2.0
"""Looks take no more than one part in this many of the time, unless they would be this many seconds apart."""
_PATIENCE_S = 10.0
"""Seconds after which a line says that a child is still loading."""
_BACKLOG = 2048
_NAMED = 3
"""Files that a line names, at most."""


def check_reload(targets: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse `--reload` where it makes no sense."""
    if os.name != "posix":
        raise WrongUse("--reload hands a port from process to process, which this system cannot do.")
    if not targets:
        raise WrongUse("--reload watches the files of targets: name one.")
    if given["when_locked"] != "refuse":
        raise WrongUse("--reload is for one process: with another one standing by, that one would take over instead.")
    if given["store"].startswith("memory:"):
        raise WrongUse("--reload goes on with runs in a new process: memory:// would lose them. Name a store.")


# -- in the child ------------------------------------------------------------------------------------------------------


class Loaded(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child reports: the files that it is made of, or that it serves."""

    files: list[str] = []
    folders: list[str] = []
    """Folders of flows: a new file in them is a change."""
    is_good: bool = True
    serves: bool = False


class ReloadedProcess:
    """This process, as one that a supervisor has begun."""

    def __init__(self, control: int, report: int, sockets: Sequence[int]) -> None:
        self._control = control
        self._report = report
        self._sockets = sockets
        for each in (control, report, *sockets):
            os.set_inheritable(each, False)

    @classmethod
    def here(cls) -> ReloadedProcess | None:
        """This process, if it has a supervisor. Processes that it begins itself have none."""
        found = os.environ.pop(_VARIABLE, "")
        if not found:
            return None
        control, report, *sockets = map(int, found.split(","))
        return cls(control, report, sockets)

    def load(
        self, targets: Sequence[str], handlers: Sequence[str], load: Callable[[], dict[str, Workflow]]
    ) -> dict[str, Workflow]:
        """Load the targets, and wait until this process is to serve. Ends the process if they are broken."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the supervisor ends this one
        sys.dont_write_bytecode = True  # Python would take a file for unchanged that was edited twice in one second
        code, broken = 0, None
        try:
            named = {name: instance_of(workflow) for name, workflow in load().items()}
            for name, workflow in named.items():
                with named_problems(name):
                    prepared(name, workflow)
        except BaseException as error:  # noqa: BLE001 - also a module that exits: all of it is told
            code, broken, named = _show(error), error, {}
        roots = _roots([*targets, *handlers])
        folders = [place for place in map(flow_place, targets) if place is not None and place.is_dir()]
        flows = [file for place in map(flow_place, targets) if place is not None for file in files_of(place)]
        files = {*_modules(roots), *_files_of_failure(broken, roots), *map(str, flows)}
        self._tell(Loaded(sorted(files), sorted(map(str, folders)), is_good=broken is None))
        if broken is not None or not os.read(self._control, 1):
            sys.stderr.flush()
            os._exit(code)  # modules may have begun threads
        return named

    def sockets(self) -> list[socket.socket]:
        """The sockets of the supervisor, which listen."""
        return [socket.socket(fileno=each) for each in self._sockets]

    def follow(self, stopped: asyncio.Event) -> None:
        """Say that this process serves. It stops if its supervisor is gone."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(self._control)
            stopped.set()

        loop.add_reader(self._control, gone)
        self._tell(Loaded(serves=True))

    def _tell(self, report: Loaded) -> None:
        os.write(self._report, msgspec.json.encode(report) + b"\n")


def _show(error: BaseException) -> int:
    """Show why the targets cannot be served, with the author's own lines first. Return the exit code."""
    if isinstance(error, click.ClickException):
        if isinstance(error, TargetError) and error.__cause__ is not None:
            click.echo(traceback_text(error.__cause__), err=True)
        error.show()
        return error.exit_code
    click.echo(traceback_text(error), err=True)
    return 1


def _roots(places: Iterable[str]) -> set[Path]:
    """The folders of the project: the working directory, and those of the files that were named."""
    files = (place.partition(".py:")[0] + ".py" for place in places if ".py:" in place or place.endswith(".py"))
    return {Path.cwd().resolve(), *(Path(file.rpartition("=")[2]).resolve().parent for file in files)}


def _modules(roots: Iterable[Path]) -> set[str]:
    """The files of the modules that were loaded from the project."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file for file in files if isinstance(file, str) and _is_of_project(Path(file), roots)}


def _is_of_project(file: Path, roots: Iterable[Path]) -> bool:
    path = file.resolve()
    is_library = "site-packages" in path.parts or path.is_relative_to(Path(sysconfig.get_path("stdlib")).resolve())
    return not is_library and any(path.is_relative_to(root) for root in roots)


def _files_of_failure(error: BaseException | None, roots: Iterable[Path]) -> set[str]:
    """The files that an edit would mend: a module that failed is not among those that were loaded."""
    files: set[str] = set()
    while error is not None:
        files.update(frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__))
        if isinstance(error, SyntaxError) and error.filename is not None:
            files.add(error.filename)
        error = error.__cause__ or error.__context__
    return {file for file in files if Path(file).is_file() and _is_of_project(Path(file), roots)}


# -- in the supervisor -------------------------------------------------------------------------------------------------


def supervise(host: str, port: int, logs: Logs) -> int:
    """Serve by children until a signal, and return the exit code of the last one."""
    from loom.server.http_server import bind

    with ExitStack() as at_end:
        sockets = [at_end.enter_context(bound) for bound in asyncio.run(bind(host, port))]
        for each in sockets:
            each.listen(_BACKLOG)
        return _Supervisor(sockets, logs).run()


class _Stopping(Exception):
    """A signal has come."""


class _Edited(Exception):
    """Files have changed while a child was loading them."""


class _Supervisor:
    def __init__(self, sockets: Sequence[socket.socket], logs: Logs) -> None:
        self._sockets = sockets
        self._logs = logs
        self._signals: list[int] = []
        """The signals that have come."""
        self._serving: _Child | None = None
        self._files = _WatchedFiles((), ())

    def run(self) -> int:
        """Begin children, one after each change."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _frame: self._signals.append(number))
        child: _Child | None = None
        try:
            changed: list[str] = []
            while True:
                seen = self._files.stamps()  # what is edited while the child loads is a change that comes later
                child = _Child(self._sockets)
                code = self._take(child, seen, changed)
                if code is not None:
                    return code
                changed = self._wait_for_change()
        except _Stopping:
            if child is not None and child is not self._serving:
                child.kill()
            return self._stop(self._serving) if self._serving is not None else 0

    def _take(self, child: _Child, seen: Mapping[str, object], changed: Sequence[str]) -> int | None:
        """Let a child serve if it is good. An exit code if there is nothing to go on with."""
        began, is_first = time.monotonic(), not changed
        try:
            loaded = child.report(_Watch(self, seen, changed).look)
        except _Edited:
            child.kill()  # it may never come to an end, and is out of date in any case
            return None
        if loaded is not None:
            files = self._files.with_more(loaded) if not loaded.is_good else _WatchedFiles(loaded.files, loaded.folders)
            self._files = files.since(seen)
        if loaded is None or not loaded.is_good:
            code = child.wait()
            if is_first:
                return code
            after = "The version before goes on." if self._serving is not None else "The next change is tried."
            self._logs.tell(f"{_names(changed)} changed, and cannot be served. {after}")
            return None
        if self._serving is not None:
            self._stop(self._serving)
            self._serving = None
        child.go()
        self._serving = child
        if child.report(self.check) is None:
            self._serving, code = None, child.wait()
            if is_first:
                return code
            self._logs.tell(f"{_names(changed)} changed, and the server ended with {code}. The next change is tried.")
            return None
        if not is_first:
            self._logs.tell(f"Reloaded in {time.monotonic() - began:.1f} s: {_names(changed)} changed.")
        return None

    def _wait_for_change(self) -> list[str]:
        """Wait until files have changed, and are not being written any more. Return their names."""
        before, pause = self._files.stamps(), _POLL_S
        while True:
            time.sleep(pause)
            self.check()
            if self._serving is not None and self._serving.code is not None:
                code, self._serving = self._serving.wait(), None
                self._logs.tell(f"The server has ended with {code}. It begins again with the next change.")
            began = time.monotonic()
            now = self._files.stamps()
            pause = _pause_after(time.monotonic() - began)
            if (changed := self._files.changed(now)) and now == before:
                return changed
            before = now

    def check(self) -> None:
        """Raise `_Stopping` if a signal has come."""
        if self._signals:
            raise _Stopping

    def check_files(self, seen: Mapping[str, object]) -> None:
        """Raise `_Edited` if files are not as they were."""
        if any(stamp != seen.get(path) for path, stamp in self._files.stamps().items()):
            raise _Edited

    def tell(self, line: str) -> None:
        """Show a line."""
        self._logs.tell(line)

    def _stop(self, child: _Child) -> int:
        """Let a child stop in order. A further signal ends it at once."""
        child.signal(signal.SIGTERM)
        passed_on = len(self._signals)
        while child.code is None:
            time.sleep(_POLL_S / 4)
            for number in self._signals[max(passed_on, 1) :]:
                child.signal(number)
            passed_on = len(self._signals)
        return child.wait()


class _Watch:
    """A look now and then while a child loads: for signals, and for edits, since a module may never end."""

    def __init__(self, supervisor: _Supervisor, seen: Mapping[str, object], changed: Sequence[str]) -> None:
        self._supervisor, self._seen, self._changed = supervisor, seen, changed
        self._next_look = time.monotonic() + _POLL_S
        self._patience_ends = time.monotonic() + _PATIENCE_S

    def look(self) -> None:
        """Look. `_Stopping` and `_Edited` say what has come."""
        self._supervisor.check()
        began = time.monotonic()
        if began < self._next_look:
            return
        self._supervisor.check_files(self._seen)
        ended = time.monotonic()
        self._next_look = ended + _pause_after(ended - began)
        if ended > self._patience_ends:
            self._patience_ends = math.inf
            what = f"{_names(self._changed)} changed, and" if self._changed else "The server"
            self._supervisor.tell(f"{what} is still loading after {_PATIENCE_S:.0f} s. An edit begins anew.")


class _Child:
    """A process that loads the targets, and serves when it is told to."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        theirs_in, self._control = os.pipe()
        self._report, theirs_out = os.pipe()
        self._pipes = [self._control, self._report]
        given = [theirs_in, theirs_out, *(each.fileno() for each in sockets)]
        environment = {**os.environ, _VARIABLE: ",".join(map(str, given))}
        try:
            # The same command, as the interpreter was given it.
            command = [sys.executable, *sys.orig_argv[1:]]
            self._process = subprocess.Popen(command, env=environment, pass_fds=given)  # noqa: S603 - itself
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._read = b""

    def report(self, check: Callable[[], None]) -> Loaded | None:
        """Wait for the next report; None if the process has ended without one. `check` may raise meantime."""
        while b"\n" not in self._read:
            check()
            has_ended = self.code is not None
            if select.select([self._report], [], [], 0 if has_ended else _POLL_S)[0]:
                data = os.read(self._report, 1 << 16)
                self._read += data
                has_ended = not data
            if has_ended and b"\n" not in self._read:
                return None
        line, _, self._read = self._read.partition(b"\n")
        return msgspec.json.decode(line, type=Loaded)

    def go(self) -> None:
        """Let it serve."""
        with suppress(BrokenPipeError):  # it has ended: it sends no report
            os.write(self._control, b"!")

    @property
    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code  # as shells do

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        self._process.wait()
        while self._pipes:
            os.close(self._pipes.pop())
        return self.code or 0

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once: it has not begun to serve."""
        self._process.kill()
        self.wait()


class _WatchedFiles(NamedTuple):
    """Files, folders of flows, and how they were when they were loaded."""

    files: Sequence[str]
    folders: Sequence[str]
    seen: Mapping[str, object] = {}

    def stamps(self) -> dict[str, object]:
        """How they are now."""
        found: dict[str, object] = {file: _stamp(file) for file in self.files}
        return found | {folder: [str(file) for file in files_of(Path(folder))] for folder in self.folders}

    def since(self, seen: Mapping[str, object]) -> _WatchedFiles:
        """Note how they were; files that are new are as they are now."""
        return self._replace(seen={**self.stamps(), **{path: seen[path] for path in seen if path in self._paths}})

    def with_more(self, loaded: Loaded) -> _WatchedFiles:
        """Add what was loaded by a process that failed: it may not have come to the others."""
        files = sorted({*self.files, *loaded.files})
        return self._replace(files=files, folders=sorted({*self.folders, *loaded.folders}))

    def changed(self, now: Mapping[str, object]) -> list[str]:
        """Which of them are not as they were."""
        return [path for path, stamp in now.items() if self.seen.get(path) != stamp]

    @property
    def _paths(self) -> set[str]:
        return {*self.files, *self.folders}


def _pause_after(look_s: float) -> float:
    """Return the seconds until the next look at files; the last one took `look_s`."""
    return min(max(_POLL_S, _SHARE * look_s), _MAX_POLL_S)


def _stamp(file: str) -> object:
    try:
        status = os.stat(file)
    except OSError:
        return None  # it is gone, or is being replaced
    return status.st_mtime_ns, status.st_size, status.st_ino


def _names(paths: Sequence[str]) -> str:
    shown = [os.path.relpath(path) for path in paths[:_NAMED]]
    more = [f"{len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return ", ".join([*shown, *more])
