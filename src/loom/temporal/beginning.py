"""How an execution begins: with code that whoever opened it had, or that it asks for first.

On a replay nothing but the history counts: no configuration, and no code but what the run was told. May import
loom.core, loom.runtime, temporalio's messages and the modules beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from loom.core.records import Failure
from loom.core.ticks import TickCancelRun, TickChildEnded
from loom.temporal import names
from loom.temporal.closing import failing
from loom.temporal.flushing import Flushing
from loom.temporal.foreign import foreign_tick
from loom.temporal.hosted import HostedRun, code_for
from loom.temporal.outgoing import Outgoing, Place
from loom.temporal.payloads import CodeRequest, CodeView, Opening, value_of
from loom.temporal.policy import CANCELS_FIRST, DOUBTS_SIGNALS, KEEPS_LETTERS, flag_of, recorded_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from temporalio.api.common.v1 import Payload
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions
    from temporalio.workflow import Info

    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.figures import RunFact
    from loom.runtime.durable.registered import Registered
    from loom.temporal.history_shield import TakenIn
    from loom.temporal.outgoing import ActivityOptions
    from loom.temporal.policy import Policy

UNREADABLE = (ValueError, IndexError, RecursionError)
"""What is raised by payloads that are none of ours."""


class Surroundings(Protocol):
    """What an execution finds in its worker."""

    options: ActivityOptions
    policies: Sequence[Policy]
    """The table: a new run takes the last row, and every run keeps the row that it began with."""

    def activated(self, run_id: str, ticks: int) -> None:
        """A run has more to show, and has had so many ticks. Called in any thread."""
        ...

    def counted(self, workflow: str, fact: RunFact) -> None:
        """A run of a workflow was started, has ended, or was parked. Called in any thread."""
        ...

    def has_other_code(self, run_id: str, workflow: str, *, is_parked: bool) -> None:
        """A run was begun with other code than is at hand, or parked by other code. Called in any thread."""
        ...

    def has_children(self, run_id: str, children: Mapping[int, str]) -> None:
        """A run waits for children of earlier executions, run ids by number. Called in any thread."""
        ...

    def check_recorded(self, info: Info, taken: TakenIn, length: int) -> None:
        """Raise `AskAgain` unless the history has all that an execution has taken in. Called in a thread to hold."""
        ...


class Beginning:
    """The part of an execution until its run is there, and how the run is fed."""

    def __init__(self, info: Info, code: Registered, around: Surroundings) -> None:
        self._info = info
        self._code = code
        self._around = around
        self.out = Outgoing(Place(info.namespace, info.task_queue), around.options, info.headers)
        self._flushing = Flushing(self.out)
        self.opening: Opening
        self.host: HostedRun | None = None
        """None until the code is known that the run begins with."""
        self._now = 0.0
        self._row: int | None = None
        self._doubts_signals = False
        """Whether events from signals of others are marked as unchecked."""
        self._cancels_first = False
        """Whether a cancel comes before all else that an activation brings."""
        self._is_cancelled = False
        """Whether the run was cancelled before it began: it begins only to end."""
        self._keeps_letters = False
        """Whether every event in a letter counts as accepted: the server has acknowledged it."""
        self._early: list[WorkflowTick] = []
        """What came before the run began."""
        self._foreign: list[tuple[str, list[Payload]]] = []
        """Signals of others that did."""
        self._notes: list[str] = []
        """What the operator is told of signals, unless this is a replay."""
        self._asked_for_code = 0
        self._no_code: Failure | None = None
        """Why the run cannot begin."""

    def _choose_policy(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """A new run takes the newest row and records it; any other has the row of its history."""
        policies = self._around.policies
        row = recorded_row(act.available_internal_flags, len(policies))
        if row is None:
            row = 0 if act.is_replaying else len(policies) - 1
        self._doubts_signals = not act.is_replaying or DOUBTS_SIGNALS in act.available_internal_flags
        self._cancels_first = not act.is_replaying or CANCELS_FIRST in act.available_internal_flags
        self._keeps_letters = not act.is_replaying or KEEPS_LETTERS in act.available_internal_flags
        if not act.is_replaying:
            success.used_internal_flags.extend((flag_of(row), DOUBTS_SIGNALS, CANCELS_FIRST, KEEPS_LETTERS))
        self._row, self._flushing.policy = row, policies[row]

    def _initialize(self, job: activations.InitializeWorkflow, success: completions.Success) -> None:
        del success
        if len(job.arguments) != 1:
            raise ValueError(
                f"A Loom workflow takes one argument, which loom.connect() makes; {self._info.workflow_type!r} was "
                f"started with {len(job.arguments)}."
            )
        self.opening = value_of(job.arguments[0], Opening)
        if self.opening.config is not None or self.opening.start is None:
            self._begin(self.opening)

    def _begin(self, opening: Opening) -> None:
        code = code_for(opening, self._code)
        self._code = code
        self.host = HostedRun(opening, code, self._now, self._flushing.measure, is_cancelled=self._is_cancelled)
        early, self._early = self._early, []
        if self._is_cancelled:
            early = [tick for tick in early if isinstance(tick, TickCancelRun)]
        self._feed(early)
        for name, arguments in self._foreign:
            self._take_foreign(name, arguments)
        self._foreign.clear()

    def _ask_for_code(self, success: completions.Success) -> None:
        """Whoever started the run had no code at hand: the code that it begins with is a fact of its history.

        The start goes along, for the author's class to make an event of it. One that is only to end needs no event.
        """
        if self._asked_for_code:
            return
        request = CodeRequest(self.opening.card.workflow, "" if self._is_cancelled else self.opening.start or "")
        built = self.out.activity_message(names.ACTIVITY_CODE, names.ACTIVITY_CODE, request)
        self._asked_for_code = self.out.activity_number(built)
        success.commands.append(built)

    def _code_told(self, result: Any, success: completions.Success) -> None:
        if result.WhichOneof("status") != "completed":
            self._no_code = Failure("loom.NoCode", f"It could not begin: {cause_of(result).message}")
            if self.opening.card.parent is not None:
                child = self.opening.card.parent_ref
                ended = TickChildEnded(at=self._now, child=child, status="failed", failure=self._no_code)
                success.commands.append(self.out.letter(self.opening.card.parent, ended))
            return
        view = value_of(result.completed.result, CodeView)
        card = replace(self.opening.card, document=view.digest)
        start = view.start or self.opening.start
        self.opening = replace(self.opening, card=card, config=view.config, document=view.text, start=start)
        self._begin(self.opening)

    def _give_up(self, why: Failure, success: completions.Success) -> None:
        """A run that cannot begin fails, once its parent has heard of it."""
        if self.out.is_heard:
            success.commands.append(failing(why.message, why.type))

    def _feed(self, ticks: Sequence[WorkflowTick]) -> None:
        """Let the run have ticks, as of now."""
        now = self._now
        timed = [replace(tick, at=now) for tick in ticks]
        if self.host is None:
            self._early += timed
        else:
            self.host.core.feed(*timed)

    def _take_foreign(self, name: str, arguments: list[Payload]) -> None:
        """A signal of somebody else's. What it means is known when the code is that the run begins with."""
        if self.host is None:
            self._foreign.append((name, arguments))
            return
        now = self.host.core.look
        # What the run begins with may be fed and not reduced yet.
        config = now.config if now.run_id else self.opening.config or now.config
        try:
            tick = foreign_tick(name, arguments, now, config, self._now)
            if self._doubts_signals:
                tick = replace(tick, event=tick.event.as_unchecked())
            self._feed([tick])
        except UNREADABLE as error:
            self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        """Anybody can send a signal of any name. To fail the task for it would hold the run up for ever."""
        self._notes.append(f"a signal {name!r} cannot be read and is left out: {error}")


def cause_of(result: Any) -> Any:
    """Why an activity has failed or was cancelled: Temporal wraps what its worker has said."""
    failure = result.failed.failure if result.HasField("failed") else result.cancelled.failure
    return failure.cause if failure.HasField("cause") else failure
