"""A store over a cluster without a worker: what needs none, and what is told where one is missing."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from temporal_server import fresh_temporal_url, session_server
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.converter import DataConverter, PayloadCodec

from loom.core.records import EventKind, EventRecord
from loom.core.ticks import TickAddEvent, TickCancelRun
from loom.store import codec
from loom.store.committer import Committer
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import ClaimRun, Posted, PostMessage, PurgeRuns, Started, StartRun
from loom.store.ports import Ownership
from loom.store.records import RunQuery
from loom.temporal.address import TemporalAddress, parse_address
from loom.temporal.names import SIGNAL_MAIL
from loom.temporal.payloads import RunMessage, value_of
from loom.temporal.store import TemporalStore

START = codec.encode_start(codec.StartSpec(inputs="{}"))
OTHER = codec.encode_start(codec.StartSpec(inputs='{"a":1}'))
CANCEL = codec.encode_tick(TickCancelRun(at=1.0))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.temporal.client.reads.ROW_PATIENCE_S", 0.1)
    monkeypatch.setattr("loom.temporal.client.writes._SEEN_PATIENCE_S", 0.1)


@pytest.fixture(params=[True, False], ids=["attributes", "plain"])
async def store(request: Any) -> AsyncIterator[TemporalStore]:
    store = TemporalStore(parse_address(fresh_temporal_url(attributes=request.param)))
    await store.open()
    assert store.has_attributes is request.param
    yield store
    await store.close()


@pytest.fixture
async def one() -> AsyncIterator[TemporalStore]:
    store = TemporalStore(parse_address(fresh_temporal_url()))
    await store.open()
    yield store
    await store.close()


async def eventually(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """The cluster's visibility follows a little later."""
    until = time.monotonic() + 60
    while (found := await look()) != wanted:
        assert time.monotonic() < until, f"{found} is not {wanted}"
        await asyncio.sleep(0.05)


async def ids(store: TemporalStore, **query: Any) -> list[str]:
    return [row.run_id for row in await store.find(RunQuery(**query))]


# -- starting ---------------------------------------------------------------------------------------------------------


async def test_a_repeated_start_tells_what_the_run_was_started_with(one: TemporalStore) -> None:
    [first] = await one.apply([StartRun("a", "greet", START, 5.0)])
    [again] = await one.apply([StartRun("a", "greet", START, 6.0)])
    [other] = await one.apply([StartRun("a", "other", OTHER, 7.0)])
    assert first == Started(True)
    assert again == Started(False, "greet", START)
    assert other == Started(False, "greet", START)


async def test_a_start_with_an_event_is_one_signal_with_start(one: TemporalStore) -> None:
    word = TickAddEvent(at=1.0, event=EventRecord(EventKind("Word"), "{}"), accepted=True)

    async def start(event_id: str, workflow: str = "greet", at: float = 5.0) -> Started:
        message = PostMessage("a", codec.encode_tick(word), at, event_id=event_id)
        [started] = await one.apply([StartRun("a", workflow, START, at, message=message)])
        assert isinstance(started, Started)
        return started

    assert await start("1") == Started(True)
    events = [event async for event in one.client.get_workflow_handle("a").fetch_history_events()]
    first, second, third = (event.WhichOneof("attributes") for event in events)
    assert first == "workflow_execution_started_event_attributes"
    assert second == "workflow_execution_signaled_event_attributes"
    assert third == "workflow_task_scheduled_event_attributes"
    signal = events[1].workflow_execution_signaled_event_attributes
    message = value_of(signal.input.payloads[0], RunMessage)
    assert (signal.signal_name, message.tick) == (SIGNAL_MAIL, replace(word, event_id="1"))
    assert await start("2", at=6.0) == Started(False, "greet", START, posted=True)
    assert await start("3", "other") == Started(False, "greet", START)
    await one.client.get_workflow_handle("a").terminate()
    assert await start("4", at=7.0) == Started(False, "greet", START)


async def test_one_of_many_starts_at_once_makes_the_run(one: TemporalStore) -> None:
    answers = await asyncio.gather(*(one.apply([StartRun("a", "greet", START, 5.0)]) for _ in range(8)))
    assert sum(answer[0].created for answer in answers if isinstance(answer[0], Started)) == 1


async def test_a_start_that_is_too_large_is_refused_with_its_size(one: TemporalStore) -> None:
    large = codec.encode_start(codec.StartSpec(inputs="x" * 2_000_000))
    with pytest.raises(StoreError, match=r"run 'a'.* has 2000\d+ bytes.*2 MiB"):
        await one.apply([StartRun("a", "greet", large, 5.0)])
    assert await one.get("a") is None


