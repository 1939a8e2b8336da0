"""The sync face does not hang: while it is closed, when its thread dies, in its own steps, and after a fork."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import loom
from loom import StartEvent, StopEvent, Workflow, step

PATIENCE_S = 60.0


class Slow(Workflow):
    """Its step is not `async`, and lasts until it is let go."""

    begun: threading.Event
    release: threading.Event

    @step
    def hold(self, _ev: StartEvent) -> StopEvent:
        self.begun.set()
        self.release.wait(2 * PATIENCE_S)
        return StopEvent()


class Exit(Workflow):
    """Ends its event loop, as `sys.exit` in a callback does."""

    @step
    async def leave(self, _ev: StartEvent) -> StopEvent:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(1000)
        return StopEvent()


class Fine(Workflow):
    @step
    def go(self, _ev: StartEvent) -> StopEvent:
        return StopEvent(result="fine")


def told(call: Callable[[], Any]) -> Any:
    """What a call in a thread of its own gives or raises. It must not hang."""
    answers: list[Any] = []

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - whatever it is told
            answers.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert answers, "the call hangs"
    return answers[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_call_while_another_thread_closes_is_refused() -> None:
    slow = Slow(timeout=None)
    slow.begun, slow.release = threading.Event(), threading.Event()
    runtime = loom.connect_sync().open()
    runtime.register(slow, name="slow")
    runtime.start("slow", run_id="r")
    assert slow.begun.wait(PATIENCE_S)
    closing = threading.Thread(target=runtime.close)
    closing.start()
    loop = runtime._loop_thread.loop
    until(lambda: not loop.is_running())
    assert not loop.is_closed()  # it waits for the step
    refused = told(lambda: runtime.get("r"))
    assert (type(refused).__mro__[1], str(refused)) == (RuntimeError, "The runtime is closed.")
    slow.release.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


def test_calls_that_race_with_closing_end() -> None:
    for _ in range(20):
        runtime = loom.connect_sync().open()

        def spam(runtime: loom.SyncRuntime = runtime) -> None:
            while True:
                list(runtime.list())

        threads = [threading.Thread(target=told, args=(spam,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        runtime.close()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_wait_that_closing_ends_is_told_so() -> None:
    runtime = loom.connect_sync().open()
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(1000)

    thread = runtime._loop_thread
    closing = threading.Thread(target=lambda: (begun.wait(PATIENCE_S), runtime.close()))
    closing.start()
    refused = told(lambda: thread.run(wait()))
    closing.join(PATIENCE_S)
    assert isinstance(refused, RuntimeError)
    assert "The runtime is closed" in str(refused)


def test_a_thread_that_dies_tells_its_callers_and_is_replaced() -> None:
    error = told(lambda: Exit(timeout=None).run_sync())
    assert isinstance(error, SystemExit)
    assert error.code == 3
    assert told(lambda: Fine().run_sync()) == "fine"


def test_a_runtime_whose_thread_died_says_so_and_closes(tmp_path: Path) -> None:
    runtime = loom.connect_sync(f"sqlite:///{tmp_path / 'runs.db'}").open()
    runtime.register(Exit(timeout=None), name="exit")
    assert isinstance(told(lambda: runtime.start("exit", run_id="r").result()), SystemExit | RuntimeError)
    refused = told(lambda: runtime.get("r"))
    assert isinstance(refused, RuntimeError)
    assert str(refused) == "The runtime is closed: its thread was ended by SystemExit(3)."
    assert told(runtime.close) is None


def test_the_interpreter_ends_after_its_threads_have_died() -> None:
    code = """
import asyncio, sys, loom
from loom import StartEvent, StopEvent, Workflow, step

class Exit(Workflow):
    @step
    async def leave(self, _ev: StartEvent) -> StopEvent:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(1000)

runtime = loom.connect_sync().open()
runtime.register(Exit(timeout=None), name="exit")
try:
    runtime.start("exit").result()
except (SystemExit, RuntimeError):
    print("told")
Exit(timeout=None).run_sync()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "told\n")


class Outer(Workflow):
    """Its step, which is not `async`, waits for a run of another workflow."""

    together: threading.Barrier

    @step
    def go(self, _ev: StartEvent) -> StopEvent:
        self.together.wait(PATIENCE_S)
        return StopEvent(result=Fine().run_sync())


def test_steps_that_wait_for_other_runs_do_not_use_up_the_threads() -> None:
    # As many as the pool has threads before one of them waits, so that all wait at once.
    outer = Outer(timeout=None)
    Fine().run_sync()
    from loom.steps import loop_thread

    assert loop_thread._shared is not None
    size = loop_thread._shared._executor._max_workers
    outer.together = threading.Barrier(size)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(outer.run_sync()), daemon=True) for _ in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == ["fine"] * size
    assert loop_thread._shared._executor._max_workers == size


