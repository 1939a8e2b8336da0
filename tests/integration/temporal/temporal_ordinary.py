"""An ordinary Temporal workflow with its activity, as somebody may have them on a worker already."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


@workflow.defn
class Ordinary:
    """Knows nothing of Loom, and runs in the sandbox."""

    @workflow.run
    async def run(self, number: int) -> int:
        """Ask the activity."""
        return await workflow.execute_activity(double, number, start_to_close_timeout=timedelta(seconds=10))
