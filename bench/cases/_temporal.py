"""The peers of the Temporal cases by hand: the stock instance of temporalio, and Loom's, with the same work to do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.cases._chains import TEXT


@dataclass(frozen=True)
class Peer:
    """One side: how an instance is made, what it begins with, what reaches it, and what its activities return."""

    runner: Any
    host: type
    kind: str
    arguments: list[Any]
    signal_name: str
    word: Callable[[int], Any]
    answer: Callable[[Any], Any]

    def new(self) -> Any:
        """A fresh instance."""
        from bench.cases._temporal_hand import instance_of

        return instance_of(self.runner, self.host, self.kind)

    def hand(self) -> Any:
        """A fresh instance, driven by hand."""
        from bench.cases._temporal_hand import Hand

        return Hand(self.new(), self.kind, self.arguments)


def plain(kind: str, steps: int) -> Peer:
    """The stock instance, outside of the sandbox."""
    from temporalio.converter import PayloadConverter
    from temporalio.worker import UnsandboxedWorkflowRunner

    from bench.cases import _temporal_plain as written

    convert = PayloadConverter.default
    arguments = convert.to_payloads([steps, TEXT]) if kind == "Chain" else []

    def answer(command: Any) -> Any:
        link = convert.from_payload(command.arguments[0], written.Link)
        return convert.to_payload(written.Link(link.n + 1, link.text))

    return Peer(
        UnsandboxedWorkflowRunner(),
        getattr(written, kind),
        kind,
        arguments,
        "add",
        lambda n: convert.to_payload(written.Link(n, TEXT)),
        answer,
    )


def loom(kind: str, steps: int) -> Peer:
    """Loom's instance."""
    from loom.core.ticks import TickAddEvent, TickStepResult
    from loom.runtime.durable.registration import registration_of
    from loom.store import codec
    from loom.temporal.names import SIGNAL_MAIL
    from loom.temporal.payloads import (
        ActivityReport,
        RunMessage,
        RunMetadata,
        StartArgument,
        StepTask,
        payload_of,
        value_of,
    )
    from loom.temporal.workflow.runner import LoomHost, LoomRunner

    workflow, link, stop = _workflow(steps) if kind == "Chain" else _workflow(0)
    code = registration_of(kind, workflow)
    start = codec.encode_start(code.start_spec({})).decode()
    argument = StartArgument(RunMetadata("run", kind, 0.0), start=start, config=code.config)
    record = code.codec.record

    def answer(command: Any) -> Any:
        task = value_of(command.arguments[0], StepTask).command
        returned: tuple[Any, ...] = ()
        if task.step == "begin":
            returned = (record(link(n=1, text=TEXT)),) if steps else ()
        elif steps:
            n = int(command.activity_id)
            returned = (record(link(n=n, text=TEXT) if n < steps else stop(result=n)),)
        tick = TickStepResult(at=0.0, step=task.step, item=task.item.id, seq=task.seq, returned=returned)
        return payload_of(ActivityReport((tick,)))

    def word(n: int) -> Any:
        return payload_of(RunMessage(TickAddEvent(at=0.0, event=record(link(n=n, text=TEXT)), event_id=f"word-{n}")))

    return Peer(LoomRunner({kind: code}), LoomHost, kind, [payload_of(argument)], SIGNAL_MAIL, word, answer)


def _workflow(steps: int) -> tuple[Any, Any, Any]:
    """A chain of steps; or, with none, a step for every event from outside."""
    from loom import Event, StartEvent, StopEvent, Workflow, step

    class Link(Event):
        n: int
        text: str

    class Work(Workflow):
        @step
        async def begin(self, _: StartEvent) -> Link | None:
            return Link(n=1, text=TEXT) if steps else None

        @step(num_workers=1)
        async def go_on(self, ev: Link) -> Link | StopEvent | None:
            return None if not steps else Link(n=ev.n + 1, text=ev.text)

    return Work(timeout=None), Link, StopEvent
