"""Watches event loops from a thread, and answers on the health port while they stand still.

One thread serves the whole process. While runs are in memory it asks each loop, up to four times a second, to call it
back. A loop that takes longer than `stall_s` stands still. Then the thread reads the stack of the loop's own thread and
finds run and step in the frames of the engine. Bodies, reducer and commits pay nothing for that. A question takes
0.1 ms of both threads together: the watchdog costs less than 0.05 % of a core. It sleeps while no run is in memory.

Native code that keeps the interpreter's lock, as a pattern of `re` does, stops this thread as well. Such a stall is
logged when it is over, with the stack that the thread finds then, which is that of the culprit.

The health port is beside the server's own. It knows `GET /live`, `GET /ready` and `GET /metrics`, takes no body and
keeps no connection. None of its answers names a run. Nothing waits for a client: sockets are non-blocking, connections
are few, and each has a deadline.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import selectors
import socket
import sys
import threading
from contextlib import suppress
from itertools import islice
from time import monotonic
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.effects.exceptions import is_at_rest, stack_text
from loom.effects.execution import StepExecution
from loom.runtime.control_loop import ControlLoop
from loom.runtime.live_run import LiveRun
from loom.runtime.logs import about, about_execution
from loom.steps.ports import current_body
from loom.store.loop_time import can_skip

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from types import FrameType


_log = logging.getLogger("loom.watchdog")

_LOOK_S = 0.25
_LOOKS_PER_STALL = 4
_STAYS_AWAKE = 20
"""Looks without anything at work before the thread sleeps: runs that come and go need not wake it each time."""
_MAX_WALKED = 10_000
_HANDLE = asyncio.Handle._run.__code__


class LoopWatch:
    """What the watchdog knows of one event loop. Written by its thread, read by any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stall_s: float) -> None:
        self.loop = loop
        self.stall_s = stall_s
        self.stalls = 0
        """How often the loop stood still for `stall_s` or longer."""
        self._past_s = 0.0
        self._users: list[Callable[[], bool]] = []
        self._thread = threading.get_ident()
        self._asked_at: float | None = None
        self._turned_at: float | None = None
        self._stall: dict[str, str] | None = None
        """What the log said about the stall that lasts: run, workflow and step."""

    @property
    def is_stalled(self) -> bool:
        """Whether the loop stands still."""
        return self._stall is not None and self._turned_at is None

    @property
    def standing_s(self) -> float:
        """For how many seconds the loop has been standing still; 0.0 while it turns."""
        asked_at = self._asked_at
        return monotonic() - asked_at if self.is_stalled and asked_at is not None else 0.0

    @property
    def stalled_s(self) -> float:
        """For how many seconds all stalls have lasted, with the one that goes on."""
        asked_at, turned_at = self._asked_at, self._turned_at
        if self._stall is None or asked_at is None:
            return self._past_s
        return self._past_s + (turned_at if turned_at is not None else monotonic()) - asked_at

    @property
    def is_at_work(self) -> bool:
        """Whether anything runs on the loop that could hold it."""
        return any(is_at_work() for is_at_work in list(self._users))

    def look(self, now: float, planned: float) -> bool:
        """See whether the loop turned since the last look. `planned` is when this look was to be.

        Returns whether there is anything to look at.
        """
        held_up_since = planned
        if self._turned_at is not None and self._asked_at is not None:
            stood, held_up_since = self._turned_at - self._asked_at, max(planned, self._turned_at)
            if self._stall is not None:
                self._over(stood)
            elif stood >= self.stall_s and now - planned >= self.stall_s:
                self._was_missed(stood)
            self._asked_at = self._turned_at = None
        if self._asked_at is None:
            if not self.is_at_work:
                return False
            # A look that comes much too late was held up itself, by what held the loop.
            self._asked_at = held_up_since if now - held_up_since >= self.stall_s else now
            try:
                self.loop.call_soon_threadsafe(self._turned)
            except RuntimeError:  # the loop was closed
                self._asked_at = None
                return False
        if self._stall is None and self._turned_at is None and now - self._asked_at >= self.stall_s:
            self._look_at_stack(now - self._asked_at)
        return True

    def _turned(self) -> None:
        self._turned_at = monotonic()

    def _look_at_stack(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)
        if frame is None or is_at_rest(frame):
            return  # nothing holds the loop: it is the machine that does not come to it
        self.stalls += 1
        self._stall = found = at_work_on(frame, self.loop)
        words = "The event loop has not turned for %.1f s: %s."
        _tell(words, (seconds, _named(found, "holds")), found, stack_text(frame))

    def _over(self, seconds: float) -> None:
        found, self._stall = self._stall or {}, None
        self._past_s += seconds
        _tell("The event loop turns again after %.1f s: %s.", (seconds, _named(found, "held")), found)

    def _was_missed(self, seconds: float) -> None:
        """The loop stood, and this thread with it: the process was stopped, or had no processor."""
        self.stalls += 1
        self._past_s += seconds
        _tell("The process stood still for %.1f s, and its event loop with it.", (seconds,), {})


