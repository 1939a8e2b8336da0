"""The form of a context dict: its shapes, its versions, and how a bad one is reported.

The shapes are of version 2, with what Loom adds to it. Only shapes are checked here; the strings in them are read
later. Keys that no shape names are ignored. `parse` brings dicts of every version to the shape of version 2.

Version 0, the one without a number, had JSON text in place of lists and sent every event to every queue. Each step
threw away what it does not take. Its stream events and its log of the past are no work, so they are dropped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loom.core.state import specs_of
from loom.steps.errors import ContextSerdeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.core.state import BrokerConfig


def path_of(parts: Iterable[str | int]) -> str:
    """Return the way to a value, as in `workers.ask.queue[0].event`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def malformed(path: str, reason: object) -> ContextSerdeError:
    """Return the error for a dict that does not say what it should."""
    where = f"{path}: " if path else ""
    return ContextSerdeError(f"Context dict specified in an invalid format: {where}{reason}")


def unwritable(path: str, reason: object) -> ContextSerdeError:
    """Return the error for a run that a dict cannot hold."""
    return ContextSerdeError(f"The context cannot be written as a dict: {path}: {reason}")


Count = Annotated[int, Field(ge=0)]


class _Shape(BaseModel):
    model_config = ConfigDict(defer_build=True, strict=False)


class PayloadShape(_Shape):
    """The set that a join was or will be called with."""

    binding_id: str
    stream_id: str
    events: list[str] = []
    output_scope_path: list[str] = []


class WorkShape(_Shape):
    """A piece of work: what queue entries, executions and waiters have in common."""

    event: str
    bound_events: dict[str, str] | None = None
    scope_path: list[str] = []
    collection_release_payload: PayloadShape | None = None
    work_item_id: str | None = None


class TriesShape(_Shape):
    """What has come of a piece of work so far."""

    attempts: Count = 0
    first_attempt_at: float | None = None
    last_exception: dict[str, Any] | None = None
    last_failed_at: float | None = None
    recovery_counts: dict[str, int] = {}


class AttemptShape(WorkShape, TriesShape):
    """A queued piece of work, or one in progress."""

    not_before: float | None = None


class WaiterShape(WorkShape):
    """A wait, pending or answered, with the work that waits."""

    waiter_id: str
    waiting_for_event: str
    has_requirements: bool = False
    requirements: dict[str, Any] | None = None
    """Only in old dicts, and there without the types of its values."""
    resolved_event: str | None = None


class WorkerShape(_Shape):
    """What one step has to do, is doing and has put aside."""

    queue: list[AttemptShape] = []
    in_progress: list[AttemptShape] = []
    collected_events: dict[str, list[str]] = {}
    collect_generations: dict[str, Count] = {}
    static_collect_events: list[str] = []
    collected_waiters: list[WaiterShape] = []

    def size(self) -> int:
        """Return how many pieces of work and events it holds."""
        known = {attempt.work_item_id for attempt in [*self.queue, *self.in_progress]}
        waiting = sum(w.work_item_id is None or w.work_item_id not in known for w in self.collected_waiters)
        collected = sum(map(len, self.collected_events.values())) + len(self.static_collect_events)
        return len(self.queue) + len(self.in_progress) + waiting + collected


class DeliveryShape(_Shape):
    """An event on its way that no step has got yet."""

    event: str
    step_id: str | None = None
    recovery_counts: dict[str, int] = {}
    scope_path: list[str] = []


class StreamShape(_Shape):
    """An open stream. Of the streams inside of it, `open_work_items` counts every join that is still to fire."""

    stream_id: str
    source_step: str
    scope_path: list[str] = []
    open_work_items: int = 0
    accepting_binding_ids: list[str] = []


class ReleaseShape(_Shape):
    """What one join has got of one stream."""

    binding_id: str
    stream_id: str
    buffer: list[str] = []
    released: bool = False


class ItemExtras(_Shape):
    """What else is known of a work item."""

    execution: Count | None = None
    effects: dict[Count, str] = {}
    reserved: dict[str, list[str]] = {}
    waits_on: str = ""
    tries: TriesShape | None = None
    """Of an item that stands among the waiters, which have no place for it."""


class WaiterExtras(_Shape):
    """What else is known of a waiter; they stand in the order of the step's `collected_waiters`."""

    key: str
    number: Count = 0
    requirements: str | None = None
    since: float = 0.0
    deadline: float | None = None


class SleepShape(_Shape):
    """A sleep that is not over."""

    step: str
    item: Count
    key: str
    due: float


class LoomShape(_Shape):
    """What Loom adds to a context dict."""

    format: Count = 1
    seed: int = 0
    sequence: Count = 0
    store_version: Count = 0
    seen: list[str] = []
    kept: dict[str, list[str]] = {}
    """Early events, by type or by the waiter they are meant for."""
    items: dict[Count, ItemExtras] = {}
    waiters: dict[str, list[WaiterExtras]] = {}
    ended_waits: dict[Count, dict[str, bool]] = {}
    """Waits that ended without an event, and whether by their timeout."""
    records: dict[Count, dict[str, str]] = {}
    """Results that bodies have recorded, by work item and name."""
    sleeps: list[SleepShape] = []
    slots: dict[str, dict[str, Count]] = {}
    """How the `static_collect_events` of a step are spread over its parameters."""