async def test_news_of_what_this_store_does(one: TemporalStore) -> None:
    heard: list[str] = []
    one.on_notification = heard.extend
    await one.apply([StartRun("a", "greet", START, 5.0)])
    await one.apply([StartRun("a", "greet", START, 5.0), PostMessage("none", CANCEL, 1.0)])
    assert heard == ["a"]


# -- groups -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_done_twice_when_one_of_a_group_fails(one: TemporalStore) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    committer = Committer(one)
    large = codec.encode_start(codec.StartSpec(inputs="x" * 2_000_000))
    told = committer.submit(PostMessage("a", CANCEL, 1.0))
    failed = committer.submit(StartRun("b", "greet", large, 5.0))
    started = committer.submit(StartRun("c", "greet", START, 5.0))
    await committer.close()
    assert told.result() == Posted("posted")
    assert started.result() == Started(True)
    with pytest.raises(StoreError, match="2 MiB"):
        failed.result()
    assert len(await messages(one, "a")) == 1


async def test_what_was_done_is_not_told_to_have_failed_with_others_of_its_group(
    one: TemporalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = one._starter.start

    async def overloaded(asked: StartRun) -> Started:
        if asked.run_id in ("a", "b"):
            raise StoreUnavailable("The cluster has too much to do.")
        return await start(asked)

    monkeypatch.setattr(one._starter, "start", overloaded)
    committer = Committer(one)
    told = {name: committer.submit(StartRun(name, "greet", START, 5.0)) for name in ("a", "b", "c", "d")}
    await committer.close()
    assert [told[name].result() for name in ("c", "d")] == [Started(True)] * 2
    for name in ("a", "b"):
        with pytest.raises(StoreUnavailable, match="too much"):
            told[name].result()


async def messages(store: TemporalStore, run_id: str) -> list[RunMessage]:
    history = await store.client.get_workflow_handle(run_id).fetch_history()
    signals = [
        event.workflow_execution_signaled_event_attributes
        for event in history.events
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert all(signal.signal_name == SIGNAL_MAIL for signal in signals)
    return [value_of(signal.input.payloads[0], RunMessage) for signal in signals]


async def test_what_is_told_to_one_run_keeps_its_order(one: TemporalStore) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    ticks = [TickCancelRun(at=1.0, reason=str(number)) for number in range(10)]
    await one.apply([PostMessage("a", codec.encode_tick(tick), 1.0) for tick in ticks])
    assert [message.tick for message in await messages(one, "a")] == ticks


async def test_what_only_an_owner_does_does_not_exist(one: TemporalStore) -> None:
    with pytest.raises(TypeError, match="ClaimRun does not exist on Temporal"):
        await one.apply([ClaimRun("a", 1)])
    assert not isinstance(one, Ownership)


# -- telling ----------------------------------------------------------------------------------------------------------


async def test_a_letter_carries_the_id_of_its_event(one: TemporalStore) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    event = EventRecord(EventKind("x.Note"), "{}")
    message = PostMessage("a", codec.encode_tick(TickAddEvent(at=1.0, event=event)), 1.0, event_id="e1")
    assert await one.apply([message]) == [Posted("posted")]
    [message] = await messages(one, "a")
    assert isinstance(message.tick, TickAddEvent)
    assert (message.tick.event_id, message.tick.event) == ("e1", event)


async def test_a_letter_to_nobody_and_to_a_closed_run(one: TemporalStore) -> None:
    assert await one.apply([PostMessage("none", CANCEL, 1.0)]) == [Posted("no_run")]
    await one.apply([StartRun("a", "greet", START, 5.0)])
    await one.get("a")
    await one.client.get_workflow_handle("a").terminate(reason="enough")
    assert await one.apply([PostMessage("a", CANCEL, 1.0)]) == [Posted("finished", status="failed")]


async def test_a_workflow_of_somebody_else_is_no_run(one: TemporalStore) -> None:
    await one.client.start_workflow("plain", "argument", id="theirs", task_queue="loom")
    assert await one.get("theirs") is None
    assert await one.load("theirs") is None
    assert await one.apply([PostMessage("theirs", CANCEL, 1.0)]) == [Posted("no_run")]
    [started] = await one.apply([StartRun("theirs", "greet", START, 5.0)])
    assert isinstance(started, Started)
    assert (started.created, started.workflow) == (False, "plain")


# -- rows -------------------------------------------------------------------------------------------------------------


async def test_a_run_without_a_worker_says_so(one: TemporalStore) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0, tags={"k": "v"}, parent="p", parent_ref=3)])
    row = await one.get("a")
    assert row is not None
    assert (row.workflow, row.created_at, row.tags, row.parent, row.parent_ref) == ("greet", 5.0, {"k": "v"}, "p", 3)
    assert row.head.status == "running"
    assert row.head.parked is None
    assert row.head.error is not None
    assert row.head.error.startswith("No worker of task queue 'loom' answers")


