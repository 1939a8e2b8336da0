"""Garbage collections that are short, in a process that holds many runs.

Python stops all threads while it looks for cyclic garbage. A full collection visits every container: about 70 ms for a
million of them, and the states of runs are made of containers. Nearly all of Loom's values die without the collector,
because nothing points back at them.

So `shorten_collections` adds an old generation. Containers that have survived a full collection are left out of the
next ones (`gc.freeze`), which see only what was made since. After a number of collections the old ones come back once,
so that garbage among them is found.
"""

from __future__ import annotations

import gc

_THRESHOLDS = (10_000, 20, 3)
"""A full collection sees at most their product in new containers: 600,000."""
_OLD_EVERY = 50
"""The number of full collections of which one sees the old containers too."""


class _OldGeneration:
    """Leaves survivors of full collections out of the next ones, but for one in `_OLD_EVERY`."""

    def __init__(self) -> None:
        self.collections = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:  # noqa: PLR2004 - the oldest that Python has
            self.collections += 1
            if self.collections % _OLD_EVERY:
                gc.freeze()
            else:
                gc.unfreeze()


def shorten_collections() -> None:
    """Let the collector of this process stop it for a short time only. A second call changes nothing."""
    if not any(isinstance(called, _OldGeneration) for called in gc.callbacks):
        gc.callbacks.append(_OldGeneration())
        gc.set_threshold(*_THRESHOLDS)
        gc.collect()


def collect_all() -> None:
    """Collect all garbage, also among old containers: that takes as long as the process is large."""
    gc.unfreeze()
    gc.collect()
