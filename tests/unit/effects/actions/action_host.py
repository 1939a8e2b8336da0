"""A small run for the bodies of actions: it answers waits as a kernel would, and can be left and taken up again."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgspec.structs import replace

from loom.core.body_effects import child_key, once_key, sleep_key, wait_key
from loom.core.commands import CommandResumeWorker, CommandRunWorker
from loom.core.persistent import Map
from loom.core.records import EventRecord
from loom.core.state import ChildEnd, WorkItem
from loom.core.ticks import (
    TickAwaitEvent,
    TickEditStore,
    TickParkRun,
    TickPublishEvent,
    TickRecordResult,
    TickSleep,
    TickStartChild,
    TickStepResult,
)
from loom.effects.actions.binding import ActionBinding
from loom.effects.actions.handlers import ActionHandlers
from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy
from loom.effects.event_codec import LIVE_CODEC, record_of
from loom.effects.execution import StepExecution
from loom.flows.calls import CALL_KIND, OUTCOME_KIND, ActionCall, ActionOutcome
from loom.steps.events import Event
from loom.steps.ports import current_execution
from loom.steps.state_store import DictState, InMemoryStateStore, StoreEdit


class Crash(BaseException):
    """The process is gone."""


class ActionHost:
    """One run with one work item per call of `run`; `resume` runs the last one again, as after a crash."""

    codec = LIVE_CODEC
    loop_ends = False
    workflow_name = "flow"

    def __init__(self, services: Services | None = None, at: float = 1_000.0) -> None:
        self.run_id = "run-1"
        self.at = at
        self.handlers = ActionHandlers()
        self.services = services or Services(self.handlers, HttpPolicy.allowing("127.0.0.1"))
        self.inbox: deque[Event] = deque()
        self.sleeps: list[float] = []
        self.waits: list[TickAwaitEvent] = []
        self.published: list[Event] = []
        self.children: list[TickStartChild] = []
        self.child_result: Any = None
        self.child_end: ChildEnd | None = None
        self.parked: str | None = None
        self.edits = 0
        self.crash_after: int | None = None
        """The process ends when the body has had so many effects."""
        self.store: InMemoryStateStore[Any] = InMemoryStateStore(state_type=DictState)
        self.store.on_edit = self._edited
        self._items = 0
        self._effects: dict[int, str] = {}
        self._writes = 0
        self._answers: dict[str, dict[str, Any]] = {}
        self._records: dict[str, Any] = {}
        self._outcome: TickStepResult | None = None
        self._execution: StepExecution | None = None
        self._call: ActionCall | None = None

    def now(self) -> float:
        return self.at

    def admission(self) -> None:
        return None

    def lease(self) -> None:
        """Nobody else has the run."""

    async def run(self, call: ActionCall) -> ActionOutcome:
        """Do an action as a new piece of work."""
        self._items += 1
        self._effects, self._answers, self._records = {}, {}, {}
        self._writes = 0
        self._call = call
        return await self.resume()

    async def resume(self) -> ActionOutcome:
        """Run the body of the current piece of work, with all that was committed of it."""
        assert self._call is not None
        item = WorkItem(self._items, self._call.action, EventRecord(CALL_KIND, self._call), effects=Map(self._effects))
        command = CommandRunWorker(1, item.step, item, 0, 1, self.at, records=Map(self._records))
        self._outcome = None
        self._execution = StepExecution(self, ActionBinding(item.step, self.services), command)  # type: ignore[arg-type]
        self._execution.abandoned = True
        self._execution.task = asyncio.ensure_future(self._execution.work())
        try:
            await self._execution.task
        except asyncio.CancelledError:
            raise Crash from None
        assert self._outcome is not None, self.parked
        assert self._outcome.failure is None, self._outcome.failure
        (record,) = self._outcome.returned
        assert record.kind is OUTCOME_KIND
        return record.body  # type: ignore[no-any-return]

    def executed(self, execution: StepExecution, result: TickStepResult) -> None:
        self._outcome = result

    def start_of(self, workflow: Any, inputs: dict[str, Any], start_event: Any) -> tuple[str, Any]:
        return workflow, (inputs, start_event)

    max_unsaved = None

    def tell(self) -> None:
        """See `Host`."""

    def break_off(self, error: Exception) -> None:
        raise error

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        pass

    def report(self, tick: Any) -> None:
        match tick:
            case TickSleep():
                key = sleep_key(tick.occurrence)
                if not self._had(tick, key):
                    self.sleeps.append(tick.delay_s)
                    self.at += tick.delay_s
                self._answer(key)
            case TickRecordResult():
                self._had(tick, once_key(tick.name))
                self._records.setdefault(tick.name, tick.value)
                self._answer(once_key(tick.name), value=self._records[tick.name])
            case TickAwaitEvent():
                self._wait(tick)
            case TickStartChild():
                self._had(tick, child_key(tick.occurrence))
                self.children.append(tick)
                event = record_of(self.child_result) if isinstance(self.child_result, Event) else None
                self._answer(child_key(tick.occurrence), event=event, child=self.child_end)
            case TickPublishEvent():
                if not self._had(tick, "publish"):
                    self.published.append(tick.event.body)
            case TickEditStore():
                self.edits += 1
            case TickParkRun():
                self.parked = tick.reason
            case _:
                raise AssertionError(tick)

    def _wait(self, tick: TickAwaitEvent) -> None:
        key = wait_key(tick.waiter_id, tick.occurrence)
        if not self._had(tick, key):
            self.waits.append(tick)
            if tick.waiter_event is not None and tick.asks != "again":
                self.published.append(tick.waiter_event.body)
            if self.inbox:
                self._answers[key] = {"event": record_of(self.inbox.popleft())}
            elif tick.timeout_s is not None:
                self.at += tick.timeout_s
                self._answers[key] = {"timed_out": True}
        if key in self._answers:
            self._answer(key, **self._answers[key])

    def _had(self, tick: Any, what: str) -> bool:
        """Note an effect; whether it was known already."""
        if isinstance(tick, TickPublishEvent):
            known = tick.writes < self._writes
            self._writes = max(self._writes, tick.writes + 1)
        else:
            known = tick.source.ordinal in self._effects
            assert self._effects.setdefault(tick.source.ordinal, what) == what, "a repeated effect is of another kind"
        if not known and self.crash_after is not None and len(self._effects) + self._writes >= self.crash_after:
            self.crash_after = None
            assert self._execution is not None
            assert self._execution.task is not None
            self._execution.task.cancel()
        return known

    def _answer(self, key: str, **answer: Any) -> None:
        execution = self._execution
        assert execution is not None
        command = CommandResumeWorker(1, execution.command.step, key)
        asyncio.get_running_loop().call_soon(execution.answer, replace(command, **answer))

    def _edited(self, edit: StoreEdit) -> bool:
        execution = current_execution()
        assert isinstance(execution, StepExecution)
        source = execution.next_source()
        if execution.is_repeated(source):
            return False
        tick = TickEditStore(at=self.at, base_version=edit.base_version, changed=edit.changed, source=source)
        self._had(tick, "edit")
        self.report(tick)
        return True


def call_of(kind: str, inputs: Any = None, **more: Any) -> ActionCall:
    """A call of an action named `A`."""
    return ActionCall("A", kind, inputs, key="run-1:A:0", first_at=1_000.0, **more)
