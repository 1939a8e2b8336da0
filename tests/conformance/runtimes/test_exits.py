"""Authors' code that asks its process to exit, in every place that the engine calls it from, on every runtime.

Each is a failure of its attempt, and so is an exception that fails when it is looked at. Nothing is left waiting.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Self

import pytest
from pydantic import model_validator
from runtime_deployments import Deployment
from runtime_watching import result, until_info
from typing_extensions import override

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, catch_error, step
from loom.effects.actions.handlers import HANDLERS
from loom.effects.event_codec import UnfitEventError
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StepFailedEvent
from loom.steps.resources import Resource
from loom.steps.retry import retry_if_exception, retry_policy, wait_none
from loom.steps.serializers import UnreconstructedException


class Unspeakable(Exception):
    @override
    def __str__(self) -> str:
        raise SystemExit("from __str__")


class Untouchable(Exception):
    """Raises from wherever it is looked at."""

    @override
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "Unspeakable": Unspeakable,
    "Untouchable": Untouchable,
}
KINDS = (*RAISED, "argparse")


def deadly(kind: str) -> str:
    if kind == "argparse":
        argparse.ArgumentParser("body").parse_args(["--nope"])
    if kind in RAISED:
        raise RAISED[kind]()
    return kind


class Case(Event):
    kind: str


class OnLoop(Case):
    pass


class InThread(Case):
    pass


class OfPolicy(Case):
    pass


class OfResource(Case):
    pass


class InOnce(Case):
    pass


class Stored(Case):
    pass


PLACES: tuple[type[Case], ...] = (OnLoop, InThread, OfPolicy, OfResource, InOnce, Stored)


class Told(Event):
    place: str
    kind: str
    error: str


class _Wanted:
    """What the next resource is to raise: a factory is given nothing else."""

    kind = "fine"

    def make(self) -> str:
        return deadly(self.kind)


wanted = _Wanted()


class Places(Workflow):
    """Every place in a workflow of steps where the author's code runs."""

    @step
    async def plan(
        self, ctx: Context, ev: StartEvent
    ) -> OnLoop | InThread | OfPolicy | OfResource | InOnce | Stored | None:
        wanted.kind = ev.kind
        for place in PLACES:
            ctx.send_event(place(kind=ev.kind))
        return None

    @step
    async def on_loop(self, ev: OnLoop) -> Told:
        return Told(place="fine", kind=deadly(ev.kind), error="")

    @step
    def in_thread(self, ev: InThread) -> Told:
        return Told(place="fine", kind=deadly(ev.kind), error="")

    @step(retry_policy=retry_policy(retry=retry_if_exception(lambda error: bool(deadly(str(error)))), wait=wait_none()))
    async def of_policy(self, ev: OfPolicy) -> Told:
        raise ValueError(ev.kind)

    @step
    async def of_resource(self, ev: OfResource, made: Annotated[str, Resource(wanted.make)]) -> Told:
        return Told(place="fine", kind=made, error="")

    @step
    async def in_once(self, ctx: Context, ev: InOnce) -> Told:
        return Told(place="fine", kind=await ctx.once("deadly", lambda: deadly(ev.kind)), error="")

    @step
    async def stored(self, ctx: Context, ev: Stored) -> Told:
        async with ctx.store.edit_state() as state:
            state["kind"] = deadly(ev.kind)
        return Told(place="fine", kind=ev.kind, error="")

    @catch_error
    async def tell(self, ev: StepFailedEvent) -> Told:
        error = ev.exception
        name = error.original_type if isinstance(error, UnreconstructedException) else type(error).__qualname__
        return Told(place=ev.step_name, kind=ev.input_event.kind, error=(name or "").rpartition(".")[2])

    @step(num_workers=1)
    async def collect(self, ctx: Context, ev: Told) -> StopEvent | None:
        told = ctx.collect_events(ev, [Told] * len(PLACES))
        return None if told is None else StopEvent(result={each.place: each.error for each in told})


async def test_in_every_place_of_a_step_it_is_a_failure_of_the_attempt(deployment: Deployment) -> None:
    runtime = await deployment.open({"places": Places(timeout=60)})
    names = {"argparse": "SystemExit"}
    places = {"on_loop", "in_thread", "of_policy", "of_resource", "in_once", "stored"}
    for kind in KINDS:
        told = await result(await runtime.start("places", {"kind": kind}))
        assert set(told) == places, (kind, told)
        for place, error in told.items():
            # A thread cannot carry a GeneratorExit to who awaits it: it comes as the cause of another error.
            carried = "RuntimeError" if (kind, place) == ("GeneratorExit", "in_thread") else names.get(kind, kind)
            assert error == carried, (kind, place)


