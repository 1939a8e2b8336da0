"""Golden histories of Temporal as files, and their replay without a server.

A file has the executions of one case. Beside the history of each stands what its run had come to when it was recorded:
its row, and the digests of its state and its stream.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from golden_history import digest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails

from loom.runtime.durable.registration import Registration
from loom.store.records import RunRow
from loom.temporal.workflow.instance import LoomInstance
from loom.temporal.workflow.runner import LoomHost, LoomRunner

GOLDEN = Path(__file__).parent / "temporal"


class Ended(msgspec.Struct, frozen=True):
    """What a run had come to at the end of an execution."""

    row: RunRow
    state: str
    stream: str


class Execution(msgspec.Struct, frozen=True):
    """One execution of a run: its history as Temporal's tools export it, and what it led to."""

    run_id: str
    execution: str
    workflow: str
    history: msgspec.Raw
    ended: Ended


def folder(row: int) -> Path:
    """Where the histories are that were made with a row of the policy table."""
    return GOLDEN / str(row)


def write(path: Path, executions: Iterable[Execution]) -> None:
    """Store the executions of a case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.encode(list(executions))
    path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def read(path: Path) -> list[Execution]:
    """The executions of a case."""
    return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=list[Execution])


def files() -> list[Path]:
    """All cases, of all rows."""
    return sorted(GOLDEN.glob("*/*.json.xz"))


def thinned(history: WorkflowHistory) -> msgspec.Raw:
    """A history as Temporal's tools export it, without what is different in every event and what no replay reads."""
    for event in history.events:
        kind = event.WhichOneof("attributes")
        attributes = getattr(event, kind or "")
        event.ClearField("task_id")
        for name in ("identity", "request_id"):
            if name in attributes.DESCRIPTOR.fields_by_name:
                attributes.ClearField(name)
        if kind is not None and kind.startswith("activity_task"):
            event.ClearField("event_time")
    return msgspec.Raw(json.dumps(history.to_json_dict(), separators=(",", ":")).encode())


class KeepingRunner(LoomRunner):
    """Keeps the instances that it makes, so that one can look into them afterwards."""

    def __init__(self, codes: Mapping[str, Registration], **options: Any) -> None:
        super().__init__(codes, **options)
        self.kept: dict[str, LoomInstance] = {}

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        if isinstance(instance, LoomInstance):
            self.kept[det.info.run_id] = instance
        return instance


def ended(instance: LoomInstance) -> Ended:
    """What the run of an instance has come to."""
    host = instance.driver.host
    assert host is not None
    stream = [chunk.data.decode() for chunk in host.journal.chunks(lambda _tick, _cursor: False)]
    return Ended(host.row(), digest(host.core.state), digest(stream))


async def replayed(execution: Execution, runner: KeepingRunner) -> Ended:
    """Replay a history from its beginning; an error of the SDK's if it leads elsewhere."""
    history = WorkflowHistory.from_json(execution.run_id, bytes(execution.history).decode())
    replayer = Replayer(workflows=[LoomHost], unsandboxed_workflow_runner=runner)
    await replayer.replay_workflow(history)
    return ended(runner.kept[execution.execution])
