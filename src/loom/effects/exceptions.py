"""Exceptions that bodies raise: whose they are, and the text that is stored of them.

`sys.exit` in a body, or in a library that it calls (argparse does so for a wrong argument), fails the attempt. It must
not end the process, which hosts a thousand other runs: only a signal does. Python tells of Ctrl-C by an exception in
whatever frame runs, so that one has to be told apart.

The text of a traceback begins with what its reader needs most, so that a cut takes the rest: the exception, the
author's frames with the most recent call first, then frames of libraries, then what caused it. Frames of the engine and
of the event loop below it are left out. Values of local variables are never read. Credentials in messages and source
lines are masked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import linecache
import os
import selectors
import signal
import sysconfig
import threading
from functools import lru_cache
from itertools import islice, takewhile
from traceback import walk_stack, walk_tb
from typing import TYPE_CHECKING, Literal, NamedTuple

from loom.effects.redaction import masked
from loom.steps.errors import message_of, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType


# --- exceptions that end a process ------------------------------------------------------------------------------------

_RUNNERS = asyncio.runners.__file__


def is_from_outside(error: BaseException, task: asyncio.Task[object] | None) -> bool:
    """Say whether an exception that passed through a body of `task` is not the body's own.

    True for the interrupt of a signal, and for a coroutine that the event loop drops unfinished. All else that a body
    raises is its failure.
    """
    kind = type(error)  # not by `isinstance`, which asks the exception itself for its class
    if issubclass(kind, GeneratorExit):
        return not _is_current(task)
    return issubclass(kind, KeyboardInterrupt) and is_signal(error)


def asks_to_exit(error: BaseException) -> bool:
    """Say whether plain code of an author's, such as a validator, asked the process to exit: no signal did.

    Nothing can cancel or drop code that does not await, so that all other exceptions are its own.
    """
    kind = type(error)
    return not issubclass(kind, Exception) and not (issubclass(kind, KeyboardInterrupt) and is_signal(error))


def is_signal(error: BaseException) -> bool:
    """Say whether Ctrl-C raised a KeyboardInterrupt. Where Python's own handler is set, nobody can tell: then it did.

    `loom serve`, `worker` and `run` hand signals to the event loop, and `asyncio.run` cancels its main task with the
    first one: there, what a body raises is its own. Signals reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    frames = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].co_filename == _RUNNERS


def _is_current(task: asyncio.Task[object] | None) -> bool:
    """Say whether a task runs now: a coroutine that is dropped is closed by other code."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:
        return False


# --- tracebacks -------------------------------------------------------------------------------------------------------

MAX_BYTES = 16 * 1024
"""What the traceback of one attempt may have, in UTF-8."""
_HIDDEN = "(hidden, because the action's data is secure)"
_MAX_FRAMES = 30
"""Frames of each kind and exception that are shown: the innermost."""
_MAX_WALKED = 10_000
"""Frames of a stack that are looked at: a body that recurses may have more."""
_MAX_LINE = 300
_MESSAGE_SHARE = 8
"""A message may have an eighth of the limit, in characters of up to four bytes: half the text is left for frames."""
_MAX_EXCEPTIONS = 30
"""Exceptions of one text: causes, contexts and members of groups."""
_CUT = "\n… (cut)"
_ENGINE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LOOPS = tuple(
    os.path.join(os.path.dirname(os.path.abspath(package.__file__)), "")
    for package in (asyncio, concurrent.futures)
    if package.__file__ is not None
)
_THREADS = os.path.abspath(threading.__file__)
_LOOP_ENDS = ("base_events.py", "runners.py")
"""Files of asyncio whose frames drive the event loop: what called them started the program and says nothing more."""
_LIBRARIES = tuple(
    {
        os.path.join(path, "")
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    }
)
_Kind = Literal["author", "library", "engine"]


class _Frame(NamedTuple):
    file: str
    line: int
    function: str
    repeated: int = 0
    """How many more times the same line called itself."""


@lru_cache(maxsize=1024)
def _kind_of(file: str) -> _Kind:
    path = os.path.abspath(file)
    if path.startswith((_ENGINE, *_LOOPS)) or path == _THREADS:
        return "engine"
    return "library" if file.startswith("<frozen ") or path.startswith(_LIBRARIES) else "author"


def has_other_frames(error: BaseException) -> bool:
    """Say whether an exception passed through code that is not the engine's."""
    # Not by the attribute, which a class may have put its own code in the place of.
    raised_at = vars(BaseException)["__traceback__"].__get__(error)
    return any(_kind_of(frame.f_code.co_filename) != "engine" for frame, _ in walk_tb(raised_at))