@pytest.fixture
def handlers() -> Any:
    """Handlers of every kind, each of which raises what it is asked to."""

    async def here(kind: str) -> str:
        return deadly(kind)

    def there(kind: str) -> str:
        return deadly(kind)

    class Player:
        def receive(self, kind: str) -> str:
            return deadly(kind)

    registered = {
        "activities": {"here": here, "there": there},
        "actors": {"player": Player},
        "ai_providers": {"model": there, "async model": here},
        "actions": {"connector": there, "async connector": here},
    }
    kept = {name: dict(getattr(HANDLERS, name)) for name in registered}
    for name, given in registered.items():
        getattr(HANDLERS, name).update(given)
    yield HANDLERS
    for name, before in kept.items():
        getattr(HANDLERS, name).clear()
        getattr(HANDLERS, name).update(before)


def _flow(kind: str) -> loom.Flow:
    calls = {
        "Here": ("activity", {"activityType": "here"}),
        "There": ("activity", {"activityType": "there"}),
        "Private": ("actor", {"actorType": "player"}),
        "Actor": ("actor", {"actorType": "player", "actorId": kind}),
        "Model": ("ai", {"provider": "model"}),
        "AsyncModel": ("ai", {"provider": "async model"}),
        "Connector": ("connector", {}),
        "AsyncConnector": ("async connector", {}),
    }
    actions = {
        name: {"type": type_, "inputs": {**inputs, "input": kind}, "runAfter": {}}
        for name, (type_, inputs) in calls.items()
    }
    return loom.load({"definition": {"actions": actions}})


async def test_in_every_handler_of_a_flow_it_is_a_failure_of_the_action(
    deployment: Deployment, handlers: object
) -> None:
    runtime = await deployment.open({kind: _flow(kind) for kind in KINDS})
    names = {"argparse": "SystemExit", "Untouchable": "ActionFailed"}
    for kind in KINDS:
        found = await result(await runtime.start(kind, {}))
        assert len(found.actions) == 8
        for name, action in found.actions.items():
            in_thread = name not in ("Here", "AsyncModel", "AsyncConnector")
            code = "RuntimeError" if kind == "GeneratorExit" and in_thread else names.get(kind, kind)
            assert (action.status, action.code) == ("Failed", code), (kind, name, action.error)


class BadStart(StartEvent):
    """Raises when it is made where the run begins, though not where the run is asked for."""

    kind: str = "fine"

    @model_validator(mode="after")
    def check(self) -> Self:
        deadly(self.kind)
        return self


class Begins(Workflow):
    @step
    async def work(self, ev: BadStart) -> StopEvent:
        return StopEvent(result=ev.kind)


class Answer(HumanResponseEvent):
    kind: str = "fine"

    @model_validator(mode="after")
    def check(self) -> Self:
        deadly(self.kind)
        return self


class Asks(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result=answer.kind)


async def test_events_whose_class_asks_to_exit_reach_no_run(deployment: Deployment) -> None:
    """A start that the code refuses parks its run; an event that it refuses is an error for its sender."""
    runtime = await deployment.open({"begins": Begins(timeout=60), "asks": Asks(timeout=60)})
    for kind in ("SystemExit", "Unspeakable"):
        with pytest.raises((WorkflowRuntimeError, Unspeakable)):
            await runtime.start("begins", {"kind": kind})
        handler = await runtime.start("asks", {}, run_id=f"asks-{kind}")
        with pytest.raises(UnfitEventError):
            await runtime.send_event(handler.run_id, Answer.model_construct(kind=kind))
        await runtime.send_event(handler.run_id, Answer())
        assert await result(handler) == "fine"
    await deployment.close(runtime)

    client = await deployment.open()
    for kind in ("SystemExit", "Unspeakable"):
        await client.start("begins", {"kind": kind}, run_id=kind)
    runtime = await deployment.open({"begins": Begins(timeout=60)})
    for kind in ("SystemExit", "Unspeakable"):
        # On Temporal a start that the code refuses fails its run.
        info = await until_info(runtime, kind, lambda info: info.parked or info.status == "failed")
        assert kind in (info.parked or info.error or ""), info
    assert await result(await runtime.start("begins", {})) == "fine"


class Finicky(StopEvent):
    kind: str = "fine"

    @model_validator(mode="after")
    def check(self) -> Self:
        deadly(self.kind)
        return self


class Ends(Workflow):
    @step
    async def work(self, ev: StartEvent) -> Finicky:
        return Finicky.model_construct(kind=ev.kind)  # which checks nothing


async def test_a_result_that_its_class_does_not_take_back_is_an_error_for_who_awaits_it(deployment: Deployment) -> None:
    runtime = await deployment.open({"ends": Ends(timeout=60)})
    for kind in ("SystemExit", "Unspeakable"):
        handler = await runtime.start("ends", {"kind": kind}, run_id=kind)
        with pytest.raises(UnfitEventError):
            await result(handler)
        assert (await runtime.get(kind)).status == "completed"