class ContextShape(_Shape):
    """A context dict."""

    version: int = 2
    state: dict[str, Any] = {}
    is_running: bool = False
    workers: dict[str, WorkerShape] = {}
    stream_seq: Count = 0
    work_item_seq: Count = 0
    invocation_seq: Count = 0
    deliveries: list[DeliveryShape] = []
    streams: dict[str, StreamShape] = {}
    collection_release_states: dict[str, ReleaseShape] = {}
    elapsed_alive: float = 0.0
    journal_seq: Count = 0
    loom: LoomShape | None = None


ShapeT = TypeVar("ShapeT", bound=BaseModel)

CURRENT_VERSION = 2
LOOM_FORMAT = 1


class Version0(BaseModel):
    """A context dict of the time before versions."""

    model_config = ConfigDict(defer_build=True)

    state: dict[str, Any] = {}
    queues: dict[str, str] = {}
    """By step, and by waiter for those in `waiting_ids`."""
    event_buffers: dict[str, dict[str, list[str]]] = {}
    """By step or buffer id, then by event type."""
    in_progress: dict[str, list[str]] = {}
    is_running: bool = False
    waiting_ids: list[str] = []


def parse(data: Mapping[str, Any], config: BrokerConfig, renames: Mapping[str, str]) -> tuple[ContextShape, bool]:
    """Return a dict as version 2 has it, and whether it comes from version 0; `ContextSerdeError` if it is none."""
    version = data.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise malformed("version", f"{version!r} is not the number of a version.")
    if version > CURRENT_VERSION:
        raise malformed(
            "version",
            f"Cannot load serialized workflow context with version={version}; this library supports up to version "
            f"{CURRENT_VERSION}.",
        )
    if version == 0:
        if data.get("workers"):
            raise malformed("version", "it is missing, although the dict has workers.")
        return _from_version_0(_check(Version0, data), config, renames), True
    shape = _check(ContextShape, _from_version_1(data) if version == 1 else data)
    if shape.loom is not None and shape.loom.format > LOOM_FORMAT:
        raise malformed("loom.format", f"{shape.loom.format} is newer than what can be read here, {LOOM_FORMAT}.")
    return shape, False


def _check(shape: type[ShapeT], data: Any) -> ShapeT:
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise malformed(path_of(first["loc"]), first["msg"]) from error
    except RecursionError as error:
        raise malformed("", "it is nested too deeply.") from error


def _from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """Version 1 had the bare events of what was in progress."""
    workers = data.get("workers")
    if not isinstance(workers, dict):
        return dict(data)
    return {**data, "workers": {step: _worker_of_version_1(worker) for step, worker in workers.items()}}


def _worker_of_version_1(worker: Any) -> Any:
    if not isinstance(worker, dict) or not isinstance(worker.get("in_progress"), list):
        return worker
    attempts = [{"event": entry} if isinstance(entry, str) else entry for entry in worker["in_progress"]]
    return {**worker, "in_progress": attempts}


def _from_version_0(old: Version0, config: BrokerConfig, renames: Mapping[str, str]) -> ContextShape:
    waiting = set(old.waiting_ids)
    workers: dict[str, WorkerShape] = {}
    kept: list[str] = []
    for name, texts in old.in_progress.items():
        workers.setdefault(name, WorkerShape()).in_progress = [AttemptShape(event=text) for text in texts]
    for name, text in old.queues.items():
        events = _list_of_texts(f"queues.{name}", text)
        if name in waiting:
            # Nothing waits for these until the step has run again; till then they are early events.
            kept += events
        else:
            workers.setdefault(name, WorkerShape()).queue = [AttemptShape(event=event) for event in events]
    for name, by_type in old.event_buffers.items():
        step, buffer = _owner_of_buffer(name, list(by_type), config, renames)
        collected = [event for events in by_type.values() for event in events]
        if collected:
            workers.setdefault(step, WorkerShape()).collected_events[buffer] = collected
    return ContextShape(
        state=old.state, is_running=old.is_running, workers=workers, loom=LoomShape(kept={"": kept}) if kept else None
    )


def _list_of_texts(path: str, text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise malformed(path, f"a list as JSON text is wanted: {error}") from error
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise malformed(path, "a list of events as JSON text is wanted.")
    return found


def _owner_of_buffer(name: str, types: list[str], config: BrokerConfig, renames: Mapping[str, str]) -> tuple[str, str]:
    """The step and the buffer that a name means: of a step, or of a buffer whose events only one step takes."""
    if renames.get(name, name) in specs_of(config):
        return name, "default"
    owners = [spec.name for spec in config.steps if all(accepted in spec.accepts for accepted in types)]
    if types and len(owners) == 1:
        # Without an id of its own a buffer was named after its types.
        return owners[0], "default" if all(accepted in name for accepted in types) else name
    return name, "default"