def traceback_text(error: BaseException, limit: int = MAX_BYTES, *, hide_messages: bool = False) -> str:
    """Write an exception, its frames and its causes, in at most `limit` bytes.

    With `hide_messages` no message and no note is shown: they may hold data that is secure. An exception whose own code
    fails when it is looked at gives a text that says so: the attempt must be recorded in any case.
    """
    try:
        return _written_text(error, limit, hide_messages)
    except BaseException as broken:  # noqa: BLE001 - an author's exception may raise anything, from wherever it is looked at
        return f"{type(error).__name__}: its traceback cannot be written ({type(broken).__name__})"


def stack_text(innermost: FrameType, limit: int = MAX_BYTES) -> str:
    """Write where a thread is at work, up to the event loop: the author's frames, then the others, latest first."""
    frames = [*_frames(reversed(_inside_loop(innermost)))]
    authors = [frame for frame in frames if _kind_of(frame.file) == "author"]
    others = [frame for frame in frames if _kind_of(frame.file) != "author"]
    lines = [*_written(authors)]
    if others:
        lines += ["  In libraries and the engine:", *_written(others)]
    return _fitting(well_formed("\n".join(lines)), limit)


def is_at_rest(innermost: FrameType) -> bool:
    """Say whether the thread of an event loop waits for something to happen, and runs nobody's code."""
    inside = _inside_loop(innermost)
    return not inside or [frame.f_code.co_filename for frame, _ in inside] == [selectors.__file__]


def _inside_loop(innermost: FrameType) -> list[tuple[FrameType, int]]:
    """Walk from the innermost frame up to the event loop."""
    walked = islice(walk_stack(innermost), _MAX_WALKED)
    return [*takewhile(lambda found: not _drives_loop(found[0].f_code.co_filename), walked)]


