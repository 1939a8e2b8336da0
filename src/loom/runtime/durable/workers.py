"""The processes that work on the runs of a store, as callers see them."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import loom
from loom.api.times import maybe_moment
from loom.api.workers import Worker
from loom.runtime.durable.names import OWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.store.records import MemberState


def rendered_worker(member: MemberState, own: tuple[int | None, str] | None, known: dict[str, Any]) -> Worker:
    """Render a member of a store. `own` is the fence and the name of this process, and `known` what it adds."""
    is_this = own is not None and own == (member.fence, member.name)
    return Worker(
        name=member.name,
        alive=member.alive,
        seen=maybe_moment(member.seen),
        until=maybe_moment(member.until),
        owned=member.owned,
        is_this=is_this,
        **(known if is_this else {}),
    )


def own_fields(since: float | None, names: Iterable[str], in_memory: int) -> dict[str, Any]:
    """Return what a process knows of itself, as fields of a `Worker`."""
    return {
        "since": maybe_moment(since),
        "workflows": sorted(name for name in names if not name.startswith(OWN)),
        "runs_in_memory": in_memory,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": loom.__version__,
    }
