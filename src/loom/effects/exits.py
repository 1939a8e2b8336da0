"""Exceptions that end a process, raised by a body: whose they are, and what is told of them.

`sys.exit` in a body, or in a library that it calls (argparse does so for a wrong argument), means that body and not the
process that hosts a thousand others: it is a failure of the attempt. Only a signal to the process ends it. Python tells
of Ctrl-C by an exception in whatever frame runs, so that one has to be told apart.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from traceback import walk_tb

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


def _is_current(task: asyncio.Task[object] | None) -> bool:
    """Say whether a task runs now: a coroutine that is dropped is closed by somebody else."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:
        return False


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