def _written_text(error: BaseException, limit: int, hide_messages: bool) -> str:
    lines = _lines(_TextWriter(hide_messages, limit // _MESSAGE_SHARE), error, limit)
    if not any(line.lstrip().startswith('File "') for line in lines):
        # Nobody's code but the engine's was involved: its frames are better than none.
        lines = _lines(_TextWriter(hide_messages, limit // _MESSAGE_SHARE, shows_engine=True), error, limit)
    return _fitting(well_formed("\n".join(lines)), limit)


def _lines(writer: _TextWriter, error: BaseException, limit: int) -> list[str]:
    lines: list[str] = []
    room = 2 * limit  # more characters cannot be shown; what follows is not even looked at
    for line in writer.exception(error):
        lines.append(line)
        room -= len(line)
        if room < 0:
            break
    return lines


def _fitting(text: str, limit: int) -> str:
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(_CUT.encode())].decode(errors="ignore") + _CUT


class _TextWriter:
    """Writes one text. Each exception is written once, however often causes and groups lead to it."""

    def __init__(self, hide_messages: bool, max_message: int, *, shows_engine: bool = False) -> None:
        self._hides = hide_messages
        self._max_message = max_message
        self._shows_engine = shows_engine
        self._seen: set[int] = set()

    def exception(self, error: BaseException, margin: str = "") -> Iterator[str]:
        """Write an exception and what led to it."""
        introduction = ""
        current: BaseException | None = error
        while current is not None and id(current) not in self._seen and len(self._seen) < _MAX_EXCEPTIONS:
            self._seen.add(id(current))
            for line in self._lines(current, introduction):
                yield margin + line
            if isinstance(current, BaseExceptionGroup):
                yield from self._members(current, margin)
            if current.__cause__ is not None:
                introduction, current = "Caused by ", current.__cause__
            elif not current.__suppress_context__:
                introduction, current = "While handling ", current.__context__
            else:
                current = None

    def _members(self, group: BaseExceptionGroup[BaseException], margin: str) -> Iterator[str]:
        number = len(group.exceptions)
        for position, member in enumerate(group.exceptions, 1):
            if len(self._seen) >= _MAX_EXCEPTIONS:
                yield f"{margin}  … {number - position + 1} more exceptions"
                return
            yield f"{margin}  Exception {position} of {number}:"
            yield from self.exception(member, f"{margin}    ")

    def _lines(self, error: BaseException, introduction: str) -> Iterator[str]:
        name = _name_of(type(error))
        message = _HIDDEN if self._hides else masked(message_of(error), self._max_message)
        yield from f"{introduction}{name}: {message}".splitlines() if message else (f"{introduction}{name}",)
        if not self._hides:
            notes = getattr(error, "__notes__", ())
            for note in notes if isinstance(notes, list | tuple) else ():
                yield from masked(str(note), self._max_message).splitlines()
        yield from _frame_lines(error, self._shows_engine)


def _frame_lines(error: BaseException, shows_engine: bool) -> Iterator[str]:
    """The author's frames, then frames of libraries, or else the engine's if they are wanted."""
    by_kind: dict[_Kind, list[_Frame]] = {"author": [], "library": [], "engine": []}
    for frame in _frames(walk_tb(error.__traceback__)):
        by_kind[_kind_of(frame.file)].append(frame)
    authors, libraries = by_kind["author"], by_kind["library"]
    yield from _written(authors)
    if libraries:
        if authors:
            yield "  In libraries:"
        yield from _written(libraries)
    elif not authors and shows_engine:
        yield from _written(by_kind["engine"])


def _drives_loop(file: str) -> bool:
    return file.endswith(_LOOP_ENDS) and os.path.abspath(file).startswith(_LOOPS)


def _frames(walked: Iterable[tuple[FrameType, int | None]]) -> Iterator[_Frame]:
    """The frames of a walk that ends with the most recent call, which comes first here. A line that called itself over
    and over is one frame.
    """
    found: list[_Frame] = []
    for frame, numbered in walked:
        code = frame.f_code
        line = numbered or code.co_firstlineno  # a frame between two lines has no number
        if found and found[-1][:3] == (code.co_filename, line, code.co_name):
            found[-1] = found[-1]._replace(repeated=found[-1].repeated + 1)
            continue
        linecache.lazycache(code.co_filename, frame.f_globals)
        found.append(_Frame(code.co_filename, line, code.co_name))
    return reversed(found)


def _written(frames: list[_Frame]) -> Iterator[str]:
    for frame in frames[:_MAX_FRAMES]:
        yield f'  File "{frame.file}", line {frame.line}, in {frame.function}'
        linecache.checkcache(frame.file)
        source = linecache.getline(frame.file, frame.line).strip()
        if source:
            yield f"    {masked(source, _MAX_LINE)}"
        if frame.repeated:
            yield f"    (repeated {frame.repeated} more times)"
    if len(frames) > _MAX_FRAMES:
        yield f"  … {len(frames) - _MAX_FRAMES} more frames"


def _name_of(cls: type[BaseException]) -> str:
    module = cls.__module__
    return cls.__qualname__ if module in ("builtins", "__main__") else f"{module}.{cls.__qualname__}"
