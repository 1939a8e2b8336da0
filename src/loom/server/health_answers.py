"""What the health port answers: whether the process lives, whether it takes work, and the watchdog's metrics.

It is open to every caller that reaches it, so it tells no names. All of it is known without the event loop, which may
stand still. Nothing here needs the extra `server`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom.runtime.watchdog import Answer, HealthPort
from loom.server.exposition import CONTENT_TYPE, Exposition, process_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.worker import WorkerRuntime

_STALLED = re.compile(r"stalled=([0-9]{1,9})")


def opened_port(runtime: WorkerRuntime, host: str, port: int, is_draining: Callable[[], bool]) -> HealthPort:
    """A port that answers for a process; `OSError` if it cannot be had."""

    def answer(path: str, query: str) -> Answer | None:
        if path == "/live":
            return _live(runtime, query)
        if path == "/ready":
            return _ready(["draining"] if is_draining() else [], runtime)
        if path == "/metrics":
            page = Exposition()
            process_metrics(page, runtime)
            return Answer(200, page.text().encode(), CONTENT_TYPE)
        return None

    return HealthPort(host, port, answer)


def _live(runtime: WorkerRuntime, query: str) -> Answer:
    """The process lives; with `?stalled=60` it is taken for dead once its event loop has stood for 60 s."""
    found = _STALLED.fullmatch(query)
    if query and found is None:
        return Answer.json(400, {"detail": "Use /live, or /live?stalled=SECONDS."})
    watch = runtime.watch
    standing = watch.standing_s if watch is not None else 0.0
    is_dead = found is not None and watch is not None and watch.is_stalled and standing >= int(found[1])
    content = {
        "status": "stalled" if watch is not None and watch.is_stalled else "live",
        "watched": watch is not None,
        "standing_seconds": round(standing, 3),
        "stalls": watch.stalls if watch is not None else 0,
        "stalled_seconds": round(watch.stalled_s, 3) if watch is not None else 0.0,
        "memory_bytes": runtime.memory.used(),
    }
    return Answer.json(503 if is_dead else 200, content)


def _ready(reasons: list[str], runtime: WorkerRuntime) -> Answer:
    reasons = [*reasons, *runtime.hindrances()]
    return Answer.json(
        503 if reasons else 200, {"status": "unready" if reasons else "ready", "reasons": reasons, "role": runtime.role}
    )