async def test_a_terminated_run_has_failed_and_says_why(one: TemporalStore) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    await one.client.get_workflow_handle("a").terminate(reason="enough")
    row = await one.get("a")
    assert row is not None
    assert (row.head.status, row.head.error) == ("failed", "It was terminated on Temporal: enough")
    assert row.ended_at is not None
    assert row.ended_at > time.time() - 60


async def test_a_journal_that_nobody_tells_names_the_task_queue(
    one: TemporalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    with monkeypatch.context() as impatient:
        impatient.setattr("loom.temporal.client.reads.PATIENT_S", 0.1)
        with pytest.raises(StoreUnavailable, match="No worker of task queue 'loom'"):
            await one.chunks("a", 0, 10)
        with pytest.raises(StoreUnavailable, match="No worker of task queue 'loom'"):
            await one.stream("a", 0, 10)
    # A busy server may take its time to say that there is no such run.
    assert await one.chunks("none", 0, 10) == []


# -- deleting ---------------------------------------------------------------------------------------------------------


async def test_a_deleted_run_is_gone_and_its_id_is_free(one: TemporalStore) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    assert await one.apply([PurgeRuns(run_id="a")]) == [0], "it is running"
    await one.client.get_workflow_handle("a").terminate()
    assert await one.apply([PurgeRuns(run_id="a")]) == [1]
    other = TemporalStore(one.address)
    await other.open()
    for store in (one, other):
        assert await store.get("a") is None
        assert await store.load("a") is None
    assert await one.apply([PurgeRuns(run_id="a")]) == [0]
    assert await one.apply([StartRun("a", "greet", OTHER, 6.0)]) == [Started(True)]
    row = await one.get("a")
    assert row is not None
    assert row.created_at == 6.0


async def test_a_run_that_is_let_go_on_while_it_is_deleted_stays(
    one: TemporalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.apply([StartRun("a", "greet", START, 5.0)])
    await one.client.get_workflow_handle("a").terminate()
    look = one._reader.observe

    async def looked_at(run_id: str, **how: Any) -> Any:
        found = await look(run_id, **how)
        await one.client.start_workflow("greet", id="a", task_queue="loom")
        return found

    monkeypatch.setattr(one._reader, "observe", looked_at)
    assert await one.apply([PurgeRuns(run_id="a")]) == [0]
    assert (await one.client.get_workflow_handle("a").describe()).status is WorkflowExecutionStatus.RUNNING


async def test_runs_are_deleted_by_the_time_of_their_end(one: TemporalStore) -> None:
    await one.apply([StartRun(name, "greet", START, 5.0) for name in ("a", "b", "c")])
    for name in ("a", "b"):
        await one.client.get_workflow_handle(name).terminate()
    await eventually(lambda: ids(one, status="failed"), ["b", "a"])
    assert await one.apply([PurgeRuns(ended_before=time.time() - 3600)]) == [0]
    assert await one.apply([PurgeRuns(ended_before=time.time() + 3600, limit=1)]) == [1]
    assert await one.apply([PurgeRuns(ended_before=time.time() + 3600)]) == [1]
    assert await ids(one) == ["c"]


# -- finding ----------------------------------------------------------------------------------------------------------


async def test_pages_are_exact(store: TemporalStore) -> None:
    names = [f"run-{number}" for number in range(7)]
    await store.apply([StartRun(name, "greet", START, 100.0 + number // 2) for number, name in enumerate(names)])
    await eventually(lambda: ids(store), names[::-1])
    for oldest_first in (False, True):
        found: list[str] = []
        after: tuple[float, str] | None = None
        while rows := await store.find(RunQuery(after=after, limit=3, oldest_first=oldest_first)):
            found += [row.run_id for row in rows]
            after = (rows[-1].created_at, rows[-1].run_id)
        assert found == (names if oldest_first else names[::-1])


async def test_filters(store: TemporalStore) -> None:
    await store.apply(
        [
            StartRun("a", "greet", START, 100.0, tags={"team": "blue", "odd": 'it\'s "odd" \\ ünï'}),
            StartRun("b", 'say "hi"', START, 200.0, tags={"team": "blue"}, parent="a"),
            StartRun("c", "greet", START, 300.0, tags={f"many-{number}": "x" * 50 for number in range(60)}),
        ]
    )
    await store.client.get_workflow_handle("c").terminate()
    await store.client.start_workflow("greet", id="theirs", task_queue="loom")
    await eventually(lambda: ids(store, status="failed"), ["c"])
    await eventually(lambda: ids(store), ["c", "b", "a"])
    assert await ids(store, status="running") == ["b", "a"]
    assert await ids(store, status=("failed", "completed")) == ["c"]
    assert await ids(store, status=()) == []
    assert await ids(store, workflow="greet") == ["c", "a"]
    assert await ids(store, workflow='say "hi"') == ["b"]
    assert await ids(store, tags={"team": "blue"}) == ["b", "a"]
    assert await ids(store, tags={"odd": 'it\'s "odd" \\ ünï'}) == ["a"]
    assert await ids(store, tags={"many-7": "x" * 50}) == ["c"]
    assert await ids(store, tags={"team": "red"}) == []
    assert await ids(store, parent="a") == ["b"]
    assert await ids(store, created_after=100.0) == ["c", "b"]
    assert await ids(store, created_before=200.0) == ["a"]
    assert await ids(store, parked=True) == [], "nobody works for them, which is something else"
    assert await ids(store, idle=True) == []


async def test_runs_from_before_the_attributes_are_found_too() -> None:
    store = TemporalStore(parse_address(fresh_temporal_url(attributes=False)))
    await store.open()
    await store.apply([StartRun("old", "greet", START, 1.0, tags={"team": "blue"})])
    assert await store.register_attributes() == ["LoomIdleSince", "LoomTags", "LoomWaitingFor"]
    assert await store.register_attributes() == []
    assert store.has_attributes

    async def start() -> list[Any]:
        try:
            return await store.apply([StartRun("new", "greet", START, 2.0, tags={"team": "blue"})])
        except StoreError:  # the cluster has not heard of its attributes yet
            return []

    await eventually(start, [Started(True)])
    await eventually(lambda: ids(store, tags={"team": "blue"}), ["new", "old"])


async def test_only_the_runs_of_the_task_queue_are_listed(one: TemporalStore) -> None:
    other = TemporalStore(one.address._replace(task_queue="elsewhere"))
    await other.open()
    await other.apply([StartRun("there", "greet", START, 1.0)])
    await one.apply([StartRun("here", "greet", START, 1.0)])
    await eventually(lambda: ids(one), ["here"])
    await eventually(lambda: ids(other), ["there"])


async def test_counts(one: TemporalStore) -> None:
    await one.apply([StartRun(name, "greet", START, 1.0) for name in ("a", "b", "c")])
    await one.client.get_workflow_handle("c").terminate()
    counts = {"running": 2, "completed": 0, "failed": 1, "cancelled": 0, "idle": 0, "owned": 0}
    await eventually(one.counts, counts)


# -- documents and opening --------------------------------------------------------------------------------------------


async def test_documents_are_read_without_a_worker(one: TemporalStore) -> None:
    await one.save_document("d1", b'{"a": 1}')
    reader = TemporalStore(one.address)
    await reader.open()
    assert await reader.document("d1") == b'{"a": 1}'
    assert await reader.document("d2") is None
    await reader.save_document("d1", b"another text")
    assert await reader.document("d1") == b'{"a": 1}'


class Reversing(PayloadCodec):
    """Stands for encryption."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"reversed"}, data=each.SerializeToString()[::-1]) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(each.data[::-1]) for each in payloads]


async def test_a_client_with_a_codec_writes_nothing_in_plain(one: TemporalStore) -> None:
    converter = dataclasses.replace(DataConverter.default, payload_codec=Reversing())
    client = await Client.connect(one.address.target, namespace=one.address.namespace, data_converter=converter)
    store = TemporalStore(one.address, client)
    await store.open()
    await store.apply([StartRun("a", "greet", START, 5.0, tags={"k": "v"})])
    await store.save_document("d1", b"text")
    row = await store.get("a")
    assert row is not None
    assert row.tags == {"k": "v"}
    [other] = await store.apply([StartRun("a", "greet", OTHER, 7.0)])
    assert other == Started(False, "greet", START)
    await store.close()
    await store.open()
    assert await store.document("d1") == b"text"
    history = await client.get_workflow_handle("a").fetch_history()
    assert b"run_id" not in b"".join(event.SerializeToString() for event in history.events)


async def test_a_kind_of_entries_that_was_never_kept_needs_no_worker(one: TemporalStore) -> None:
    assert await one.entries("keys") == []
    assert await one.entry("keys", "a") is None


async def test_a_cluster_that_is_not_there() -> None:
    store = TemporalStore(TemporalAddress("127.0.0.1:1"))
    with pytest.raises(StoreUnavailable, match=r"temporal://127\.0\.0\.1:1.* cannot be reached"):
        await store.open()
    with pytest.raises(StoreUnavailable, match="is not open"):
        await store.get("a")


async def test_a_namespace_that_is_not_there() -> None:
    store = TemporalStore(TemporalAddress(session_server().target, namespace="nowhere"))
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await store.open()