def _named(found: dict[str, str], verb: str) -> str:
    if "step" in found:
        return f"step {found['step']} of run {found['run_id']} {verb} it"
    return f"run {found['run_id']} {verb} it" if found else f"what {verb} it belongs to no run"


def _tell(words: str, arguments: tuple[Any, ...], extra: dict[str, str], stack: str | None = None) -> None:
    if _log.isEnabledFor(logging.WARNING):
        told = _log.makeRecord(
            _log.name, logging.WARNING, __file__, 0, words, arguments, None, None, dict(extra), stack
        )
        _log.handle(told)


def at_work_on(innermost: FrameType, loop: asyncio.AbstractEventLoop) -> dict[str, str]:
    """Tell run, workflow and step that a loop's thread is at work on, as far as the engine is on its stack."""
    run: dict[str, str] = {}
    for frame, _ in islice(walk_stack(innermost), _MAX_WALKED):
        if frame.f_code is _HANDLE:
            return run or _of_context(frame.f_locals["self"]._context)
        if not frame.f_globals.get("__name__", "").startswith("loom."):
            continue
        names = frame.f_locals
        owner = names.get("self")
        if isinstance(owner, StepExecution):
            return about_execution(owner)
        if isinstance(owner, ControlLoop):  # it reduces, whatever has called it
            owner = owner._workers
            return _about_run(owner) if isinstance(owner, LiveRun) else run
        if isinstance(owner, LiveRun):
            run = run or _about_run(owner)
        elif isinstance(names.get("run_id"), str):
            run = run or about(names["run_id"])
    return run or _of_task(loop)


def _about_run(run: LiveRun) -> dict[str, str]:
    return {"run_id": run.run_id, "workflow": run.workflow_name}


def _of_task(loop: asyncio.AbstractEventLoop) -> dict[str, str]:
    """Tell whose task is at work on a loop that has no handles of asyncio's. Before Python 3.12 no task tells that."""
    context = getattr(asyncio.current_task(loop), "get_context", lambda: None)()
    return _of_context(context) if context is not None else {}


def _of_context(context: Context) -> dict[str, str]:
    """Tell which body has begun a task or a callback."""
    mark = context.get(current_body)
    return mark.names if mark is not None else {}


