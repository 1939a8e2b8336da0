"""Entries on a cluster: the table by itself, and the workflow that keeps it on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hand_made import info_of
from temporal_server import fresh_temporal_url
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.records import ABSENT, Entry
from loom.temporal.address import parse_address
from loom.temporal.bridge import activations
from loom.temporal.client.cluster import Cluster
from loom.temporal.client.entries import Entries
from loom.temporal.names import ENTRIES
from loom.temporal.payloads import (
    DropEntry,
    EntriesArgument,
    EntryQuery,
    FoundEntries,
    PutEntry,
    Written,
    payload_of,
    value_of,
)
from loom.temporal.store import TemporalStore
from loom.temporal.workflow.entries import MAX_KEPT, EntriesInstance, EntriesRefused, EntryTable
from loom.temporal.workflow.runner import LoomHost, LoomRunner


@pytest.fixture
async def store() -> AsyncIterator[TemporalStore]:
    """A store whose task queue has a worker."""
    store = TemporalStore(parse_address(fresh_temporal_url()))
    await store.open()
    async with Worker(
        store.client,
        task_queue=store.address.task_queue,
        workflows=[LoomHost],
        unsandboxed_workflow_runner=LoomRunner({}),
    ):
        yield store
    await store.close()


# -- the table --------------------------------------------------------------------------------------------------------


def test_versions_grow_with_the_time_and_without_it() -> None:
    table = EntryTable(EntriesArgument("keys"))
    first = table.put(PutEntry("a", b"1"), 100.0).version
    second = table.put(PutEntry("b", b"1"), 100.0).version
    third = table.put(PutEntry("a", b"1"), 50.0).version
    assert [first, second, third] == [100_000_000, 100_000_001, 100_000_002]


def test_another_execution_goes_on_with_the_same_entries() -> None:
    table = EntryTable(EntriesArgument("keys"))
    table.put(PutEntry("b", b"2"), 1.0)
    table.put(PutEntry("a", b"1", expires_at=50.0), 2.0)
    again = EntryTable(table.argument())
    assert again.page(EntryQuery(10.0)) == table.page(EntryQuery(10.0))
    assert again.put(PutEntry("c", b""), 0.0).version > table.get(EntryQuery(10.0, key="a")).entries[0].version


def test_an_expired_entry_is_none() -> None:
    table = EntryTable(EntriesArgument("keys"))
    table.put(PutEntry("a", b"1", expires_at=10.0), 1.0)
    assert table.get(EntryQuery(9.0, key="a")).entries
    assert not table.get(EntryQuery(10.0, key="a")).entries
    assert not table.page(EntryQuery(10.0)).entries
    assert table.drop(DropEntry("a"), 10.0) == Written()
    assert table.put(PutEntry("a", b"2", expect=ABSENT), 11.0).version


def test_a_table_that_would_be_too_large_refuses_and_has_room_again() -> None:
    table = EntryTable(EntriesArgument("keys"))
    half = b"x" * (MAX_KEPT // 2)
    table.check(PutEntry("a", half), 1.0)
    table.put(PutEntry("a", half), 1.0)
    with pytest.raises(EntriesRefused, match="kind 'keys' would have"):
        table.check(PutEntry("b", half), 1.0)
    table.drop(DropEntry("a"), 1.0)
    table.check(PutEntry("b", half), 1.0)


def test_a_page_is_no_larger_than_an_answer_may_be() -> None:
    entries = tuple(Entry("keys", f"k{number}", 1, b"x" * 300_000) for number in range(4))
    page = EntryTable(EntriesArgument("keys", entries)).page(EntryQuery(1.0))
    assert [entry.key for entry in page.entries] == ["k0", "k1"]


# -- the workflow -----------------------------------------------------------------------------------------------------


def activation(*jobs: Any, suggested: bool = False) -> activations.WorkflowActivation:
    act = activations.WorkflowActivation(run_id="execution-1", continue_as_new_suggested=suggested)
    act.timestamp.FromSeconds(1000)
    for job in jobs:
        act.jobs.add().CopyFrom(job)
    return act


def opened(*entries: Entry) -> tuple[EntriesInstance, activations.WorkflowActivationJob]:
    job = activations.WorkflowActivationJob()
    job.initialize_workflow.arguments.append(payload_of(EntriesArgument("keys", entries)))
    return EntriesInstance(info_of("loom.entries:loom:keys", ENTRIES), lambda *_: None), job


def put(key: str, data: bytes, *, validate: bool = True) -> activations.WorkflowActivationJob:
    job = activations.WorkflowActivationJob()
    job.do_update.name, job.do_update.protocol_instance_id, job.do_update.run_validator = "put", key, validate
    job.do_update.input.append(payload_of(PutEntry(key, data)))
    return job


def test_when_it_is_suggested_the_entries_go_on_in_a_new_execution() -> None:
    instance, begin = opened()
    completion = instance.activate(activation(begin, put("a", b"1"), suggested=True))
    accepted, completed, continued = completion.successful.commands
    assert accepted.update_response.HasField("accepted")
    assert value_of(completed.update_response.completed, Written) == Written(1_000_000_000)
    argument = continued.continue_as_new_workflow_execution.arguments[0]
    assert value_of(argument, EntriesArgument).entries == (Entry("keys", "a", 1_000_000_000, b"1"),)


def test_a_query_never_continues() -> None:
    instance, begin = opened(Entry("keys", "a", 1, b"1"))
    instance.activate(activation(begin))
    job = activations.WorkflowActivationJob()
    job.query_workflow.query_type = "list"
    job.query_workflow.arguments.append(payload_of(EntryQuery(1.0)))
    [answer] = instance.activate(activation(job, suggested=True)).successful.commands
    assert value_of(answer.respond_to_query.succeeded.response, FoundEntries).entries[0].key == "a"


def test_what_was_accepted_once_is_accepted_on_a_replay() -> None:
    large = b"x" * MAX_KEPT
    instance, begin = opened()
    [refused] = instance.activate(activation(begin, put("a", large))).successful.commands
    assert refused.update_response.HasField("rejected")
    instance, begin = opened()
    accepted, _ = instance.activate(activation(begin, put("a", large, validate=False))).successful.commands
    assert accepted.update_response.HasField("accepted")


def test_what_cannot_be_read_fails_the_task_only() -> None:
    instance, _ = opened()
    completion = instance.activate(activation(put("a", b"1")))
    assert "AttributeError" in completion.failed.failure.message


def test_what_somebody_else_sends_is_refused_and_holds_nobody_up() -> None:
    instance, first = opened()
    instance.activate(activation(first))
    nothing = put("a", b"1")
    del nothing.do_update.input[:]
    asked = activations.WorkflowActivationJob()
    asked.query_workflow.query_type = "get"
    (refused,) = instance.activate(activation(nothing)).successful.commands
    assert refused.update_response.HasField("rejected")
    (answer,) = instance.activate(activation(asked)).successful.commands
    assert answer.respond_to_query.HasField("failed")


# -- on a real server -------------------------------------------------------------------------------------------------


async def test_entries_are_kept_and_compared(store: TemporalStore) -> None:
    first = await store.put_entry("keys", "a", b"1", expect=ABSENT)
    assert first is not None
    assert await store.put_entry("keys", "a", b"2", expect=ABSENT) is None
    second = await store.put_entry("keys", "a", b"\x00\xff", expect=first)
    assert second is not None
    assert second > first
    assert await store.entry("keys", "a") == Entry("keys", "a", second, b"\x00\xff")
    assert await store.entry("other", "a") is None
    assert not await store.drop_entry("keys", "a", expect=first)
    assert await store.drop_entry("keys", "a", expect=second)
    assert not await store.drop_entry("keys", "a")


async def test_one_of_many_that_expect_the_same_is_written(store: TemporalStore) -> None:
    answers = await asyncio.gather(*(store.put_entry("keys", "a", b"%d" % n, expect=ABSENT) for n in range(20)))
    assert sum(answer is not None for answer in answers) == 1


async def test_pages_in_the_order_of_keys(store: TemporalStore) -> None:
    keys = ["b", "a", "c", "é", "Z"]
    for key in keys:
        await store.put_entry("keys", key, key.encode())
    await store.put_entry("keys", "gone", b"", expires_at=time.time() - 1)
    assert [entry.key for entry in await store.entries("keys")] == sorted(keys)
    assert [entry.key for entry in await store.entries("keys", after="a", limit=2)] == ["b", "c"]


async def test_what_is_too_large_is_refused_in_words(store: TemporalStore) -> None:
    with pytest.raises(StoreError, match="kind 'keys' would have"):
        await store.put_entry("keys", "a", b"x" * 1_300_000)
    with pytest.raises(ValueError, match="1 to 200 characters"):
        await store.put_entry("keys", "k" * 201, b"")
    assert await store.put_entry("keys", "a", b"small") is not None


class _Handle:
    """A workflow whose tasks end without an update so many times."""

    def __init__(self, untaken: int) -> None:
        self.untaken = untaken
        self.asked = 0

    async def execute_update(self, *_arguments: object, **_options: object) -> RawValue:
        self.asked += 1
        if self.asked <= self.untaken:
            raise WorkflowUpdateFailedError(ApplicationError("not processed", type="UnprocessedUpdate"))
        return RawValue(payload_of(Written(version=7)))


async def test_an_update_that_no_task_has_taken_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, handle = Cluster(parse_address("temporal://localhost:7233")), _Handle(untaken=2)
    monkeypatch.setattr(cluster, "handle", lambda _run_id: handle)
    assert await Entries(cluster).put("kind", PutEntry("key", b"data")) == 7
    assert handle.asked == 3


async def test_a_workflow_that_takes_no_updates_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, handle = Cluster(parse_address("temporal://localhost:7233")), _Handle(untaken=100)
    monkeypatch.setattr(cluster, "handle", lambda _run_id: handle)
    with pytest.raises(StoreUnavailable, match="takes no updates"):
        await Entries(cluster).put("kind", PutEntry("key", b"data"))


async def test_a_caller_that_is_cancelled_while_it_writes_is_cancelled() -> None:
    """The SDK tells of it as of an update that nobody has answered: then a task that is to end would go on."""
    store = TemporalStore(parse_address(fresh_temporal_url()))
    await store.open()
    writing = asyncio.create_task(store.put_entry("marks", "a", b"1"))
    await asyncio.sleep(0.3)  # no worker is there, so that it cannot end by itself
    assert not writing.done()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await store.close()
