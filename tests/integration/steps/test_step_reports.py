"""How executions show in the stream."""

from __future__ import annotations

from limited_workers import Job, Limited
from steps_rig import step_states, streamed

from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.steps.events import StepStateChanged


class TwoSteps(Workflow):
    @step
    async def first(self, ev: StartEvent) -> Job:
        return Job(n=ev.n)

    @step
    async def second(self, ev: Job) -> StopEvent:
        return StopEvent(result=ev.n + 1)


async def test_execution_in_the_stream():
    handler = TwoSteps(timeout=5).run(n=1)
    events = await streamed(handler, internal=True)
    reports = [
        (e.name, e.step_state.value, e.worker_id, e.input_event_name, e.output_event_name)
        for e in events
        if isinstance(e, StepStateChanged)
    ]
    job = str(Job)
    assert reports == [
        ("first", "running", "0", "StartEvent", None),
        ("first", "not_running", "0", "<class 'workflows.events.StartEvent'>", job),
        ("second", "running", "0", "Job", None),
        ("second", "not_running", "0", job, "<class 'workflows.events.StopEvent'>"),
    ]
    assert type(events[-1]) is StopEvent


async def test_queued_execution_shows_as_preparing():
    workflow = Limited()
    for gate in workflow.gates:
        gate.set()
    handler = workflow.run()
    states = step_states(await streamed(handler, internal=True), "work")
    assert states.count(("work", "preparing", "<enqueued>")) == 4
    assert states[:2] == [("work", "running", "0"), ("work", "running", "1")]


class Chatty(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Job(n=1))
        ctx.write_event_to_stream(None)
        ctx.write_event_to_stream(Job(n=2))
        return StopEvent(result="x")


async def test_what_an_execution_wrote_is_between_its_reports():
    events = await streamed(Chatty(timeout=5).run(), internal=True)
    shown = [e.step_state.value if isinstance(e, StepStateChanged) else type(e).__name__ for e in events]
    assert shown == ["running", "Job", "Job", "not_running", "StopEvent"]
