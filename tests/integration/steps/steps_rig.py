"""What many tests of the step API need: reading streams, and events that say which kind they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from loom.steps.events import StepStateChanged, WorkflowIdleEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loom import Event, WorkflowHandler

T = TypeVar("T")


async def streamed(handler: WorkflowHandler, internal: bool = False) -> list[Event]:
    """Everything on a run's stream, to its end."""
    return [event async for event in handler.stream_events(expose_internal=internal)]


def of_type(events: list[Event], kind: type[T]) -> list[T]:
    """The events of exactly one type."""
    return [event for event in events if type(event) is kind]


def step_states(events: list[Event], *names: str) -> list[tuple[str, str, str]]:
    """(step, state, worker id) of the step reports, of the named steps or of all."""
    return [
        (e.name, e.step_state.value, e.worker_id)
        for e in events
        if isinstance(e, StepStateChanged) and (not names or e.name in names)
    ]


async def until(stream: AsyncIterator[Event], kind: type[T]) -> T:
    """Read a stream up to the first event of a type."""
    async for event in stream:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"The stream ended without {kind.__name__}.")


async def until_idle(handler: WorkflowHandler) -> None:
    """Read a run's stream until it says that the run is idle."""
    await until(handler.stream_events(expose_internal=True), WorkflowIdleEvent)


async def settled(ticks: int = 20) -> None:
    """Let everything that can go on without time or input do so."""
    for _ in range(ticks):
        await asyncio.sleep(0)


async def outcome_of(handler: WorkflowHandler) -> Any:
    """The result of a run, or the exception that it ended with."""
    try:
        return await handler
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


async def eventually(condition: Callable[[], object]) -> None:
    """Let the loop turn until a condition holds."""
    while not condition():  # noqa: ASYNC110 - the condition may be about anything
        await asyncio.sleep(0)