class Watchdog:
    """The thread of a process, and the loops that it watches."""

    def __init__(self) -> None:
        self._watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._doors = Doors()
        self._is_asleep = False
        self._roused_at = 0.0

    def watch(
        self, loop: asyncio.AbstractEventLoop, stall_s: float, is_at_work: Callable[[], bool]
    ) -> LoopWatch | None:
        """Watch the loop of the calling thread whenever something is at work; call `rouse` when it begins to be.

        None on a loop whose clock is not the real one: its time says nothing about a stall.
        """
        if can_skip(loop):
            return None
        with self._lock:
            for closed in [each for each in self._watches if each.is_closed()]:
                del self._watches[closed]  # its runtimes were never closed
            found = self._watches.get(loop)
            if found is None:
                found = self._watches[loop] = LoopWatch(loop, stall_s)
            found.stall_s = min(found.stall_s, stall_s)
            found._users.append(is_at_work)
        self.rouse()
        return found

    def leave(self, watch: LoopWatch, is_at_work: Callable[[], bool]) -> None:
        """Watch a loop no more for this user of it."""
        with self._lock:
            watch._users.remove(is_at_work)
            if not watch._users:
                self._watches.pop(watch.loop, None)

    def open(self, port: HealthPort) -> None:
        """Answer on a port."""
        self._doors.add(port)
        self.rouse()

    def close(self, port: HealthPort) -> None:
        """Answer on a port no more."""
        self._doors.remove(port)

    def rouse(self) -> None:
        """Something has begun to work: look after it."""
        with self._lock:
            if not self._watches and not self._doors:
                return
            if self._thread is None or not self._thread.is_alive():
                self._roused_at = monotonic()
                self._thread = threading.Thread(target=self._run, name="loom watchdog", daemon=True)
                self._thread.start()
            elif self._is_asleep:
                self._is_asleep = False
                self._roused_at = monotonic()
                self._doors.ring()

    def _run(self) -> None:
        quiet = 0
        planned = self._roused_at
        while True:
            try:
                quiet = 0 if self._look(planned) else quiet + 1
                if quiet > _STAYS_AWAKE and self._may_sleep():
                    self._doors.attend(None)
                    planned = self._roused_at
                else:
                    planned = monotonic() + self._interval_s
                    self._doors.attend(planned)
            except Exception:  # noqa: BLE001 - whatever it is, the log tells it
                # Without this thread nobody would tell of stalls; what is wrong is told, and not over and over.
                _log.exception("The watchdog has failed, and looks again in a minute.")
                planned = monotonic() + 60.0
                self._doors.attend(planned)

    @property
    def _interval_s(self) -> float:
        watches = list(self._watches.values())
        return min(_LOOK_S, *(each.stall_s / _LOOKS_PER_STALL for each in watches)) if watches else _LOOK_S

    def _look(self, planned: float) -> bool:
        now = monotonic()
        busy = [each.look(now, planned) for each in list(self._watches.values())]  # all of them, not up to the first
        return any(busy)

    def _may_sleep(self) -> bool:
        """Say whether nothing is at work. Who begins after this was asked finds the thread asleep, and wakes it."""
        with self._lock:
            self._is_asleep = True
        if any(each.is_at_work for each in list(self._watches.values())):
            self._is_asleep = False
        return self._is_asleep


_watchdog: Watchdog | None = None


def watchdog() -> Watchdog:
    """The watchdog of this process, made when it is first asked for."""
    global _watchdog  # noqa: PLW0603 - one per process
    if _watchdog is None:
        _watchdog = Watchdog()
    return _watchdog


def rouse() -> None:
    """Runs are in memory again: look after their loop, if it is watched."""
    if _watchdog is not None:
        _watchdog.rouse()


def _forget() -> None:
    """A process that was forked has the objects of its parent, but not the thread."""
    global _watchdog  # noqa: PLW0603 - one per process
    _watchdog = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


_MAX_VISITORS = 32
_VISIT_S = 5.0
_MAX_HEAD = 8192
_READ = 4096
_REQUEST = re.compile(rb"([A-Z]{1,10}) (/[!-~]{0,1000}) HTTP/1\.[01]\r\n")
_PHRASES = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


class Answer(NamedTuple):
    """What a visitor gets."""

    status: int
    body: bytes
    kind: str = "application/json"

    @classmethod
    def json(cls, status: int, content: Any) -> Answer:
        """An answer for programs."""
        return cls(status, json.dumps(content).encode())


