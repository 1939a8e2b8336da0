"""The store in memory, and the lock between its writers."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from loom.steps.state_store import DictState, InMemoryStateStore, StateStore, get_by_path, set_by_path
from loom.steps.state_store.store import WriterLock


class Base(BaseModel):
    count: int = 0
    names: list[str] = []


class Child(Base):
    title: str = "none"
    live: Any = Field(default=None, exclude=True)


class Strict(BaseModel):
    n: int


async def test_values_are_set_and_read_by_path() -> None:
    store = InMemoryStateStore(DictState())
    await store.set("user.name", "Ada")

    assert await store.get("user.name") == "Ada"
    assert await store.get("user.age", 3) == 3
    with pytest.raises(ValueError, match=r"Path 'user\.age' not found in state"):
        await store.get("user.age")
    with pytest.raises(ValueError, match="Path cannot be empty"):
        await store.set("", 1)


async def test_a_typed_state_takes_only_its_fields() -> None:
    store = InMemoryStateStore(Base())
    with pytest.raises(ValueError, match='"Base" object has no field "nope"'):
        await store.set("nope", 1)

    assert store.version == 0


async def test_get_state_is_a_copy_at_the_top() -> None:
    store = InMemoryStateStore(DictState(rows=[1]))
    state = await store.get_state()
    state.x = 1

    assert await store.get("x", None) is None
    assert await store.get("rows") is state.rows


async def test_set_state_replaces_with_the_same_class_or_a_subclass() -> None:
    store: InMemoryStateStore[Base] = InMemoryStateStore(Base(count=1))
    await store.set_state(Child(title="t"))

    assert await store.get_state() == Child(title="t")
    assert store.state_type is Base


async def test_set_state_merges_a_parent_class_and_keeps_live_values() -> None:
    live = object()
    store: InMemoryStateStore[Any] = InMemoryStateStore(Child(title="t", live=live))
    await store.set_state(Base(count=5))

    state = await store.get_state()
    assert (state.count, state.title, state.live) == (5, "t", live)


@pytest.mark.parametrize("wrong", [DictState(), Strict(n=1), None, object()])
async def test_set_state_refuses_another_class(wrong: Any) -> None:
    store: InMemoryStateStore[Any] = InMemoryStateStore(Base())
    with pytest.raises(ValueError, match=f"must be of type Base or a parent type, got {type(wrong).__name__}"):
        await store.set_state(wrong)


async def test_what_was_given_to_set_state_does_not_write_into_the_store_afterwards() -> None:
    store = InMemoryStateStore(Base())
    state = Base(count=1)
    await store.set_state(state)
    state.count = 2

    assert await store.get("count") == 1


async def test_clear_resets_the_class_that_the_state_has_now() -> None:
    store: InMemoryStateStore[Base] = InMemoryStateStore(Base())
    await store.set_state(Child(title="t", count=1))
    await store.clear()

    assert await store.get_state() == Child()


async def test_clear_needs_defaults() -> None:
    store = InMemoryStateStore(Strict(n=1))
    with pytest.raises(ValueError, match="State must have defaults for all fields"):
        await store.clear()

    assert await store.get("n") == 1


async def test_readers_see_the_committed_state_until_an_edit_ends() -> None:
    store = InMemoryStateStore(DictState(rows=[1]))
    async with store.edit_state() as state:
        state.rows.append(2)
        assert await store.get("rows") == [1]
        assert (await store.get_state()).rows == [1]

    assert await store.get("rows") == [1, 2]


async def _edit_badly(store: InMemoryStateStore[DictState]) -> None:
    async with store.edit_state() as state:
        state.a = 2
        raise KeyError("missing")


async def test_an_edit_that_fails_commits_nothing_and_frees_the_lock() -> None:
    store = InMemoryStateStore(DictState(a=1))
    with pytest.raises(KeyError, match="missing"):
        await _edit_badly(store)
    await store.set("b", 1)

    assert (await store.get("a"), store.version) == (1, 1)


async def test_writers_inside_an_edit_are_an_error() -> None:
    store = InMemoryStateStore(DictState(a=1))
    async with store.edit_state() as state:
        state.a = 2
        for writer in (store.set("a", 3), store.clear(), store.set_state(DictState()), store.edit_state().__aenter__()):
            with pytest.raises(RuntimeError, match="writer called inside edit_state"):
                await writer

    assert await store.get("a") == 2


async def _read_what_is_missing(store: InMemoryStateStore[Any], state: Any) -> None:
    await store.get("nope.deeper")


async def _read_the_copy_where_nothing_is(store: InMemoryStateStore[Any], state: Any) -> None:
    get_by_path(state, "kept.nope")


async def _write_below_a_number(store: InMemoryStateStore[Any], state: Any) -> None:
    set_by_path(state, "kept.n.deeper", 1)


async def _write_past_a_list(store: InMemoryStateStore[Any], state: Any) -> None:
    set_by_path(state, "kept.list.5", 1)


async def _write_nowhere(store: InMemoryStateStore[Any], state: Any) -> None:
    set_by_path(state, "", 1)


async def _write_through_the_store(store: InMemoryStateStore[Any], state: Any) -> None:
    await store.set("kept.n", 2)


async def _read_an_attribute_that_is_missing(store: InMemoryStateStore[Any], state: Any) -> None:
    state.nope.deeper = 1


@pytest.mark.parametrize(
    ("breaks", "error", "text"),
    [
        (_read_what_is_missing, ValueError, r"^Path 'nope\.deeper' not found in state$"),
        (_read_the_copy_where_nothing_is, ValueError, r"^Path 'kept\.nope' not found in state$"),
        (_write_below_a_number, AttributeError, "'int' object has no attribute 'deeper'"),
        (_write_past_a_list, AttributeError, "'list' object has no attribute '5'"),
        (_write_nowhere, ValueError, "^Path cannot be empty$"),
        (_write_through_the_store, RuntimeError, "^writer called inside edit_state"),
        (_read_an_attribute_that_is_missing, AttributeError, "no attribute 'nope'"),
    ],
)
async def test_an_error_of_a_path_inside_an_edit_is_itself_and_nothing_is_half_applied(
    breaks: Any, error: type[Exception], text: str
) -> None:
    """Before it the edit has changed a value, made a dict on the way, and changed one in place."""
    store = InMemoryStateStore(DictState(kept={"n": 1, "list": [1]}, other=1))

    async def edit() -> None:
        async with store.edit_state() as state:
            set_by_path(state, "made.on.the.way", 1)
            state["kept"]["list"].append(2)
            state["other"] = 2
            await breaks(store, state)

    with pytest.raises(error, match=text):
        await edit()
    assert (await store.get_state()).to_dict() == {"kept": {"n": 1, "list": [1]}, "other": 1}
    assert store.version == 0
    await store.set("kept.n", 2)
    assert (await store.get("kept.n"), store.version) == (2, 1)


async def test_an_error_of_a_path_that_an_edit_handles_itself_keeps_the_rest_of_it() -> None:
    store = InMemoryStateStore(DictState(n=1))
    async with store.edit_state() as state:
        state["before"] = 1
        with pytest.raises(ValueError, match="Path 'nope' not found in state"):
            await store.get("nope")
        with pytest.raises(AttributeError):
            set_by_path(state, "n.deeper", 1)
        state["after"] = 2
    assert (await store.get_state()).to_dict() == {"n": 1, "before": 1, "after": 2}


async def test_an_error_of_a_path_outside_of_an_edit_changes_nothing() -> None:
    store = InMemoryStateStore(DictState(n=1))
    with pytest.raises(AttributeError, match="'int' object has no attribute 'deeper'"):
        await store.set("n.deeper.still", 1)
    assert ((await store.get_state()).to_dict(), store.version) == ({"n": 1}, 0)


async def test_writers_of_other_tasks_wait_in_turn() -> None:
    store = InMemoryStateStore(DictState(log=[]))

    async def add(n: int) -> None:
        async with store.edit_state() as state:
            state.log.append(n)
            await asyncio.sleep(0)

    async def put() -> None:
        await store.set("put", len(await store.get("log")))

    await asyncio.gather(*(add(n) for n in range(5)), put())

    assert await store.get("log") == [0, 1, 2, 3, 4]
    assert await store.get("put") == 0  # read before its turn, as any reader may
    assert store.version == 6


def test_a_store_outlives_the_event_loop_it_was_used_in() -> None:
    store = InMemoryStateStore(DictState(n=0))

    async def add_twice() -> None:
        async def add() -> None:
            async with store.edit_state() as state:
                await asyncio.sleep(0)
                state.n += 1

        await asyncio.gather(add(), add())

    asyncio.run(add_twice())
    asyncio.run(add_twice())

    assert asyncio.run(store.get("n")) == 4


def test_threads_with_loops_of_their_own_lose_no_edit() -> None:
    store = InMemoryStateStore(DictState(n=0))

    async def add() -> None:
        for _ in range(25):
            async with store.edit_state() as state:
                n = state.n
                await asyncio.sleep(0)
                state.n = n + 1

    threads = [threading.Thread(target=lambda: asyncio.run(add())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert asyncio.run(store.get("n")) == 100


def test_without_contention_no_event_loop_is_needed() -> None:
    store = InMemoryStateStore()
    for coroutine in (store.set("a", 1), store.clear(), store.set_state(DictState(b=2))):
        with pytest.raises(StopIteration):
            coroutine.send(None)

    assert store.checkpoint().state == DictState(b=2)


def test_a_store_that_nobody_touched_is_small() -> None:
    stores = [InMemoryStateStore[Any]() for _ in range(10)]
    store = stores[0]
    size = sys.getsizeof(store) + sum(sys.getsizeof(part) for part in gc.get_referents(store) if part in (store._lock,))

    assert size < 300
    assert store._state is None


async def test_the_default_state_is_made_once_when_needed() -> None:
    store = InMemoryStateStore(state_type=Base)
    names = await store.get("names")

    assert await store.get("names") is names
    assert store.version == 0
    with pytest.raises(ValueError, match="State must have defaults for all fields"):
        await InMemoryStateStore(state_type=Strict).get("n")


def test_it_is_a_state_store() -> None:
    store = InMemoryStateStore[Base](Base())

    assert isinstance(store, StateStore)
    assert store.state_type is Base


async def test_a_cancelled_waiter_leaves_the_line() -> None:
    lock = WriterLock()
    await lock.acquire()
    first = asyncio.create_task(lock.acquire())
    second = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    lock.release()
    await asyncio.wait_for(second, timeout=60)

    assert not lock.try_acquire()


async def test_a_waiter_that_is_cancelled_as_it_gets_the_lock_passes_it_on() -> None:
    lock = WriterLock()
    await lock.acquire()
    first = asyncio.create_task(lock.acquire())
    second = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    lock.release()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, timeout=60)


async def test_a_waiter_cancelled_before_the_release_is_skipped() -> None:
    lock = WriterLock()
    await lock.acquire()
    first = asyncio.create_task(lock.acquire())
    second = asyncio.create_task(lock.acquire())
    await asyncio.sleep(0)
    first.cancel()
    lock.release()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, timeout=60)
    lock.release()

    assert lock.try_acquire()


def test_a_waiter_whose_loop_is_gone_is_skipped() -> None:
    lock = WriterLock()
    assert lock.try_acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(lock.acquire())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    lock.release()

    assert lock.try_acquire()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it waits for ever, which is the point
