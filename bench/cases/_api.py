"""The step API that Loom and llama-index-workflows share, so that both run the same source text."""

from __future__ import annotations

from types import SimpleNamespace


def step_api(peer: str) -> SimpleNamespace:
    """Return the names of one of the two packages."""
    if peer == "loom":
        from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
    else:
        from workflows import Context, Workflow, step
        from workflows.events import Event, HumanResponseEvent, StartEvent, StopEvent
    return SimpleNamespace(
        Context=Context,
        Event=Event,
        HumanResponseEvent=HumanResponseEvent,
        StartEvent=StartEvent,
        StopEvent=StopEvent,
        Workflow=Workflow,
        step=step,
    )
