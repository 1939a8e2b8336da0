"""The row of a run, worked out from its state with every commit, and the reason why the run is stuck."""

from __future__ import annotations

import json
from operator import is_
from typing import TYPE_CHECKING, Any, Literal

from loom.api.problems import NOBODYS_TURN, RunStatus, is_stuck
from loom.core.records import INPUT_REQUIRED_EVENT, RefusedReport, UnhandledReport
from loom.core.state import CHILD_RUN, MAX_REPORTED
from loom.core.ticks import TickAddEvent, TickChildEnded, TickStartRun, TickStepResult
from loom.effects.stored_text import waiter_dict
from loom.runtime.masking import shown_waiter
from loom.runtime.own_names import OWN
from loom.runtime.plain import fields_of
from loom.store.records import RunHead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loom.core.records import EventKind, Published, WaiterReport
    from loom.core.state import BrokerState, Outcome, RunFields
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program

_MAX_ERROR = 500

WaiterKey = tuple[str, str | None, float | None]
"""The step of a waiter, its id, and since when it waits."""
_FEW = 8
"""So few waiters are written as fast as they are remembered, and most runs have fewer."""

_NOTHING = (None, None, None, None, False)
"""What the waiters of a run that has ended are made from."""


class HeadWriter:
    """Writes heads, and notices when what the run waits for has changed."""

    __slots__ = ("_program", "_reason", "_seen", "_texts", "_waits", "is_stuck")

    def __init__(self, program: Program | None = None, reason: str | None = None) -> None:
        self._program = program
        self._seen: tuple[Any, ...] = _NOTHING
        """What the waiters of the last head were made from."""
        self._texts: dict[WaiterKey, tuple[WaiterReport, str]] = {}
        """Waiters of the last head and their texts, where there are many: one of them changes at a time."""
        self._waits = False
        self._reason = StuckReason(reason)
        self.is_stuck = False
        """Whether the last head was that of a stuck run. A head whose waiters did not change does not tell it."""

    def follow(self, ticks: Sequence[WorkflowTick], published: Sequence[Published]) -> None:
        """Take note of a batch, before its head is made: what it brought may be why the run is stuck."""
        self._reason.follow(ticks, published)

    def head(
        self, now: RunFields, whole: Callable[[], BrokerState], downtime: float, link: bytes | None = None
    ) -> tuple[RunHead, bool]:
        """The head after a batch, and whether its waiters are others than before. `whole` makes a state of `now`."""
        outcome = now.outcome
        running = outcome is None or outcome.status == "parked"
        idle = now.idle_since is not None
        made_from = (now.waiting.index, now.waiting.asked, now.children, now.refused, idle) if running else _NOTHING
        # These values are immutable: the same objects give the same waiters.
        changed = not all(map(is_, made_from, self._seen))
        waiters = b"[]"
        waiting_for: tuple[str, ...] = ()
        if changed:
            self._seen = made_from
            if running:
                waiters, waiting_for = self._waiters(whole())
            self._waits = bool(waiting_for)
        status = status_of(outcome)
        parked = outcome.message if outcome is not None and outcome.status == "parked" else None
        self.is_stuck = idle and is_stuck(
            status, idle=idle, waits=self._waits, paused=now.paused, parked=parked is not None
        )
        return RunHead(
            status,
            now.ticks,
            now.published,
            now.at,
            idle_since=now.idle_since,
            needs_worker=running and now.active > 0 and not now.paused,
            waiters=waiters,
            waiting_for=waiting_for,
            kept=now.waiting.kept_count,
            paused=now.paused,
            parked=parked,
            # A paused run keeps the reason for later.
            error=self._reason.text if idle and not self._waits else _error(outcome),
            downtime=downtime,
            link=link,
        ), changed

    def _waiters(self, state: BrokerState) -> tuple[bytes, tuple[str, ...]]:
        """What the run waits for, for people; and the types by which it is found."""
        if state.idle_since is None and not state.waiting.index and not state.children:
            self._texts = {}
            return b"[]", ()
        texts: dict[WaiterKey, tuple[WaiterReport, str]] = {}
        shown: list[str] = []
        for report in state.waiter_reports(MAX_REPORTED, asked=True)[:MAX_REPORTED]:
            key = (report.step, report.waiter_id, report.since)
            kept = self._texts.get(key)
            # Equal requirements may be written differently: 1 and true.
            if kept is None or kept[0].requirements is not report.requirements or kept[0] != report:
                kept = (report, json.dumps(stored_waiter(self._program, report)))
            texts[key] = kept
            shown.append(kept[1])
        self._texts = texts if len(texts) > _FEW else {}
        names = state.awaited_types()
        waiting_for = tuple(sorted(names | {name.rpartition(".")[2] for name in names}))
        return f"[{', '.join(shown)}]".encode(), waiting_for


MAX_PROMPT = 8 * 1024
"""How many characters of a prompt, written as JSON, are shown."""
_MAX_SCHEMA = 64 * 1024
"""The longest schema of an answer that a row keeps, in characters: half a schema would be none."""
_MAX_QUESTION = 256 * 1024
"""A longer question is not read: its beginning is shown as it is stored, so that a commit takes no longer for it."""


def stored_waiter(program: Program | None, report: WaiterReport) -> dict[str, Any]:
    """Return a waiter as rows keep it, without what a flow calls secure. It has a prompt only if something was asked.

    In a flow the question has the prompt and the schema of the action; in steps all its fields are the prompt.
    """
    report = shown_waiter(program, report)
    shown = waiter_dict(report)
    if report.question is None:
        return shown
    body = report.question.body
    if isinstance(body, str) and len(body) > _MAX_QUESTION:
        return {**shown, "prompt": f"{body[:MAX_PROMPT]}…"}
    fields = fields_of(report.question)
    if program is None or not isinstance(fields, dict):
        return {**shown, "prompt": _cut(fields)}
    schema = fields.get("schema")
    if not isinstance(schema, dict) or len(json.dumps(schema)) > _MAX_SCHEMA:
        schema = None
    return {**shown, "prompt": _cut(fields.get("prompt")), "schema": schema}


