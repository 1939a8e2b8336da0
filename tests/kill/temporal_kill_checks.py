"""Looks at what is left of the runs on a Temporal cluster whose workers and server were killed.

The journal that a run's executions tell is checked as that of a database is; beneath it every history of the cluster
must lead to the commands that it records.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from kill_checks import CHILDREN, EXPECTATIONS, Expected, Words, run_problems
from kill_journal import CODES, Journal
from kill_workload import Plan, Spun, Vote
from msgspec.structs import replace
from temporal_kill_work import ROUNDS, STEPS, THREADS, VOTES
from typing_extensions import override

from loom.core.records import IdleReport, Published
from loom.core.ticks import TickAddEvent, TickStartRun
from loom.runtime.durable.registration import registration_of
from loom.runtime.verification import replayed_run
from loom.store.records import RunQuery

_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"')
_SNAPSHOT = re.compile(r"The snapshot after \d+ ticks differs in: (.*)\.")
_TIMED = {"alive_since", "at", "deadline", "idle_since", "outcome", "plan", "timers", "waiting", "workers"}
"""The fields of a state that hold times, if among other things."""

CODES |= {"tally": registration_of("tally", STEPS["tally"])}


def _tally(_journal: Journal, plan: Plan) -> Expected:
    votes = [f"vote {event.token}" for event in plan.events if isinstance(event, Vote)]
    spins = [f"spin {number}" for number in range(THREADS)]
    return Expected(10_000 + VOTES + 100 * THREADS, "begin", *votes, *spins)


EXPECTATIONS |= {"tally": _tally}


class ToldJournal(Journal):
    """The journal as a cluster has it: nothing of it is linked or in a mailbox, and executions begin with a resume."""

    @override
    def events_from_outside(self) -> list[Any]:
        messages = [tick for tick in self.ticks if isinstance(tick, TickAddEvent) and tick.event_id is not None]
        return [self._code.codec.event(tick.event) for tick in messages]

    @override
    def _link_problems(self) -> Iterator[str]:
        yield from ()

    @override
    def _replay_problems(self) -> Iterator[str]:
        if (replayed := _timeless(self._replayed)) != (published := _timeless(self._published)):
            yield f"replay publishes {replayed!r}, but its stream is {published!r}"

    @override
    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.ticks or not isinstance(self.ticks[0], TickStartRun):
            yield "it does not begin with its start"


def _timeless(published: list[Published]) -> list[Published]:
    """Without the times since when a run waits.

    A task that was lost with its worker is done again later, and tells the time then. A worker that has answered a
    query in between has seen its events already, with the time of the task before.
    """
    return [
        replace(event, waiters=(), idle_since=0.0) if isinstance(event, IdleReport) else event for event in published
    ]


def _is_about_time(difference: str) -> bool:
    """Whether what is stored and what replay gives is the same, but for such times."""
    if (snapshot := _SNAPSHOT.fullmatch(difference)) is not None:
        return set(snapshot[1].split(", ")) <= _TIMED
    stored, _, replayed = _TIME.sub("", difference).partition("; replay gives: ")
    return difference.startswith("Event ") and stored.endswith(replayed.rstrip("."))


async def check_run(runtime: Any, plan: Plan, words: Words) -> AsyncIterator[str]:
    """What is wrong with a run, or with one of its children."""
    children = sorted(await runtime.store.find(RunQuery(parent=plan.run_id)), key=lambda row: row.parent_ref)
    kinds = tuple(row.workflow for row in children)
    if kinds != (CHILDREN if plan.kind == "parent" else ()):
        yield f"its children are {kinds}"
    for each in (plan, *(Plan(row.run_id, row.workflow, row.workflow) for row in children)):
        async for problem in _problems(runtime, each, words):
            yield f"{each.run_id}: {problem}"


async def _problems(runtime: Any, plan: Plan, words: Words) -> AsyncIterator[str]:
    stored = await runtime.store.export(plan.run_id)
    if stored is None:
        yield "the run is not there"
        return
    if plan.kind == "loop":
        [result] = [told["result"] for told in words["result"] if told["run"] == plan.run_id]
        if result != ROUNDS:
            yield f"it has gone round {result} times and not {ROUNDS}"
    else:
        journal = ToldJournal(stored, plan.kind)
        async for problem in run_problems(journal, plan, words):
            yield problem
        sent = [event.number for event in journal.stream if isinstance(event, Spun)]
        if plan.kind == "tally" and sent != list(range(THREADS)):
            yield f"its stream tells of the threads {sent}"
    for problem in (await replayed_run(runtime, plan.run_id)).differences:
        if not _is_about_time(problem):
            yield problem
