"""The state of a run: immutable, shared structurally between its versions, plain data but for opaque event bodies.

- **The config** is a workflow's code as the engine sees it: its steps and what they take. It enters a run with the
  first tick, so that a replay routes as the live run did.
- **The state** is what the ticks so far have made of the run. `BrokerState` holds all of it.

What a run has many of is stored as arrays: a new field goes to the end and has a default.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from loom.core.body_effects import WAIT, CollectBuffer, StreamWrites
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo, Map
from loom.core.records import EventRecord, Failure, Opaque, Refusal, Traceback, WaiterReport
from loom.core.waiter_index import oldest

# The config: which steps a run has and what they take.


class StepSpec(msgspec.Struct, frozen=True, array_like=True):
    """One kind of work of a run and how much of it may run at a time."""

    name: str
    accepts: tuple[str, ...] = ()
    """Wire names of the event types that reach it."""
    inputs: tuple[str, ...] = ()
    """The accepted types that come from outside the run, such as a person's answer."""
    num_workers: int = 4
    """Executions at the same time; 0 means no limit."""
    accept_subclasses: bool = False
    slots: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """A multi-slot join: parameter name and the types that fill it."""
    collects: bool = False
    """A `list[E]` join: it gets the members of a stream at once."""
    take: int | None = None
    """For a join: fire at this many members instead of at the end of the stream."""
    joins: tuple[str, ...] = ()
    """For a step that returns lists: the joins that its streams end in."""
    recovered_by: str | None = None
    """The recovery step that gets this step's final failures."""
    max_recoveries: int = 0
    """For a recovery step: how often it may run along one lineage of events."""


class CleanupSpec(msgspec.Struct, frozen=True, array_like=True):
    """The step that runs when a run is cancelled, and how many seconds it has for all of its attempts."""

    step: str
    timeout_s: float


