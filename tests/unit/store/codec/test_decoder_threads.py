"""Decoders are made by whichever thread needs one first, and several may at the same time."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
import msgspec
from loom.core.ticks import TickCancelRun, WorkflowTick
from loom.store.codec.structs import decoder_of, encode

sys.setswitchinterval(1e-6)

class Letter(msgspec.Struct):
    tick: WorkflowTick

data, go = encode(Letter(TickCancelRun(at=1.0))), threading.Event()

def read():
    go.wait()
    decoder_of(Letter).decode(data)

threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads:
    thread.start()
go.set()
for thread in threads:
    thread.join()
"""


def test_threads_that_need_decoders_of_the_same_structs_get_whole_ones() -> None:
    processes = [subprocess.Popen([sys.executable, "-c", PROGRAM]) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
