"""The planners of stored runs. Readers of runs need them and no other code of a workflow.

What flows need is imported when the first run of a flow is met, for it is much.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from loom.runtime.lru_cache import LruCache
from loom.steps.planner import StepsPlanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.planner import Planner
    from loom.flows.planner import FlowPlanner
    from loom.flows.program import Program

K = TypeVar("K", bound="str | bytes")
R = TypeVar("R")


class TextCache(Generic[K, R]):
    """A function of a document that keeps its newest results, bounded by their number and size. Threads may call it."""

    def __init__(self, make: Callable[[K], R], most: int, bytes_in_all: int) -> None:
        self._make = make
        self._room = bytes_in_all
        self._kept: LruCache[K, tuple[R]] = LruCache(most, max_weight=bytes_in_all)
        """Results, each in a tuple, since a result may be None."""
        self._lock = threading.Lock()
        self.__doc__ = make.__doc__

    def __call__(self, text: K) -> R:
        """Give what was made of a document, or make it and keep it while there is room."""
        with self._lock:
            found = self._kept.get(text)
        if found is not None:
            return found[0]
        made = self._make(text)
        with self._lock:
            found = self._kept.get(text)  # another thread may have been faster
            if found is None and len(text) <= self._room:
                self._kept.put(text, (made,), len(text))
        return made if found is None else found[0]


def text_cache(most: int, bytes_in_all: int) -> Callable[[Callable[[K], R]], TextCache[K, R]]:
    """Keep what a function makes of documents: `most` of them, whose texts have `bytes_in_all` in all."""
    return lambda make: TextCache(make, most, bytes_in_all)


STEPS: Planner = StepsPlanner()
"""The planner of all workflows in Python."""


def planner_for(document: bytes | None) -> Planner:
    """The planner of a stored run: from the document that is stored with it; None means steps in Python."""
    return STEPS if document is None else flow_planner(document)


@text_cache(most=64, bytes_in_all=4 << 20)
def flow_planner(text: bytes) -> FlowPlanner:
    """The planner of a flow's runs, from the document that is stored with them."""
    from loom.flows.compiler import program_of
    from loom.flows.planner import FlowPlanner

    return FlowPlanner(program_of(text.decode()))


def program_in(planner: Planner) -> Program | None:
    """The program of a flow's planner; None for workflows in Python."""
    found: Program | None = getattr(planner, "program", None)
    return found
