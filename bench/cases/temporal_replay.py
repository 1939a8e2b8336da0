"""A history of Temporal is replayed: what a worker does that takes up a run which it does not have in its cache."""

import asyncio
from collections.abc import Callable
from typing import Any

from bench.cases import _temporal
from bench.measure import Stopwatch
from bench.spec import Case, Figures, Metric, faster_than

EVENTS_PER_STEP = 6


def _stock(peer: _temporal.Peer) -> Any:
    """The replayer as temporalio's documentation shows it: workflows run in its sandbox."""
    from temporalio.worker import Replayer

    return Replayer(workflows=[peer.host])


def _unsandboxed(peer: _temporal.Peer) -> Any:
    from temporalio.worker import Replayer

    return Replayer(workflows=[peer.host], workflow_runner=peer.runner)


def _looms(peer: _temporal.Peer) -> Any:
    from loom.temporal.workflow.runner import make_replayer

    return make_replayer(peer.runner)


def _measured(
    make: Callable[[str, int], _temporal.Peer], replayer_for: Callable[[_temporal.Peer], Any]
) -> Callable[[int], Figures]:
    def measure(size: int) -> Figures:
        peer = make("Chain", max(2, size // EVENTS_PER_STEP))
        hand = peer.hand()
        commands = hand.begin()
        while commands and commands[-1].HasField("schedule_activity"):
            commands = hand.resolve(commands[-1].schedule_activity, peer.answer)
        history = hand.history()
        replayer = replayer_for(peer)

        async def main() -> Figures:
            watch = Stopwatch()
            await replayer.replay_workflow(history)
            wall, cpu = watch.read()
            return {"us": wall / len(history.events) * 1e6, "cpu": cpu / len(history.events) * 1e6}

        return asyncio.run(main())

    return measure


CASE = Case(
    name="temporal-replay",
    title="the history of a run on Temporal is replayed",
    order=102,
    size=10_000,
    metrics=(Metric("us", "us/event"), Metric("cpu", "CPU us/event")),
    peers={
        "loom": _measured(_temporal.loom, _looms),
        "temporalio": _measured(_temporal.plain, _stock),
        "temporalio unsandboxed": _measured(_temporal.plain, _unsandboxed),
    },
    targets=(faster_than("temporalio", "us", 2),),
    preparation_s=30,
)