def _cut(prompt: Any) -> Any:
    """Return a prompt, or the beginning of its JSON if that is long."""
    text = json.dumps(prompt, ensure_ascii=False)
    return prompt if len(text) <= MAX_PROMPT else f"{text[:MAX_PROMPT]}…"


def status_of(outcome: Outcome | None) -> RunStatus:
    """The status of a run that has, or has not, come to an end."""
    return "running" if outcome is None else outcome.run_status


def _error(outcome: Outcome | None) -> str | None:
    if outcome is None or not (status_of(outcome) == "failed" or _is_not_clean(outcome)):
        return None
    if outcome.failure is None:
        return outcome.message[:_MAX_ERROR]
    name = outcome.failure.type.removeprefix("builtins.")
    return " ".join(f"{outcome.step}: {name}: {outcome.failure.message}".split())[:_MAX_ERROR]


def _is_not_clean(outcome: Outcome) -> bool:
    """Whether a run was cancelled and its clean-up step has failed."""
    return outcome.status == "cancelled" and outcome.event is None and outcome.step != ""


def child_ended(now: RunFields, number: int) -> TickChildEnded:
    """What a parent is told about the end of its child."""
    outcome = now.outcome
    assert outcome is not None
    status: Literal["completed", "failed", "cancelled", "timed_out"] = (
        outcome.status if outcome.status != "parked" else "failed"
    )
    return TickChildEnded(at=now.at, child=number, status=status, event=outcome.event, failure=outcome.failure)


# Why a run is stuck, in words: from the ticks and reports that led to it. See `loom.api.problems.is_stuck`.


_MAX_REASON = 500


class StuckReason:
    """Follows what happens to a run, and words the reason in case the run gets stuck.

    It is no part of the state: no decision depends on it. The row keeps it for readers, and for the next owner.
    """

    __slots__ = ("_result", "_said", "_untaken")

    def __init__(self, earlier: str | None = None) -> None:
        self._said = earlier
        """What an earlier owner had to say, until something happens."""
        self._result: TickStepResult | None = None
        """The last result of a step."""
        self._untaken: str | None = None
        """The last event that no step took or could read, in words."""

    def follow(self, ticks: Sequence[WorkflowTick], published: Sequence[Published]) -> None:
        """Take note of what one batch brought. Most batches bring a result or nothing."""
        result: TickStepResult | None = None
        for tick in ticks:
            if type(tick) is TickStepResult:
                result = tick
        if result is not None:
            self._result, self._said = result, None
        for report in published:
            if type(report) is UnhandledReport or type(report) is RefusedReport:
                # An event that comes by itself is the newest thing to say. Not every owner knows the result before it.
                self._untaken, self._result, self._said = _untaken(report, ticks), result, None

    @property
    def text(self) -> str:
        """The reason in a sentence or two."""
        if self._said is None:
            result = _of_result(self._result) if self._result is not None else None
            self._said = " ".join(filter(None, (result, self._untaken)))[:_MAX_REASON] or NOBODYS_TURN
        return self._said


def _untaken(report: UnhandledReport | RefusedReport, ticks: Sequence[WorkflowTick]) -> str:
    if isinstance(report, RefusedReport):
        return f"Step {report.step!r} was sent {report.event_type!r}, which does not fit its class: {report.reason}."
    name = report.event.label or report.event.name
    if report.kept:
        return f"No step takes {name!r} and none waits for it: it came from outside, and is kept."
    return f"No step takes {name!r}{_origin(report.event, ticks)}."


def _origin(kind: EventKind, ticks: Sequence[WorkflowTick]) -> str:
    """Who made an event, as far as the ticks of its batch tell."""
    for tick in reversed(ticks):
        if isinstance(tick, TickStepResult) and any(event.kind == kind for event in tick.returned):
            return f", which step {tick.step!r} returned"
        if isinstance(tick, TickAddEvent) and tick.event.kind == kind:
            return f", which step {tick.source.step!r} sent" if tick.source is not None else ", which came from outside"
        if isinstance(tick, TickStartRun) and tick.event is not None and tick.event.kind == kind:
            return ", which the run began with"
    return ""


def _of_result(tick: TickStepResult) -> str | None:
    """Why nothing follows from the last result of a step, if the result tells."""
    missing = [call for call in tick.collects if not call.took]
    if missing:
        wanted = ", ".join(f"{count} of {name.rpartition('.')[2]!r}" for name, count in missing[-1].needed)
        return f"Step {tick.step!r} still collects events ({wanted}), and nothing is left that could make one."
    if not tick.returned and tick.failure is None:
        return f"Step {tick.step!r} returned None, and nothing else was left to do."
    if tick.returned and tick.returned[-1].kind.is_a(INPUT_REQUIRED_EVENT):
        return f"Step {tick.step!r} asked by {tick.returned[-1].kind.label!r}, but no step takes an answer."
    return None


def waiter_kind(waiter: Mapping[str, Any]) -> Literal["event", "input", "callback", "child"]:
    """Tell what can answer a waiter: a person, through a wait or the signature of a step; a service; a child run."""
    if waiter["event_type"] == CHILD_RUN:
        return "child"
    if waiter["event_type"].startswith(OWN):
        return "callback"
    return "input" if waiter["waiter_id"] is None else "event"
