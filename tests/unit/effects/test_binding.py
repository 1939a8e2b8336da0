"""How a step's body is called, and what it may return."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.core.records import RELEASE_KIND, EventRecord, Release
from loom.core.state import WorkItem
from loom.effects.binding import StepBinding, members_of
from loom.effects.event_codec import record_of
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.resources import ResourceManager

word: ContextVar[str] = ContextVar("word", default="none")


class Part(Event):
    number: int


class Other(Event):
    pass


class Some(Workflow):
    @step
    async def one(self, ev: StartEvent) -> Part | None:
        return Part(number=1)

    @step
    async def many(self, ev: StartEvent) -> list[Part]:
        return []

    @step
    async def either(self, ev: StartEvent) -> list[Part] | Other:
        return []

    @step
    def sync(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(word.get(), threading.current_thread() is threading.main_thread()))

    @step
    async def join(self, evs: list[Part]) -> StopEvent:
        return StopEvent()


def binding(name: str) -> StepBinding:
    function = Some(disable_validation=True)._get_steps()[name]
    return StepBinding(name, function, function._step_config, ResourceManager())


@pytest.mark.parametrize(
    ("name", "result", "numbers", "fanned_out"),
    [
        ("one", None, [], False),
        ("one", Part(number=1), [1], False),
        ("many", [Part(number=2), Part(number=1)], [2, 1], True),
        ("many", [], [], True),
        ("many", None, [], False),
        ("either", [Part(number=2)], [2], True),
    ],
)
def test_results_become_records(name: str, result: Any, numbers: list[int], fanned_out: bool) -> None:
    records, is_stream = binding(name).classify(result)
    assert [record.body.number for record in records] == numbers
    assert is_stream is fanned_out


def test_bare_event_beside_a_list_opens_no_stream() -> None:
    records, is_stream = binding("either").classify(Other())
    assert len(records) == 1
    assert not is_stream


@pytest.mark.parametrize(
    ("name", "result", "message"),
    [
        ("one", 5, "Step function one returned int instead of an Event instance."),
        ("one", [Part(number=1)], "Step function one returned list instead of an Event instance."),
        ("many", [Part(number=1), "x"], "Step function many returned str instead of an Event instance, at position 1"),
        ("many", Part(number=1), "Step function many returned a bare Part"),
    ],
)
def test_anything_else_is_refused_and_named(name: str, result: Any, message: str) -> None:
    with pytest.raises(WorkflowRuntimeError, match=message):
        binding(name).classify(result)


async def test_sync_body_runs_in_a_thread_with_the_context_variables() -> None:
    word.set("given")
    result = await binding("sync").call({"ev": StartEvent()})
    assert result.result == ("given", False)


def test_join_gets_the_members_of_its_set() -> None:
    parts = [Part(number=1), Part(number=2)]
    record = EventRecord(RELEASE_KIND, Release(1, "join", tuple(map(record_of, parts))))
    assert binding("join").arguments(WorkItem(1, "join", record)) == {"evs": parts}
    with pytest.raises(TypeError, match="A join is fired with a set of events"):
        members_of(record_of(parts[0]))


def test_plain_step_gets_its_event() -> None:
    event = StartEvent(a=1)
    assert binding("one").arguments(WorkItem(1, "one", record_of(event))) == {"ev": event}


async def test_wrapped_coroutine_function_is_awaited() -> None:
    assert asyncio.iscoroutine(awaited := binding("one").call({"ev": StartEvent()}))
    assert await awaited == Part(number=1)


# --- a step that returns an event which its annotation does not name --------------------------------------------------


class Declared(Event):
    pass


class Nearer(Declared):
    """What a subclass is, its annotation names too."""


class Returns(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Declared:
        return {"declared": Declared, "nearer": Nearer, "other": Other}[ev.what]()

    @step(accept_event_subclasses=True)
    async def end(self, ev: Declared) -> StopEvent:
        return StopEvent(result="end")

    @step
    async def other(self, ev: Other) -> StopEvent:
        return StopEvent(result="other")

    @step(skip_graph_checks=["reachability"])
    async def listed(self, ev: Nearer) -> list[Declared]:
        return [Declared(), Other()]


@pytest.mark.parametrize(("what", "warned"), [("declared", 0), ("nearer", 0), ("other", 1)])
async def test_an_undeclared_event_is_warned_of_once(what: str, warned: int, caplog: pytest.LogCaptureFixture) -> None:
    from loom.effects.binding import _warned

    _warned.clear()
    for _ in range(2):
        await Returns(disable_validation=True).run(what=what)
    said = [record.getMessage() for record in caplog.records if "annotated" in record.getMessage()]
    sentence = (
        "Step 'begin' returned Other, but is annotated to return Declared. If no step takes it, the run gets stuck."
    )
    assert [text for text in said if "'begin'" in text] == [sentence] * warned


async def test_any_is_a_declaration(caplog: pytest.LogCaptureFixture) -> None:
    class Open(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Any:
            return Other()

        @step
        async def end(self, ev: Other) -> StopEvent:
            return StopEvent()

    await Open(disable_validation=True).run()
    assert "annotated" not in caplog.text
