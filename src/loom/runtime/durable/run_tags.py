"""The tags of a stored run, which may change whatever its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.runtime.durable.names import HANDLER_TAGS, OWN, check_tags
from loom.store.errors import RunNotFound
from loom.store.operations import SetTags

if TYPE_CHECKING:
    from loom.runtime.durable.run_client import RunClient


async def set_tags(client: RunClient, run_id: str, tags: dict[str, str]) -> None:
    """Replace the tags of a run."""
    await client.ready()
    check_tags(tags)
    if (await client.row(run_id)).workflow.startswith(OWN):
        raise ValueError(f"Run {run_id!r} belongs to the engine, which finds it by its tags.")
    if not await client.committer.submit(SetTags(run_id, dict(tags), HANDLER_TAGS)):
        raise RunNotFound(run_id)
    row, active = await client.row(run_id), client.active_run(run_id)
    if active is not None:
        # Callers in this process that wait for the end of the run get the row that its owner has in memory.
        active.row = replace(active.row, tags=row.tags)
