"""Looks from outside at what is left of a workload: the database, and what the killed processes had witnessed.

`check` gives the problems that it finds as lines; none means that nothing acknowledged was lost, and nothing doubled.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from kill_journal import Journal
from kill_witness import words_of
from kill_workload import DEPTH, Mark, Plan, Workload

from loom.runtime.connect import open_store
from loom.store.ports import Store
from loom.store.records import RunQuery

Words = dict[str, list[dict[str, Any]]]
CHILDREN = ("chain", "sleeps")


async def check(url: str, side: Path, work: Workload) -> list[str]:
    """All problems of a workload whose runs should have ended."""
    store = open_store(url)
    await store.open()
    try:
        problems = [problem async for problem in _all_runs(store, work, words_of(side))]
    finally:
        await store.close()
    if url.startswith("sqlite"):
        problems += _whole_file(url.removeprefix("sqlite:///"), work)
    return problems


async def _all_runs(store: Store, work: Workload, words: Words) -> AsyncIterator[str]:
    for plan in work.plans:
        children = sorted(await store.find(RunQuery(parent=plan.run_id)), key=lambda row: row.parent_ref)
        kinds = tuple(row.workflow.removeprefix(work.prefix) for row in children)
        if kinds != (CHILDREN if plan.kind == "parent" else ()):
            yield f"{plan.run_id}: its children are {kinds}"
        own = [Plan(row.run_id, kind, row.workflow) for row, kind in zip(children, kinds, strict=True)]
        for each in (plan, *own):
            stored = await store.export(each.run_id)
            if stored is None:
                yield f"{each.run_id}: the run is not there"
                continue
            async for problem in run_problems(Journal(stored, each.kind), each, words):
                yield f"{each.run_id}: {problem}"


async def run_problems(journal: Journal, plan: Plan, words: Words) -> AsyncIterator[str]:
    """What is wrong with one run."""
    row = journal.stored.row
    if row.head.status != "completed":
        yield f"it should be completed and is {row.head.status} ({row.head.error or row.head.parked or ''})"
        return
    if row.owner is not None or journal.stored.inbox or journal.stored.timers:
        yield "it has ended, but has an owner, mail or timers"
    expected = EXPECTATIONS[plan.kind](journal, plan)
    if journal.result != expected.result:
        yield f"its result is {journal.result!r} and not {expected.result!r}"
    in_store = await journal.marks()
    on_stream = [event.text for event in journal.stream if isinstance(event, Mark)]
    for place, marks in (("store", in_store), ("stream", on_stream)):
        if Counter(marks) != Counter(expected.marks):
            yield f"its {place} has the marks {marks!r} and not {expected.marks!r}"
    for problem in chain(
        journal.problems(), _events_problems(journal, plan), _witness_problems(journal, on_stream, words)
    ):
        yield problem


def _events_problems(journal: Journal, plan: Plan) -> Iterator[str]:
    """Every event was acknowledged in the end, so each must have been taken once."""
    wanted = {event.token: 1 for event in plan.events}
    taken = Counter(event.token for event in journal.events_from_outside())
    if taken != wanted:
        yield f"it took the events {dict(taken)!r} and not each of {sorted(wanted)!r} once"
    if set(journal.stored.event_ids) != set(wanted):
        yield f"its event ids are {journal.stored.event_ids!r} and not {sorted(wanted)!r}"


def _witness_problems(journal: Journal, on_stream: list[str], words: Words) -> Iterator[str]:
    """What was seen must be what is there."""
    run_id = journal.stored.row.run_id
    for seen in words["seen"]:
        if seen["run"] == run_id and on_stream[seen["number"] : seen["number"] + 1] != [seen["text"]]:
            yield f"a reader saw {seen['text']!r} as mark {seen['number']} of {on_stream!r}"
    for told in words["result"]:
        if told["run"] == run_id and told["result"] != journal.result:
            yield f"somebody was told the result {told['result']!r}"
    keys: dict[str, set[str]] = {}
    for body in words["body"]:
        if _run_of(body["key"]) == run_id:
            keys.setdefault(body["text"], set()).add(body["key"])
    for text, found in keys.items():
        if len(found) > 1:
            yield f"the work {text!r} had several idempotency keys: {sorted(found)}"
    made = {once["value"] for once in words["once"] if _run_of(once["key"]) == run_id}
    if not set(journal.recorded.values()) <= made:
        yield f"its recorded results {journal.recorded!r} are not among those that were worked out"


def _run_of(key: str) -> str:
    """Idempotency keys are `run:step:item`; a child's id holds colons of its own."""
    return key.rsplit(":", 2)[0]


class Expected:
    """What one application of every transition gives."""

    def __init__(self, result: Any, *marks: str) -> None:
        self.result = result
        self.marks = marks


def _chain(journal: Journal, _plan: Plan) -> Expected:
    token = next(iter(journal.recorded.values()), "one that was recorded")
    return Expected([token, token], "begin", "middle", f"token {token}", "end")


def _mixed(journal: Journal, _plan: Plan) -> Expected:
    token = next(iter(journal.recorded.values()), "one that was recorded")
    before = [f"think {depth} " for depth in range(DEPTH)]
    after = [f"think {depth} {token}" for depth in range(DEPTH, 2 * DEPTH)]
    return Expected([token, token], "begin", *before, "act", *after)


def _fan(_journal: Journal, _plan: Plan) -> Expected:
    spins = [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]
    return Expected([0, 1, 2, 3], "plan", *(f"spin {number} attempt {attempt}" for number, attempt in spins), "weave")


def _letters(_journal: Journal, plan: Plan) -> Expected:
    read: dict[str, list[str]] = {"blue": [], "red": []}
    for event in plan.events:
        read[event.to].append(event.token)
    asks = [f"{name} asks {number}" for name in read for number in range(2)]
    return Expected(read, *asks, *(f"{name} reads {token}" for name in read for token in read[name]))


def _votes(_journal: Journal, plan: Plan) -> Expected:
    return Expected(sorted(event.token for event in plan.events), "begin", "counted")


def _sleeps(_journal: Journal, _plan: Plan) -> Expected:
    return Expected("rested", "tired", "slept", "nobody came")


def _parent(_journal: Journal, _plan: Plan) -> Expected:
    return Expected([True, "rested"], "begin", "one child", "two children")


EXPECTATIONS: dict[str, Callable[[Journal, Plan], Expected]] = {
    "chain": _chain,
    "mixed": _mixed,
    "fan": _fan,
    "letters": _letters,
    "votes": _votes,
    "sleeps": _sleeps,
    "parent": _parent,
}


def _whole_file(path: str, work: Workload) -> Iterator[str]:
    """The file itself, and that nothing else is in it."""
    connection = sqlite3.connect(path)
    try:
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
        runs = connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
    finally:
        connection.close()
    if verdict != [("ok",)]:
        yield f"the file is damaged: {verdict}"
    expected = len(work.plans) + len(CHILDREN) * sum(plan.kind == "parent" for plan in work.plans)
    if runs != expected:
        yield f"there are {runs} runs and not {expected}"