class StepLimits(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What bounds and ends a run of steps: the program of its config. A run without has none, as all older runs."""

    max_depth: int | None = None
    """The longest chain of executions that each was caused by the one before; None: no limit."""
    cleanup: CleanupSpec | None = None
    """What a cancelled run does before it ends; None: it ends at once."""


class BrokerConfig(msgspec.Struct, frozen=True, array_like=True):
    """Everything about a workflow's code that the reducer may look at."""

    workflow: str
    steps: tuple[StepSpec, ...] = ()
    timeout_s: float | None = None
    keep_unclaimed: int = 1000
    """How many early events a run keeps for waiters that are still to come."""
    program: Opaque = None
    """What another planner needs besides the steps, or the `StepLimits` of a run of steps.

    A field of its own would change the bytes of every start that is stored already.
    """

    @property
    def max_depth(self) -> int | None:
        """Return the longest chain of executions that each was caused by the one before; None: no limit."""
        return self.program.max_depth if type(self.program) is StepLimits else None

    @property
    def cleanup(self) -> CleanupSpec | None:
        """Return what a cancelled run does before it ends; None: it ends at once."""
        return self.program.cleanup if type(self.program) is StepLimits else None

    def limited(self, max_depth: int | None) -> BrokerConfig:
        """Return the config of steps with another limit of their depth; None: without one."""
        if max_depth is None and self.cleanup is None:
            return replace(self, program=None)
        return replace(self, program=StepLimits(max_depth, self.cleanup))


_specs: dict[int, tuple[BrokerConfig, dict[str, StepSpec]]] = {}
_CACHED_CONFIGS = 256


def specs_of(config: BrokerConfig) -> dict[str, StepSpec]:
    """Return the steps of a config by name.

    Remembered per config object: configs are immutable, so this is a cache of a pure function.
    """
    entry = _specs.get(id(config))
    if entry is None or entry[0] is not config:
        if len(_specs) >= _CACHED_CONFIGS:
            _specs.clear()
        entry = _specs[id(config)] = (config, {spec.name: spec for spec in config.steps})
    return entry[1]


def config_for(code: BrokerConfig, config: BrokerConfig, *, keeps_timeout: bool) -> BrokerConfig:
    """Return the config of a run that had `config` so far and goes on with this code.

    With `keeps_timeout` the author asked for no timeout: the run keeps the one that it has, or none. The limit of its
    depth can be raised or dropped. It is never lowered, and a run that began without one gets none.
    """
    depth, now = config.max_depth, code.max_depth
    if depth != now:
        code = code.limited(None if depth is None or now is None else max(depth, now))
    return replace(code, timeout_s=config.timeout_s) if keeps_timeout else code


def raised(config: BrokerConfig, max_depth: int | None) -> BrokerConfig:
    """Return a config with a higher limit of the depth; the same if it has none, or one that is as high."""
    if max_depth is None or config.max_depth is None or max_depth <= config.max_depth:
        return config
    return config.limited(max_depth)


def num_workers(config: BrokerConfig, step: str) -> int:
    """Return how many executions of a step may run at a time. 0 means no limit; so do steps that the config lacks."""
    spec = specs_of(config).get(step)
    return spec.num_workers if spec is not None else 0


# The state.

_PUBLISH = "publish"
"""The kind by which earlier versions noted a stream write among the effects."""


class WorkItem(msgspec.Struct, frozen=True, array_like=True):
    """A piece of work for one step. It keeps its identity through retries, waits, crashes and releases."""

    id: int
    step: str
    event: EventRecord
    extra: Opaque = None
    """What the planner attached to it; the kernel never looks inside."""
    attempts: int = 0
    """Failures so far."""
    first_at: float | None = None
    """When its first attempt was dispatched."""
    last_failure: Failure | None = None
    last_failed_at: float | None = None
    reserved: Map[str, tuple[EventRecord, ...]] = EMPTY_MAP
    """Sets that a failed attempt had already collected, by buffer: the next attempt gets them again."""
    execution: int | None = None
    """The attempt under way, if a crash or release interrupted it."""
    effects: Map[int, str] = EMPTY_MAP
    """What that attempt has already done to the run, by ordinal."""
    max_attempts: int | None = None
    """How many attempts its policy allows; 0 if the policy did not say, None if no failure has told."""
    began_at: float | None = None
    """When the attempt under way was dispatched, if it is not the first; for the first see `first_at`."""
    writes: StreamWrites | None = None
    """What that attempt has written to the stream; None if its writes count among its effects."""

    @property
    def attempt_since(self) -> float | None:
        """Tell when the attempt under way was dispatched; None if that was not recorded."""
        return self.began_at if self.began_at is not None or self.attempts else self.first_at

    @property
    def has_writes_among_effects(self) -> bool:
        """Tell whether the stream writes of the interrupted attempt count among its effects, as in earlier versions.

        Its body goes on with those numbers. What it wrote is not known, and only the numbers tell where a write ends
        and another effect begins.
        """
        return self.writes is None and any(kind == _PUBLISH for kind in self.effects.values())


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at a work item that has been dispatched."""

    seq: int
    id: int
    item: WorkItem
    worker_id: int
    effects: Map[int, str] = EMPTY_MAP
    live: bool = True
    """Whether a process holds its body; False after a recovery or once the body has left, until the next dispatch."""
    waits_on: str = ""
    """The key of the wait that its body itself is suspended in; `*` if any of its waits will bring it back."""
    writes: StreamWrites | None = None
    """What it has written to the stream; None if its writes count among its effects, as in earlier versions."""

    def interrupted(self) -> WorkItem:
        """Return the work item of an execution whose body will run again: it knows what the execution has done."""
        return replace(self.item, execution=self.id, effects=self.effects, writes=self.writes)


class StepWorkerWaiter(msgspec.Struct, frozen=True, array_like=True):
    """A wait for an event: which call of which work item waits, for what, and until when."""

    number: int
    step: str
    item: int
    key: str
    """Waiter id and occurrence: the name of this wait within its work item."""
    waiter_id: str
    event_type: str
    requirements: tuple[tuple[str, Any], ...] = ()
    since: float = 0.0
    deadline: float | None = None
    timer: int | None = None
    refused: Refusal | None = None
    """The answer that was refused last."""


class ChildEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a child run ended. If it completed, its result is the event of the answer."""

    run_id: str
    status: Literal["completed", "failed", "cancelled", "timed_out"]
    failure: Failure | None = None


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a wait was answered with."""

    event: EventRecord | None = None
    timed_out: bool = False
    value: Any = None
    """A recorded result."""
    child: ChildEnd | None = None


class InternalStepWorkerState(msgspec.Struct, frozen=True):
    """What one step has to do, is doing and has put aside."""

    num_workers: int = 0
    """How many executions may hold a worker at a time; 0 means no limit."""
    queue: Fifo[WorkItem] = EMPTY_FIFO
    in_progress: Map[int, Execution] = EMPTY_MAP
    """Executions that hold a worker, by item."""
    busy: int = 0
    """The worker ids in use, as bits."""
    suspended: Map[int, Execution] = EMPTY_MAP
    """Executions that wait and hold no worker, by item."""
    ready: Fifo[int] = EMPTY_FIFO
    """Items of suspended executions that may go on as soon as a worker is free."""
    delayed: Map[int, WorkItem] = EMPTY_MAP
    """Items whose next attempt must wait, by the number of their timer."""
    collected_events: Map[str, CollectBuffer] = EMPTY_MAP
    collected_waiters: Map[int, StepWorkerWaiter] = EMPTY_MAP

    def execution(self, item: int) -> Execution | None:
        """Return the execution of a work item that is under way, holding a worker or suspended; None if none is."""
        return self.in_progress.get(item) or self.suspended.get(item)


EMPTY_WORKER = InternalStepWorkerState()
MAX_REPORTED = 100
"""A run with more waits shows the oldest of them, in its row and on its stream."""
QUESTION = 0
"""The key in `Waiting.asked` of a question that steps take the answer to, not a waiter. No waiter has this number."""
CHILD_RUN = "child run"
"""What a run is said to wait for while it waits for another run."""


class Timer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A timer that is armed: when it is due and what for."""

    due: float
    purpose: Literal["retry", "waiter", "sleep", "timeout", "plan"]
    step: str = ""
    ref: int = 0
    """The waiter's number, the sleeping item, or the planner's own mark."""
    key: str = ""


MOVING = frozenset({"retry", "sleep", "plan"})
"""The purposes of timers that bring work back, so that a run with one of them is asleep rather than idle."""


def is_skippable(timer: Timer, at: float) -> bool:
    """Tell whether a caller may end a timer at this time: it delays work, and is not due anyway. No timeout does."""
    return timer.purpose in MOVING and timer.due > at


def skippable(timers: Map[int, Timer], at: float, only: int | None = None) -> list[int]:
    """List the timers that a caller may end at this time, as they would be due; or this one, if it is among them."""
    numbers = timers if only is None else [only] if only in timers else ()
    found = [(timers[number].due, number) for number in numbers if is_skippable(timers[number], at)]
    return [number for _, number in sorted(found)]


class Waiting(msgspec.Struct, frozen=True):
    """The open waits of a run, the answers that were given, and the early events that are kept."""

    index: Map[str, Map[int, str]] = EMPTY_MAP
    """Event type to the waiters' numbers and steps."""
    open: Map[int, Map[str, int]] = EMPTY_MAP
    """The pending waiters' numbers by work item and key."""
    answers: Map[int, Map[str, Answer]] = EMPTY_MAP
    """By work item, then by the wait's key."""
    kept: Map[str, Fifo[EventRecord]] = EMPTY_MAP
    kept_count: int = 0
    doubted: Map[int, Map[str, StepWorkerWaiter]] = EMPTY_MAP
    """Waiters that were answered with unchecked events, by work item and key. If the body cannot read such an event,
    its waiter is back."""
    asked: Map[int, EventRecord] = EMPTY_MAP
    """The events that were published with open waits, by the waiters' numbers. Under `QUESTION` is the last question of
    a step, until a step takes an event from outside. People who answer are shown them; no decision depends on them."""


class Child(msgspec.Struct, frozen=True, array_like=True):
    """A run that this one has started and waits for: which call of which work item asked for it."""

    run_id: str
    workflow: str
    step: str
    item: int
    key: str
    since: float


class Abandoned(msgspec.Struct, frozen=True):
    """What a run had in hand when it failed, with the failed work back at the head of its queue. See `TickRetryRun`."""

    workers: Map[str, InternalStepWorkerState]
    plan: Opaque
    waiting: Waiting
    timers: Map[int, Timer]
    active: int
    asleep: int

    def answers_of(self, item: int) -> dict[str, EventRecord]:
        """Return the events that answered the waits of a work item, by the keys of the waits."""
        answers: Map[str, Answer] = self.waiting.answers.get(item, EMPTY_MAP)
        found = ((key, answer.event) for key, answer in sorted(answers.items()) if key.startswith(WAIT))
        return {key: event for key, event in found if event is not None}


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended."""

    status: Literal["completed", "failed", "cancelled", "timed_out", "parked"]
    event: EventRecord | None = None
    step: str = ""
    failure: Failure | None = None
    message: str = ""
    abandoned: Abandoned | None = None
    """What a failed run can go on from; nothing else looks at it."""

    @property
    def run_status(self) -> Literal["running", "completed", "failed", "cancelled"]:
        """Return the status of the run: a parked one is still running, one that timed out has failed."""
        if self.status == "parked":
            return "running"
        return "failed" if self.status == "timed_out" else self.status


class Cleanup(msgspec.Struct, frozen=True):
    """The clean-up that a cancelled run is at: its step and its work item."""

    step: str
    item: int


class RunFields(msgspec.Struct):
    """What a run consists of: the fields that a finished state and a draft of the next one share."""

    run_id: str = ""
    is_running: bool = False
    config: BrokerConfig = BrokerConfig("")
    workers: Map[str, InternalStepWorkerState] = EMPTY_MAP
    plan: Opaque = None
    """The planner's part of the state."""
    at: float = 0.0
    """The time of the last tick; it never goes back."""
    seed: int = 0
    sequence: int = 0
    """The number of the last outward command, timer or waiter."""
    items: int = 0
    """The number of the last work item."""
    published: int = 0
    """How many events the stream has."""
    active: int = 0
    """Pieces of work that are queued, executing, or ready to go on."""
    asleep: int = 0
    """Pieces of work that a timer will bring back: delayed retries and sleeps."""
    timers: Map[int, Timer] = EMPTY_MAP
    waiting: Waiting = Waiting()
    store: Map[str, Any] = EMPTY_MAP
    store_version: int = 0
    seen: Map[str, int] = EMPTY_MAP
    """Ids of events that were given one, with their order of arrival."""
    deadline: float | None = None
    timeout_timer: int | None = None
    alive_since: float = 0.0
    """When the run would have begun, had it always been alive."""
    idle_since: float | None = None
    dropped: int = 0
    """Stale and unknown results and effects that were refused."""
    outcome: Outcome | None = None
    ticks: int = 0
    """How many input ticks have made this state: where it stands in the run's journal."""
    paused: bool = False
    """Everything is taken in, but nothing is started."""
    children: Map[int, Child] = EMPTY_MAP
    """The child runs that are under way, by the number of the command that started them."""
    store_type: str = ""
    """The wire name of the type that the store is read as."""
    due: Fifo[int] = EMPTY_FIFO
    """Marks of the planner's timers that fired while the run was paused."""
    last_traceback: Traceback | None = None
    """Where the newest failed attempt failed, until that work succeeds. Items keep none: a state stays small."""
    refused: Map[str, Refusal] = EMPTY_MAP
    """By step: the last event that it was refused as its input, until it has worked on another one."""
    cleanup: Cleanup | None = None
    """Set from the cancel of a run with a clean-up step on. The run ends, cancelled, with that step."""


def is_blocked(run: RunFields) -> bool:
    """Return whether nothing of a run executes and nothing can start. Takes a state or a draft."""
    if not run.is_running:
        return False
    return not run.active or (run.paused and not any(worker.in_progress for worker in run.workers.values()))


class BrokerState(RunFields, frozen=True):  # type: ignore[misc]  # msgspec allows it, unlike dataclasses
    """A run, as data."""

    def is_idle(self) -> bool:
        """Return whether only input from outside can move the run."""
        return self.is_running and not self.active and not self.asleep

    def is_asleep(self) -> bool:
        """Whether nothing can happen now, but a timer of the run's own will move it."""
        return self.is_running and not self.active and self.asleep > 0

    def is_blocked(self) -> bool:
        """Return whether nothing executes and nothing can start: idle, asleep, or paused with no body at work."""
        return is_blocked(self)

    def get_active_waiters(self) -> list[tuple[str, StepWorkerWaiter]]:
        """List all pending waiters with their steps, oldest first."""
        found = [
            (step, waiter) for step, worker in self.workers.items() for waiter in worker.collected_waiters.values()
        ]
        return sorted(found, key=lambda pair: pair[1].number)

    def waiter_reports(self, limit: int | None = None, *, asked: bool = False) -> tuple[WaiterReport, ...]:
        """Describe what the run waits for, as shown to people; at most `limit` waits of it, None means all.

        Its waiters and child runs, oldest first, or else the steps that take answers from outside. With `asked`, each
        has the event that asks for its answer. A stream has that event already, so its reports go without.
        """
        questions: Map[int, EventRecord] = self.waiting.asked if asked else EMPTY_MAP
        reports = {
            number: WaiterReport(
                step, w.event_type, w.waiter_id, w.requirements, w.since, w.deadline, w.refused, questions.get(number)
            )
            for number, step in oldest(self.waiting.index.values(), limit)
            for w in (self.workers[step].collected_waiters[number],)
        }
        for number in sorted(self.children)[:limit]:
            child = self.children[number]
            reports[number] = WaiterReport(child.step, CHILD_RUN, child.run_id, since=child.since)
        if reports:
            return tuple(report for _, report in sorted(reports.items())[:limit])
        return tuple(
            WaiterReport(spec.name, name, refused=self._refused_as(spec, name), question=questions.get(QUESTION))
            for spec in self.config.steps
            for name in spec.inputs
        )

    def awaited_types(self) -> set[str]:
        """Return the names of what the run waits for: the event types of all reports, without making them."""
        names = set(self.waiting.index)
        if self.children:
            names.add(CHILD_RUN)
        return names or {name for spec in self.config.steps for name in spec.inputs}

    def _refused_as(self, spec: StepSpec, name: str) -> Refusal | None:
        """Give the last refusal of a step, if it was for an input of this type; a subclass may be any of its inputs."""
        refusal = self.refused.get(spec.name)
        if refusal is None or refusal.event_type == name.rpartition(".")[2]:
            return refusal
        own = {other.rpartition(".")[2] for other in spec.inputs}
        return None if refusal.event_type in own else refusal

    def refusals(self) -> list[tuple[str, str | None, Refusal]]:
        """List the refused events that no better one has replaced, oldest first: step, waiter id or None, refusal."""
        found: list[tuple[str, str | None, Refusal]] = [(step, None, one) for step, one in self.refused.items()]
        found += [(step, w.waiter_id, w.refused) for step, w in self.get_active_waiters() if w.refused is not None]
        return sorted(found, key=lambda entry: (entry[2].at, entry[0], entry[1] or ""))

    def failed_item(self) -> WorkItem | None:
        """Return the work that failed the run: it is back at the head of its queue. None if the run ended otherwise."""
        outcome = self.outcome
        if outcome is None or outcome.abandoned is None:
            return None
        worker = outcome.abandoned.workers.get(outcome.step)
        item = next(iter(worker.queue), None) if worker is not None else None
        return item if item is not None and item.last_failure is not None else None

    def active_steps(self) -> tuple[str, ...]:
        """List the steps with an execution that holds a worker, in the order of the config."""
        return tuple(s.name for s in self.config.steps if self.workers.get(s.name, EMPTY_WORKER).in_progress)
