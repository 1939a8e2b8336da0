from __future__ import annotations

from typing import Any

import pytest

from loom.cli.describe import tick_words
from loom.core.records import EventKind, EventRecord, Failure
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickChildEnded,
    TickRecordResult,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    WorkflowTick,
)
from loom.flows.calls import OUTCOME_KIND, START_KIND, ActionOutcome, FlowStart
from loom.flows.compiler import load_program
from loom.flows.planner import flow_config
from loom.runtime.masking import Masking
from loom.runtime.plain import plain

SECURE = {"runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}}}
EVENT = EventRecord(EventKind("Answer", (), "Answer"), '{"x": "hush"}')
OUTCOME = EventRecord(OUTCOME_KIND, ActionOutcome("Failed", {"a": "hush"}, "Bad", "hush, they said"))


def masking(secure_trigger: bool = False, **types: str) -> Masking:
    """Of a flow with one secure action of each type, and an open one."""
    actions: dict[str, Any] = {name: {"type": kind, "inputs": {}, **SECURE} for name, kind in types.items()}
    actions["open"] = {"type": "activity", "inputs": {"activityType": "x"}}
    trigger = {"type": "Request", **(SECURE if secure_trigger else {})}
    definition = {
        "parameters": {"key": {"type": "SecureString"}, "plain": {"type": "string"}},
        "triggers": {"manual": trigger},
        "actions": actions,
    }
    return Masking(load_program(definition, name="f"))


def words(tick: WorkflowTick) -> str:
    """A tick as people see it."""
    return tick_words({"type": type(tick).__name__, **plain(tick)})


def source(step: str) -> Source:
    return Source(step, 1, 1, 0)


@pytest.mark.parametrize(
    "tick",
    [
        TickStepResult(at=1.0, step="secret", item=1, seq=1, returned=(OUTCOME,)),
        TickStepResult(at=1.0, step="secret", item=1, seq=1, failure=Failure("ValueError", "hush")),
        TickRecordResult(at=1.0, source=source("secret"), name="call", value="hush"),
        TickStartChild(at=1.0, source=source("secret"), occurrence=0, workflow="w", start={"body": "hush"}),
        TickAddEvent(at=1.0, event=EVENT, source=source("secret")),
        TickAwaitEvent(
            at=1.0,
            source=source("secret"),
            waiter_id="w",
            occurrence=0,
            event_type="E",
            requirements=(("id", "hush"),),
            waiter_event=EVENT,
        ),
    ],
    ids=lambda tick: type(tick).__name__,
)
def test_the_data_of_secure_actions_is_hidden(tick: Any) -> None:
    shown = masking(secret="activity").tick(tick)
    assert "hush" in str(plain(tick)) + words(tick)
    assert "hush" not in str(plain(shown)) + words(shown)
    assert type(shown) is type(tick)


def test_open_actions_are_shown() -> None:
    tick = TickStepResult(at=1.0, step="open", item=1, seq=1, returned=(OUTCOME,))
    assert masking(secret="activity").tick(tick) is tick


def test_an_outcome_keeps_its_status_and_code() -> None:
    tick = TickStepResult(at=1.0, step="secret", item=3, seq=1, returned=(OUTCOME,))
    assert words(masking(secret="activity").tick(tick)) == "secret#3 Failed (Bad): *** secure ***"


def test_secure_parameters_are_hidden_and_a_secure_trigger_is_too() -> None:
    start = FlowStart("the body", {"H": "hush"}, parameters={"KEY": "hush", "plain": "seen"})
    tick = TickStartRun(
        at=1.0,
        run_id="r",
        config=flow_config(load_program({"actions": {}}, name="f")),
        event=EventRecord(START_KIND, start),
    )
    shown = masking().tick(tick)
    assert isinstance(shown, TickStartRun)
    assert shown.event is not None
    assert shown.event.body.parameters == {"KEY": "*** secure ***", "plain": "seen"}
    assert shown.event.body.body == "the body"
    hidden = words(masking(secure_trigger=True).tick(tick))
    assert "hush" not in hidden
    assert "the body" not in hidden


def test_what_might_be_secure_is_hidden_where_it_is_not_known_whose_it_is() -> None:
    answer = TickAddEvent(at=1.0, event=EVENT)
    assert masking(secret="activity").tick(answer) is answer
    assert "hush" not in words(masking(ask="waitForEvent").tick(answer))
    actor = TickStepResult(at=1.0, step="actor", item=1, seq=1, returned=(OUTCOME,))
    assert "hush" not in words(masking(worker="actor").tick(actor))
    child = TickChildEnded(at=1.0, child=1, status="completed", event=EVENT)
    assert "hush" not in words(masking(other="workflow").tick(child))
