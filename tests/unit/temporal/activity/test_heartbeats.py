"""Steps that come after deaths of their workers: on probation, given up, or not wanted any more."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from activity_world import QUICK, World
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from loom import StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickCancelRun
from loom.store.deaths import Deaths
from loom.temporal.activity.heartbeats import Trials
from loom.temporal.activity.step_activity import StepActivity
from loom.temporal.names import ACTIVITY_CODE
from loom.temporal.payloads import CodeRequest, CodeView, payload_of, value_of


class Deadly(Workflow):
    begun: int = 0

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        type(self).begun += 1
        return StopEvent(result="done")


class Cluster:
    """What workers tell the cluster with their heartbeats, and what it knows of lost ones."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []

    async def was_lost(self, info: activity.Info) -> bool:
        return True

    async def record(self, token: bytes, *details: Any) -> None:
        self.noted.append(details)


@pytest.fixture
def cluster() -> Cluster:
    Deadly.begun = 0
    return Cluster()


def _worker(world: World, cluster: Cluster, probation: float = 0.01) -> StepActivity:
    trials = Trials(probation, cluster.was_lost, cluster.record)
    return StepActivity(world.codes, lambda info: world, QUICK, trials=trials)


def _after(marks: int, own: int, *, on_trial: bool = True, **given: Any) -> ActivityEnvironment:
    """An attempt at an activity whose last heartbeat said so much."""
    env = ActivityEnvironment()
    details: Sequence[Any] = (marks, own, env.info.started_time.timestamp(), on_trial) if marks else ()
    env.info = dataclasses.replace(env.info, heartbeat_details=details, **given)
    return env


async def test_the_fifth_death_on_probation_is_the_last(cluster: Cluster) -> None:
    world = World(Deadly())
    world.start()
    (command,) = world.scheduled
    await world.perform(command, attempt=8, env=_after(6, 4), worker=_worker(world, cluster))
    assert world.outcome.status == "parked"
    assert world.outcome.message == (
        "poison: 5 workers have died while step 'work' was on probation, 7 while it was at work. Resume the run to try "
        "it again, or cancel it."
    )
    assert (Deadly.begun, cluster.noted) == (0, [])


async def test_a_death_counts_for_the_step_that_was_on_probation(cluster: Cluster) -> None:
    world = World(Deadly())
    world.start()
    (command,) = world.scheduled
    await world.perform(command, attempt=8, env=_after(6, 4, on_trial=False), worker=_worker(world, cluster))
    assert world.result == "done"
    assert [(marks, own, on_trial) for marks, own, _, on_trial in cluster.noted] == [
        (7, 4, False),
        (7, 4, True),
        (7, 4, False),
    ]


async def test_a_start_that_kills_its_workers_fails_its_run(cluster: Cluster) -> None:
    """The class of a start event is the author's code, and is asked where a run begins without its code."""
    world = World(Deadly())
    worker, asked = _worker(world, cluster), [RawValue(payload_of(CodeRequest("made")))]
    beats = {"activity_type": ACTIVITY_CODE, "heartbeat_timeout": timedelta(seconds=1)}
    with pytest.raises(ApplicationError, match="poison: 5 workers have died while its start was on") as given_up:
        await _after(6, 4, attempt=8, **beats).run(worker.perform, asked)
    assert given_up.value.non_retryable
    told = await _after(5, 3, attempt=7, **beats).run(worker.perform, asked)
    assert value_of(told.payload, CodeView).config == world.made.code.config
    assert [(marks, own, on_trial) for marks, own, _, on_trial in cluster.noted] == [
        (6, 4, False),
        (6, 4, True),
        (6, 4, False),
    ]


async def test_the_cluster_knows_of_an_acquittal_before_the_next_suspect_begins() -> None:
    """Else the death that the next one causes would count for both."""
    told: list[tuple[str, bool]] = []

    class Beats:
        def __init__(self, name: str) -> None:
            self.token = self.name = name

        def tell(self, *_details: Any) -> None:
            pass  # a heartbeat that waits to be sent

    async def record(token: Any, *details: Any) -> None:
        await asyncio.sleep(0.01)
        told.append((token, details[-1]))

    async def never(_info: Any) -> bool:
        return False

    trials, deaths = Trials(0.02, never, record), Deaths(2, 0, 0.0, suspect=True)
    over = asyncio.Event()

    async def long() -> None:
        async with trials.on_probation(cast("Any", Beats("long")), deaths):
            await over.wait()

    going = asyncio.create_task(long())
    while ("long", True) not in told:  # noqa: ASYNC110 - it is on probation
        await asyncio.sleep(0)
    async with trials.on_probation(cast("Any", Beats("deadly")), deaths):
        assert told[-2:] == [("long", False), ("deadly", True)], told
    over.set()
    await going


async def test_a_suspect_that_is_cancelled_while_it_waits_for_its_turn_is_not_begun(cluster: Cluster) -> None:
    world = World(Deadly())
    world.start()
    (command,) = world.scheduled
    worker = _worker(world, cluster)
    await worker._trials._turn.acquire()  # another one is on probation
    waiting = asyncio.create_task(world.perform(command, attempt=4, env=_after(2, 0), worker=worker))
    while not cluster.noted:  # noqa: ASYNC110 - what it writes before it waits
        await asyncio.sleep(0)
    world.tell(TickCancelRun(at=0.0))
    worker._trials._turn.release()
    with pytest.raises(ApplicationError, match="is not wanted any more"):
        await waiting
    assert Deadly.begun == 0


@pytest.mark.parametrize(("waited_s", "begun"), [(0.0, 1), (1.0, 0)])
async def test_a_first_attempt_that_has_waited_for_long_asks_before_it_begins(
    cluster: Cluster, waited_s: float, begun: int
) -> None:
    """The cluster may give a step to a worker before the worker has heard of the cancel."""
    world = World(Deadly())
    world.start()
    (command,) = world.scheduled
    world.tell(TickCancelRun(at=0.0))
    env = ActivityEnvironment()
    scheduled = env.info.started_time - timedelta(seconds=waited_s)
    env.info = dataclasses.replace(env.info, current_attempt_scheduled_time=scheduled)
    if begun:
        await world.result_of(command, env=env)
    else:
        with pytest.raises(ApplicationError, match="is not wanted any more"):
            await world.result_of(command, env=env)
    assert Deadly.begun == begun
