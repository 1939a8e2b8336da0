"""Measures from inside of a server how long its event loop did not turn, and says where it was.

The workflow `Gauge` is one long step, which a server under test loads. It appends a line of JSON to the file `gaps` in
the server's folder for each gap of more than 50 ms: when it ended, its length, the CPU time of the loop's thread in it,
that of the process, and the stacks that a thread saw while the loop stood still. The last of them tells for how long
Python collected garbage in the gap, which stops all threads.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from loom import StartEvent, StopEvent, Workflow, step

TICK_S = 0.01
GAP_S = 0.05
GAPS = Path("gaps")
MEASURES = Path("measures")
"""Tells that the gauge is at work; it ends when this file is gone."""


class Watch:
    """Sees stacks of the loop's thread while it stands still."""

    def __init__(self) -> None:
        self.turned_at = time.monotonic()
        self.seen: list[str] = []
        self._loop_thread = threading.get_ident()
        self._over = threading.Event()
        self.collecting = 0.0
        """Seconds of garbage collections since the last gap."""
        self._began_collecting = 0.0
        gc.callbacks.append(self._collected)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(GAP_S / 2):
            if time.monotonic() - self.turned_at > GAP_S and len(self.seen) < 3:
                frames = sys._current_frames()  # a stack is what is wanted
                self.seen.append(_stack(frames.get(self._loop_thread)))
                quiet = (self._loop_thread, threading.get_ident())
                others = [_stack(frame) for ident, frame in frames.items() if ident not in quiet]
                self.seen += [text for text in others if not text.startswith(("thread._worker", "threading.wait"))][:3]
                del frames  # they would keep alive whatever the threads had at hand then

    def _collected(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began_collecting = time.monotonic()
        else:
            self.collecting += time.monotonic() - self._began_collecting

    def turned(self) -> float:
        """Note that the loop turns. What was seen in a gap too short to be kept says nothing about the next one."""
        self.collecting, self.seen = 0.0, []
        self.turned_at = time.monotonic()
        return self.turned_at

    def take(self) -> list[str]:
        """The stacks since the loop turned last."""
        seen, self.seen = self.seen, []
        return [*seen, f"{self.collecting * 1000:.0f} ms of garbage collection"]

    def stop(self) -> None:
        """End the thread."""
        gc.callbacks.remove(self._collected)
        self._over.set()


def _stack(frame: Any) -> str:
    if frame is None:
        return ""
    found = [each for each in reversed(traceback.extract_stack(frame)) if "importlib" not in each.filename]
    return " < ".join(f"{Path(each.filename).stem}.{each.name}:{each.lineno}" for each in found[:30])


class Gauge(Workflow):
    @step
    async def measure(self, ev: StartEvent) -> StopEvent:
        watch = Watch()
        begin()
        try:
            while goes_on():
                cpu, all_cpu = time.thread_time(), time.process_time()
                began = watch.turned()
                await asyncio.sleep(TICK_S)
                ended = time.monotonic()
                if (gap := ended - began - TICK_S) > GAP_S:
                    used = (time.thread_time() - cpu, time.process_time() - all_cpu)
                    note([ended, gap, *used, watch.take()])
        finally:
            watch.stop()
        return StopEvent()


def begin() -> None:
    """Tell that the gauge is at work."""
    MEASURES.touch()


def goes_on() -> bool:
    """Say whether another process has not told it to end."""
    return MEASURES.exists()


def note(gap: list[Any]) -> None:
    """Keep what was measured."""
    with GAPS.open("a") as out:
        out.write(json.dumps(gap) + "\n")
