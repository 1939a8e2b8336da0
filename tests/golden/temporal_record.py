"""Records the golden histories of Temporal: `python tests/golden/temporal_record.py 0`, the row of the policy table.

Each case happens on a real server. The histories of a row that was released are never recorded again: later versions
must replay them as they are. `--again` records those of a row that is still being made, `--case` only one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import temporal_history
from temporal_cases import CASES, SETTINGS, Stage
from temporal_history import Execution
from temporal_server import own_server
from temporalio.client import Client, WorkflowExecution
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from loom.temporal.names import ENTRIES
from loom.temporal.workflow.instance import LoomInstance
from loom.temporal.workflow.policy import POLICIES
from loom.temporal.workflow.runner import LoomRunner

_PATIENCE_S = 120.0


def _keep_instances() -> dict[str, LoomInstance]:
    """Have all workers of this process keep their instances: what live runs came to is recorded, and no replay."""
    kept: dict[str, LoomInstance] = {}
    make = LoomRunner.create_instance

    def make_and_keep(runner: LoomRunner, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = make(runner, det)
        if isinstance(instance, LoomInstance):
            kept[det.info.run_id] = instance
        return instance

    LoomRunner.create_instance = make_and_keep  # type: ignore[method-assign]
    return kept


async def record(name: str, path: Path, kept: dict[str, LoomInstance]) -> None:
    """Let a case happen, and write the executions that it left."""
    with own_server(settings=SETTINGS.get(name)) as server:
        namespace = server.fresh_namespace(attributes=False)
        stage = Stage(f"temporal://{server.target}/{namespace}?task_queue=golden")
        async with asyncio.timeout(_PATIENCE_S):
            await CASES[name](stage, name)
            client = await Client.connect(server.target, namespace=namespace)
            found = [each async for each in client.list_workflows() if each.workflow_type != ENTRIES]
            found.sort(key=lambda each: (each.id, each.start_time))
            written = [await _execution(client, each, kept) for each in found]
    temporal_history.write(path, written)


async def _execution(client: Client, found: WorkflowExecution, kept: dict[str, LoomInstance]) -> Execution:
    history = await client.get_workflow_handle(found.id, run_id=found.run_id).fetch_history()
    ended = temporal_history.ended(kept[found.run_id])
    return Execution(found.id, found.run_id, found.workflow_type, temporal_history.thinned(history), ended)


def main() -> None:
    """Record every case."""
    parser = argparse.ArgumentParser(description="Record the golden histories of a row of the policy table.")
    parser.add_argument("row", type=int, help="the row of the table, which must be its newest")
    parser.add_argument("--again", action="store_true", help="the row is not released: record it again")
    parser.add_argument("--case", choices=sorted(CASES), help="only this one")
    arguments = parser.parse_args()
    if arguments.row != len(POLICIES) - 1:
        parser.error(f"New runs are made with row {len(POLICIES) - 1}.")
    kept = _keep_instances()
    for name in [arguments.case] if arguments.case else CASES:
        path = temporal_history.folder(arguments.row) / f"{name}.json.xz"
        if path.exists() and not arguments.again:
            parser.error(f"{path} is there already.")
        asyncio.run(record(name, path, kept))
        sys.stdout.write(f"{name}: {len(temporal_history.read(path))} executions, {path.stat().st_size:,} bytes\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # a process that used temporalio may die of its threads at exit