class Closer(Workflow):
    opened: loom.SyncRuntime

    @step
    def close(self, _ev: StartEvent) -> StopEvent:
        try:
            self.opened.close()
        except RuntimeError as error:
            return StopEvent(result=str(error))
        return StopEvent()


def test_a_step_cannot_close_its_runtime() -> None:
    with loom.connect_sync() as runtime:
        closer = Closer(timeout=None)
        closer.opened = runtime
        runtime.register(closer, name="closer")
        handler = runtime.start("closer", run_id="r")
        assert "cannot be closed by a step" in handler.result(timeout=PATIENCE_S)
        assert told(lambda: runtime.get("r").status) == "completed"


def test_closing_that_fails_ends_the_thread_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = loom.connect_sync().open()
    thread = runtime._loop_thread
    inner = runtime._inner
    close = inner.store.close

    async def fail() -> None:
        await close()
        raise OSError("no space left")

    monkeypatch.setattr(inner.store, "close", fail)
    with pytest.raises(OSError, match="no space"):
        runtime.close()
    assert thread.loop.is_closed()
    assert not thread.thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        runtime.get("r")


def test_the_error_of_a_closed_runtime_names_the_sync_call() -> None:
    runtime = loom.connect_sync().open()
    inner, thread = runtime._inner, runtime._loop_thread
    thread.run(inner.close())
    with pytest.raises(loom.StoreError, match=r"`with loom.connect_sync\(...\) as runtime:`"):
        runtime.get("r")
    runtime.close()


def _in_a_child(runtime: loom.SyncRuntime, url: str, answers: Any) -> None:
    for call in (lambda: runtime.get("r"), runtime.open, runtime.close, runtime.open):
        try:
            answers.put(call())
        except RuntimeError as error:
            answers.put(str(error))
    with loom.connect_sync(url) as own:
        answers.put(own.get("r").status)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_opens_one_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    with loom.connect_sync(url) as runtime:
        runtime.register(Fine(), name="fine")
        assert runtime.start("fine", run_id="r").result() == "fine"
        child = forking.Process(target=_in_a_child, args=(runtime, url, answers))
        child.start()
        found = [answers.get(timeout=PATIENCE_S) for _ in range(5)]
        child.join(PATIENCE_S)
        assert child.exitcode == 0
        told = "The runtime was opened before this process was forked. Call `loom.connect_sync(...)` in this process."
        assert found == [told, told, None, told, "completed"]
        assert runtime.start("fine").result() == "fine"


def _tell(ended: threading.Event, answers: Any) -> None:
    answers.put(ended.is_set())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_no_process_is_forked_while_a_thread_reads(tmp_path: Path) -> None:
    """It would inherit a mutex of SQLite that nobody lets go, and hang when it opens a file."""
    forking = multiprocessing.get_context("fork")
    answers, begun, ended = forking.Queue(), threading.Event(), threading.Event()

    def takes_long(_connection: Any) -> None:
        begun.set()
        time.sleep(0.5)
        ended.set()

    with loom.connect_sync(f"sqlite:///{tmp_path / 'runs.db'}") as runtime:
        readers = cast("Any", runtime._inner).store._readers
        runtime._loop_thread.loop.call_soon_threadsafe(readers.submit, takes_long)
        assert begun.wait(PATIENCE_S)
        child = forking.Process(target=_tell, args=(ended, answers))
        child.start()
        assert answers.get(timeout=PATIENCE_S) is True
        child.join(PATIENCE_S)


def _read_and_write(url: str, answers: Any) -> None:
    with loom.connect_sync(url) as own:
        answers.put(own.start("fine", run_id="s").run_id)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_is_forked_amid_a_transaction_can_use_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    forking = multiprocessing.get_context("fork")
    answers, begun = forking.Queue(), threading.Event()

    def takes_long(_session: Any) -> None:
        begun.set()
        time.sleep(0.5)

    with loom.connect_sync(url) as runtime:
        writer = cast("Any", runtime._inner).store._writer
        runtime._loop_thread.loop.call_soon_threadsafe(writer.submit, takes_long)
        assert begun.wait(PATIENCE_S)
        child = forking.Process(target=_read_and_write, args=(url, answers))
        child.start()
        assert answers.get(timeout=PATIENCE_S) == "s"
        child.join(PATIENCE_S)
        assert child.exitcode == 0
