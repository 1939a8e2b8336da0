"""The engine's front door. It offers what a driver needs; `loom.core.kernel` is internal, and a contract says so.

How to write a driver
---------------------

The engine does nothing by itself. It has no clock, no event loop and no I/O. A `Run` is one run as an object: ticks go
in, batches of commands come out. A driver is the code around it that has a clock, starts bodies and keeps a journal.
The asyncio control loop in `loom.runtime`, the Temporal workflow in `loom.temporal` and the simulator in `loom.testing`
are drivers. They follow five rules:

1. **Feed, drain, flush.** `feed` takes any number of ticks. `drain` reduces them. `flush` gives a `Batch`.
2. **Save, then act.** Save the ticks of a batch before any of its commands. If that fails, forget the `Run`; a new one
   is made from what was saved. So no effect is ever ahead of the journal.
3. **Act in order.** Carry out the commands as they are listed. The terminal command is always the last one.
4. **Bring numbers back.** A result carries the `seq` of its command, a fired timer its number. Stale ones are ignored,
   so a driver need not check whether an answer still counts.
5. **Time is a field.** Each tick has `at`, in seconds since the epoch. A timer is due at `due` and never fires earlier.

A `Planner` decides what follows from an event or a result; `loom.steps` and `loom.flows` have one each. The first tick
of a run is `TickStartRun`, with its config. A process that goes on with a saved run feeds `TickResume` first: the run
then asks again for the bodies and timers that it needs. `replay` makes the state out of a journal. `advance` is one
transition as a pure function, `reduce` a single step of it. `loom.core.reducer` has the theory of operation.

This driver runs bodies in place, keeps its journal in a list, and lets time jump to the next timer:

```python
from loom.core import *
from loom.core.records import START_EVENT, STOP_EVENT
from loom.steps.planner import StepsPlanner


class Driver:
    def __init__(self, bodies, state=None):
        self.run, self.bodies, self.journal = Run(StepsPlanner(), state), bodies, []
        self.now, self.timers = 0.0, {}

    def tell(self, *ticks):
        while ticks:
            self.run.feed(*ticks)
            self.run.drain()
            batch = self.run.flush()
            self.journal += batch.ticks  # save first, then act
            ticks = [tick for command in batch.commands for tick in self.carry_out(command)]

    def carry_out(self, command):
        match command:
            case CommandRunWorker(step=step, item=item):
                base = {"at": self.now, "step": step, "item": item.id, "seq": command.seq}
                try:
                    yield TickStepResult(**base, returned=(self.bodies[step](item),))
                except OSError as error:
                    yield TickStepResult(**base, failure=Failure("OSError", str(error)), retry_delay_s=5.0)
            case CommandStartTimer(seq=seq, due=due):
                self.timers[seq] = due
            case CommandCancelTimer(seq=seq):
                self.timers.pop(seq, None)
            case CommandCompleteRun(result=event):
                print(f"{self.now} s: the result is {event.body!r}")

    def sleep(self):
        number = min(self.timers, key=self.timers.get)
        self.now = self.timers.pop(number)
        self.tell(TickTimerFired(at=self.now, timer=number))


def greet(item):
    print(f"attempt {item.attempts + 1} for {item.event.body}")
    if item.attempts == 0:
        raise OSError("the line is busy")
    return EventRecord(EventKind(STOP_EVENT), f"Hello, {item.event.body}!")


driver = Driver({"greet": greet})
config = BrokerConfig("greetings", (StepSpec("greet", accepts=(START_EVENT,)),))
driver.tell(TickStartRun(at=0.0, run_id="run-1", config=config, event=EventRecord(EventKind(START_EVENT), "Ada")))
driver.sleep()
print(len(driver.journal), "ticks,", replay(driver.journal, StepsPlanner()) == driver.run.state)
```

It prints:

```text
attempt 1 for Ada
attempt 2 for Ada
5.0 s: the result is 'Hello, Ada!'
4 ticks, True
```

Inside Loom, code imports what it needs from the module that defines it. Names are loaded here when they are first used,
so that such an import costs no more than its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.core.commands import (
        CommandCancelChild,
        CommandCancelTimer,
        CommandCompleteRun,
        CommandFailWorkflow,
        CommandHalt,
        CommandPublishEvent,
        CommandQueueEvent,
        CommandResumeWorker,
        CommandRunWorker,
        CommandStartChild,
        CommandStartTimer,
        CommandStopWork,
        CommandWarn,
        TerminalCommand,
        WorkflowCommand,
    )
    from loom.core.planner import Planner
    from loom.core.records import EventKind, EventRecord, Failure
    from loom.core.reducer import advance, reduce, replay
    from loom.core.run import Batch, BatchLimit, Run
    from loom.core.state import BrokerConfig, BrokerState, StepSpec
    from loom.core.ticks import (
        CollectCall,
        Source,
        TickAddEvent,
        TickAwaitEvent,
        TickCancelRun,
        TickChildEnded,
        TickContinueRun,
        TickEditStore,
        TickEndWait,
        TickLeaveStep,
        TickParkRun,
        TickPauseRun,
        TickPublishEvent,
        TickRecordResult,
        TickRefuseEvent,
        TickResume,
        TickRetryRun,
        TickSkip,
        TickSleep,
        TickStartChild,
        TickStartRun,
        TickStepResult,
        TickTimeout,
        TickTimerFired,
        WorkflowTick,
    )

__all__ = [
    "Batch",
    "BatchLimit",
    "BrokerConfig",
    "BrokerState",
    "CollectCall",
    "CommandCancelChild",
    "CommandCancelTimer",
    "CommandCompleteRun",
    "CommandFailWorkflow",
    "CommandHalt",
    "CommandPublishEvent",
    "CommandQueueEvent",
    "CommandResumeWorker",
    "CommandRunWorker",
    "CommandStartChild",
    "CommandStartTimer",
    "CommandStopWork",
    "CommandWarn",
    "EventKind",
    "EventRecord",
    "Failure",
    "Planner",
    "Run",
    "Source",
    "StepSpec",
    "TerminalCommand",
    "TickAddEvent",
    "TickAwaitEvent",
    "TickCancelRun",
    "TickChildEnded",
    "TickContinueRun",
    "TickEditStore",
    "TickEndWait",
    "TickLeaveStep",
    "TickParkRun",
    "TickPauseRun",
    "TickPublishEvent",
    "TickRecordResult",
    "TickRefuseEvent",
    "TickResume",
    "TickRetryRun",
    "TickSkip",
    "TickSleep",
    "TickStartChild",
    "TickStartRun",
    "TickStepResult",
    "TickTimeout",
    "TickTimerFired",
    "WorkflowCommand",
    "WorkflowTick",
    "advance",
    "reduce",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'loom.core' has no attribute {name!r}")
    from loom.core import commands, planner, records, reducer, run, state, ticks

    # A name may be imported into several of these modules; it is the same object in each.
    homes = (ticks, commands, run, reducer, state, planner, records)
    value = next(getattr(home, name) for home in homes if hasattr(home, name))
    globals()[name] = value
    return value
