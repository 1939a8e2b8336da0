"""The shape of a context dict, version 2, and of what Loom adds to it. May import pydantic.

Only shapes are checked here; the strings in them are read later. Keys that no shape names are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

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
        """How many pieces of work and events it holds."""
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
