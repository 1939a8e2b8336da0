"""Collections leave old containers out, find garbage among them in the end, and are set up once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
from loom.runtime.garbage import _OLD_EVERY, collect_all, shorten_collections

class Node:
    pass

def cycle():
    node = Node()
    node.own = node
    return weakref.ref(node), node

shorten_collections()
shorten_collections()
assert sum(type(called).__name__ == "_OldGeneration" for called in gc.callbacks) == 1
assert not gc.get_objects(generation=2), "what was loaded is old"

young, node = cycle()
del node
gc.collect()
assert young() is None, "new garbage is found"

old, node = cycle()
gc.collect()
del node
gc.collect()
assert old() is not None, "it survived a collection, and is left out"
collect_all()
assert old() is None, "but for a thorough one"

old, node = cycle()
gc.collect()
del node
for _ in range(_OLD_EVERY + 1):
    gc.collect()
assert old() is None, "and one in a number of collections is thorough"
print("fine")
"""


def test_old_containers_are_left_out_and_looked_at_now_and_then() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr
