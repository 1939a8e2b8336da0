"""A step that returns an event which its annotation does not name is told of in the log, once."""

from __future__ import annotations

from typing import Any

import pytest

from loom import Event, StartEvent, StopEvent, Workflow, step


class Declared(Event):
    pass


class Nearer(Declared):
    """What a subclass is, its annotation names too."""


class Other(Event):
    pass


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
