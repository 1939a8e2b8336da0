"""Reads what reaches a run from outside: updates, cancels, and signals that were not sent by Loom.

Any Temporal client can send a run an event, as a signal by the name of the event's type. What such a signal means is
decided by the run's state and the signal alone, never by the code of the worker: a replay may have other code.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom.core.records import EVENT, EventKind, EventRecord
from loom.core.ticks import TickAddEvent, TickCancelRun
from loom.effects.flow_codec import AnyEventCodec
from loom.effects.flow_events import FlowEvent
from loom.temporal.bridge import messages
from loom.temporal.names import SIGNAL_MAIL, UPDATE_TELL
from loom.temporal.payloads import RunMessage, payload_of, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from temporalio.api.common.v1 import Payload

    from loom.core.state import BrokerConfig, RunFields
    from loom.temporal.bridge import activations, completions
    from loom.temporal.workflow.hosted_run import HostedRun

UNREADABLE = (ValueError, IndexError, RecursionError)
"""What reading a payload raises that Loom has not made."""

_CANCEL = TickCancelRun.__name__.encode()
"""Stands in every message with a cancel, so that the others need not be read twice."""

# -- cancels ----------------------------------------------------------------------------------------------------------


def asks_to_cancel(job: activations.WorkflowActivationJob) -> bool:
    """Say whether a job asks the run to stop: Temporal's own cancel, or an inbox message with one."""
    variant = job.WhichOneof("variant")
    if variant == "cancel_workflow":
        return True
    if variant == "signal_workflow" and job.signal_workflow.signal_name == SIGNAL_MAIL:
        inputs = job.signal_workflow.input
    elif variant == "do_update" and job.do_update.name == UPDATE_TELL:
        inputs = job.do_update.input
    else:
        return False
    if not inputs or _CANCEL not in inputs[0].data:
        return False
    try:
        message = value_of(inputs[0], RunMessage)
    except UNREADABLE:
        return False
    return isinstance(message.tick, TickCancelRun) and message.began is None


# -- updates ----------------------------------------------------------------------------------------------------------


class Updates:
    """Accepted updates whose senders wait until the run is at rest again.

    Whether an update is accepted or refused is said at once, within its own activation.
    """

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def take(
        self, job: activations.DoUpdate, success: completions.Success, why_refused: Callable[[RunMessage], str | None]
    ) -> RunMessage | None:
        """Return the message of an update that is accepted; None if it is refused.

        A replay brings only accepted updates, so it does not call `why_refused`.
        """
        answer = success.commands.add().update_response
        answer.protocol_instance_id = job.protocol_instance_id
        try:
            if job.name != UPDATE_TELL:
                raise LookupError(f"A Loom run has no update {job.name!r}; it knows {UPDATE_TELL}.")
            message = value_of(job.input[0], RunMessage)
            if job.run_validator and (why := why_refused(message)) is not None:
                raise ValueError(why)
        except (LookupError, ValueError) as error:
            answer.rejected.message = str(error)
            answer.rejected.application_failure_info.type = "loom.Refused"
            return None
        answer.accepted.SetInParent()
        self._waiting.append(job.protocol_instance_id)
        return message

    def answers(self, host: HostedRun, sent: list[messages.WorkflowCommand]) -> list[messages.WorkflowCommand]:
        """Return the answers to all waiting senders, if the run is at rest, or continues as new with what is sent."""
        continues = bool(sent) and sent[-1].HasField("continue_as_new_workflow_execution")
        if not self._waiting or not (host.is_at_rest or continues):
            return []
        waiting, self._waiting = self._waiting, []
        row = payload_of(host.row())
        answers = []
        for update in waiting:
            built = messages.WorkflowCommand()
            built.update_response.protocol_instance_id = update
            built.update_response.completed.CopyFrom(row)
            answers.append(built)
        return answers


# -- signals of other clients -----------------------------------------------------------------------------------------


def external_tick(
    name: str, payloads: Sequence[Payload], now: RunFields, config: BrokerConfig, at: float
) -> TickAddEvent:
    """Make an event of a signal that another client has sent.

    The event has the type of this full name, or a type of this short name that the run waits for or takes. Its fields
    are taken as they are given. A signal that fits no type is kept under its name, never dropped.
    """
    data = _data(payloads)
    known = next((full for full in expected_types(now, config) if name in (full, full.rpartition(".")[2])), name)
    if "." not in known or not isinstance(data, dict | None):
        record = AnyEventCodec().record(FlowEvent(name=name, data=data))
    else:
        record = EventRecord(_kind(known), _body(known, data or {}))
    return TickAddEvent(at=at, event=record, accepted=True)


def expected_types(now: RunFields, config: BrokerConfig) -> Iterator[str]:
    """Yield the event types that a run waits for, the oldest waiter's first, and then the types that its steps take."""
    waiters = [waiter for worker in now.workers.values() for waiter in worker.collected_waiters.values()]
    for waiter in sorted(waiters, key=lambda each: each.number):
        yield waiter.event_type
    for spec in config.steps:
        yield from spec.accepts


def _kind(name: str) -> EventKind:
    return EventKind(name, (EVENT,), name.rpartition(".")[2], f"<class '{name}'>")


def _body(name: str, fields: dict[str, Any]) -> str:
    """Return an event as Loom's serializer writes it."""
    return json.dumps({"__is_pydantic": True, "value": fields, "qualified_name": name}, separators=(",", ":"))


def _data(payloads: Sequence[Payload]) -> Any:
    """Return the argument of a signal, or the list of its arguments; None if it has none."""
    values = [_value(payload) for payload in payloads]
    return values[0] if len(values) == 1 else (values or None)


def _value(payload: Payload) -> Any:
    """Return the value of a payload; one that is no JSON is shown as text."""
    if payload.metadata.get("encoding", b"") == b"binary/null":
        return None
    try:
        return json.loads(payload.data)
    except ValueError:
        return payload.data.decode(errors="replace")