class HealthPort:
    """A listening socket, and what is answered on it. `answer` gets path and query, and is called in a thread."""

    def __init__(self, host: str, port: int, answer: Callable[[str, str], Answer | None]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server((host, port), family=family, backlog=_MAX_VISITORS)
        self.socket.setblocking(False)
        self.answer = answer

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Visitor:
    """One connection to the health port."""

    def __init__(self, connection: socket.socket, port: HealthPort) -> None:
        self.connection = connection
        self.until = monotonic() + _VISIT_S
        self._port = port
        self._head = b""

    def read(self) -> bool:
        """Take what has come, and answer once it is a request. Returns whether the visit is over."""
        try:
            data = self.connection.recv(_READ)
        except BlockingIOError:
            return False
        self._head += data
        if data and b"\r\n\r\n" not in self._head and len(self._head) < _MAX_HEAD:
            return False
        if self._head:
            self.connection.send(self._answer())
            self.connection.shutdown(socket.SHUT_WR)
        return True

    def _answer(self) -> bytes:
        found = _REQUEST.match(self._head)
        if found is None or b"\r\n\r\n" not in self._head:
            return _encoded(Answer.json(400, {"detail": "This is no request that is known here."}))
        if found[1] not in (b"GET", b"HEAD"):
            return _encoded(Answer.json(405, {"detail": "Only GET and HEAD are known here."}))
        path, _, query = found[2].decode().partition("?")
        answer = self._port.answer(path, query) or Answer.json(404, {"detail": "Use /live, /ready or /metrics."})
        return _encoded(answer, with_body=found[1] == b"GET")


def _encoded(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")


class Doors:
    """All that the thread waits for: health ports, their visitors, and a bell by which others wake it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = socket.socketpair()
        for each in (self._bell, self._rope):
            each.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._wanted: list[HealthPort] = []
        self._open: list[HealthPort] = []
        self._visitors: list[_Visitor] = []

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, port: HealthPort) -> None:
        """Answer on a port, from any thread."""
        with self._lock:
            self._wanted = [*self._wanted, port]
        self.ring()

    def remove(self, port: HealthPort) -> None:
        """Close a port, from any thread."""
        with self._lock:
            self._wanted = [each for each in self._wanted if each is not port]
        self.ring()

    def ring(self) -> None:
        """Wake the thread."""
        with suppress(BlockingIOError):  # it has rung so often that it is heard anyway
            self._rope.send(b"\0")

    def attend(self, until: float | None) -> None:
        """Answer visitors until a moment; None: until a caller rings."""
        while True:
            self._arrange()
            left = None if until is None else max(0.0, until - monotonic())
            if self._visitors:
                soonest = max(0.0, self._visitors[0].until - monotonic())
                left = soonest if left is None else min(left, soonest)
            rang = False
            for key, _ in self._selector.select(left):
                rang = self._attend_to(key.data) or rang
            self._send_away()
            if rang if until is None else monotonic() >= until:
                return

    def _arrange(self) -> None:
        """Open and close what was asked for: only the thread itself touches the selector."""
        wanted = self._wanted
        for port in [each for each in self._open if each not in wanted]:
            self._open.remove(port)
            self._selector.unregister(port.socket)
            port.socket.close()
        for port in [each for each in wanted if each not in self._open]:
            self._open.append(port)
            self._selector.register(port.socket, selectors.EVENT_READ, port)

    def _attend_to(self, door: HealthPort | _Visitor | None) -> bool:
        if isinstance(door, HealthPort):
            self._let_in(door)
        elif door is not None:
            self._hear(door)
        else:
            with suppress(BlockingIOError):
                self._bell.recv(_READ)
            return True
        return False

    def _let_in(self, port: HealthPort) -> None:
        with suppress(OSError):  # it has left before it was let in
            connection, _ = port.socket.accept()
            connection.setblocking(False)
            visitor = _Visitor(connection, port)
            self._visitors.append(visitor)
            self._selector.register(connection, selectors.EVENT_READ, visitor)
        if len(self._visitors) > _MAX_VISITORS:
            self._leave(self._visitors[0])

    def _hear(self, visitor: _Visitor) -> None:
        try:
            is_over = visitor.read()
        except OSError:  # it has left
            is_over = True
        except Exception:  # noqa: BLE001 - whatever it is, the log tells it, and others are answered
            _log.exception("A request to the health port has failed.")
            is_over = True
        if is_over:
            self._leave(visitor)

    def _send_away(self) -> None:
        now = monotonic()
        for visitor in [each for each in self._visitors if each.until <= now]:
            self._leave(visitor)

    def _leave(self, visitor: _Visitor) -> None:
        if visitor in self._visitors:
            self._visitors.remove(visitor)
            self._selector.unregister(visitor.connection)
            visitor.connection.close()
