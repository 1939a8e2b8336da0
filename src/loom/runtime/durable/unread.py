"""The end of runs that cannot be read: nothing can be reduced on them, but they can be cancelled as they are.

Without that a run with a damaged journal, or with a payload that is gone, could be neither stopped nor deleted. See ADR
0083.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.ticks import TickChildEnded
from loom.runtime.durable.recovery import is_cancel, read_message
from loom.runtime.logs import about
from loom.store import codec
from loom.store.errors import CorruptRecord
from loom.store.operations import CommitRun, PostMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.runtime.durable.adapter import Keeper
    from loom.runtime.durable.registration import Registration
    from loom.store.hash_chain import Links
    from loom.store.ports import OwnedStore
    from loom.store.records import InboxMessage, RunRow

_log = logging.getLogger("loom.durable")


async def end_unread(
    run_id: str, reason: CorruptRecord, keeper: Keeper, store: OwnedStore, code: Registration, now: float
) -> bool:
    """End a run that this process owns and cannot read, if it was asked to stop; with a clean-up step, by force.

    False if it was not. A run whose row or whole mail cannot be read is not ended either.
    """
    try:
        row = await store.get(run_id)
        if row is None or row.owner != keeper.fence or not asks_to_end(run_id, await store.inbox(run_id, 0), code):
            return False
    except CorruptRecord:
        return False
    if not await keeper.submit(_end_of(row, str(reason), keeper.links, keeper.fence, now, keeper.downtime)):
        return False
    _log.warning("Run %s is cancelled as it is: %s", run_id, reason, extra=about(run_id))
    keeper.metrics.of_workflow(row.workflow).count("cancelled")
    keeper.committed(run_id)
    return True


def asks_to_end(run_id: str, messages: Iterable[InboxMessage], code: Registration | None) -> bool:
    """Say whether one of the messages asks a run to end without a clean-up. Those that cannot be read do not."""
    for message in messages:
        with suppress(CorruptRecord):
            if is_cancel(read_message(run_id, message, 0.0), code):
                return True
    return False


def _end_of(row: RunRow, reason: str, links: Links, fence: int, now: float, downtime: float) -> CommitRun:
    """Make the commit that ends a run as it is: its journal and its stream stay as they are, and its parent is told."""
    head = replace(
        row.head,
        status="cancelled",
        updated_at=now,
        idle_since=None,
        needs_worker=False,
        waiters=b"[]",
        waiting_for=(),
        kept=0,
        paused=False,
        parked=None,
        error=f"It was cancelled as it is. {reason}",
        downtime=downtime,
    )
    head = replace(head, mac=links.head_mac(row.run_id, row.workflow, row.document, head))
    sent: tuple[PostMessage, ...] = ()
    if row.parent is not None:
        ended = TickChildEnded(at=now, child=row.parent_ref, status="cancelled")
        sent = (PostMessage(row.parent, codec.encode_tick(ended), now),)
    return CommitRun(row.run_id, fence, head, sent=sent)
