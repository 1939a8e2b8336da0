"""Group commit: order, sharing, and who gets which failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from typing_extensions import override

from loom.store.committer import Committer
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryStore
from loom.store.operations import Operation, Posted, PostMessage, Result, StartRun

Fails = Callable[[list[bytes]], BaseException | None]


class SlowStore(MemoryStore):
    """A store whose writes end when the test says so, and fail for what it says."""

    def __init__(
        self, *, held: bool = False, fails: Callable[[list[bytes]], BaseException | None] | None = None
    ) -> None:
        super().__init__()
        self.groups: list[list[bytes]] = []
        self.fails = fails
        self.gate = asyncio.Event()
        if not held:
            self.gate.set()

    @override
    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        names = [operation.data for operation in group if isinstance(operation, PostMessage)]
        self.groups.append(names)
        await self.gate.wait()
        error = self.fails(names) if self.fails is not None else None
        if error is not None:
            raise error
        return await super().apply(group)


async def ready(**options: Any) -> SlowStore:
    store = SlowStore(**options)
    await store.open()
    await MemoryStore.apply(store, [StartRun("r", "w", b"", 0.0)])
    return store


def post(name: str) -> PostMessage:
    return PostMessage("r", name.encode(), 0.0)


async def written(store: SlowStore) -> list[bytes]:
    return [message.data for message in await store.inbox("r", 0)]


async def test_what_is_submitted_in_one_turn_shares_a_group() -> None:
    store = await ready()
    committer = Committer(store)
    answers = [committer.submit(post(name)) for name in "abc"]
    assert await asyncio.gather(*answers) == [Posted("posted")] * 3
    assert store.groups == [[b"a", b"b", b"c"]]
    await committer.close()


async def test_a_single_submitter_waits_for_nobody() -> None:
    store = await ready()
    committer = Committer(store)
    for name in "abc":
        assert await committer.submit(post(name)) == Posted("posted")
    assert store.groups == [[b"a"], [b"b"], [b"c"]]
    await committer.close()


async def test_what_comes_while_a_group_is_written_forms_the_next_in_order() -> None:
    store = await ready(held=True)
    committer = Committer(store)
    done: list[str] = []
    for name in "abcd":
        answer = committer.submit(post(name))
        answer.add_done_callback(lambda _, name=name: done.append(name))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert store.groups == [[b"a"]]
    assert done == []
    store.gate.set()
    await committer.close()
    assert store.groups == [[b"a"], [b"b", b"c", b"d"]]
    assert done == ["a", "b", "c", "d"]
    assert await written(store) == [b"a", b"b", b"c", b"d"]


async def test_groups_have_a_greatest_size() -> None:
    store = await ready()
    committer = Committer(store, max_group=2)
    await asyncio.gather(*(committer.submit(post(name)) for name in "abcde"))
    assert store.groups == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
    await committer.close()


async def test_only_what_cannot_be_written_fails() -> None:
    broken = ValueError("cannot be stored")
    store = await ready(fails=lambda names: broken if b"c" in names else None)
    committer = Committer(store)
    answers = await asyncio.gather(*(committer.submit(post(name)) for name in "abcde"), return_exceptions=True)
    posted = Posted("posted")
    assert answers == [posted, posted, broken, posted, posted]
    assert await written(store) == [b"a", b"b", b"d", b"e"]
    assert await committer.submit(post("f")) == posted
    await committer.close()


async def test_a_single_operation_that_fails_is_not_tried_again() -> None:
    broken = StoreUnavailable("gone")
    store = await ready(fails=lambda _: broken)
    committer = Committer(store)
    with pytest.raises(StoreUnavailable):
        await committer.submit(post("a"))
    assert store.groups == [[b"a"]]
    await committer.close()


async def test_a_store_that_is_gone_is_not_hammered() -> None:
    store = await ready(fails=lambda _: StoreUnavailable("gone"))
    committer = Committer(store)
    answers = await asyncio.gather(*(committer.submit(post(str(n))) for n in range(100)), return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert len(store.groups) == 3
    store.fails = None
    assert await committer.submit(post("back")) == Posted("posted")
    await committer.close()


async def test_what_may_have_been_written_is_not_written_again() -> None:
    lost = StoreUnavailable("connection lost during the commit", outcome_unknown=True)
    store = await ready(fails=lambda _: lost)
    committer = Committer(store)
    answers = await asyncio.gather(*(committer.submit(post(name)) for name in "abc"), return_exceptions=True)
    assert answers == [lost] * 3
    assert store.groups == [[b"a", b"b", b"c"]]
    await committer.close()


async def test_two_bad_operations_apart_do_not_make_a_store_gone() -> None:
    def fails(names: list[bytes]) -> BaseException | None:
        return StoreUnavailable("too large") if {b"a", b"c"} & set(names) else None

    store = await ready(fails=fails)
    committer = Committer(store)
    answers = await asyncio.gather(*(committer.submit(post(name)) for name in "abcd"), return_exceptions=True)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [True, False, True, False]
    await committer.close()


async def test_cancelling_an_answer_does_not_cancel_the_write() -> None:
    store = await ready(held=True)
    committer = Committer(store)
    given_up, kept = committer.submit(post("a")), committer.submit(post("b"))
    await asyncio.sleep(0)
    given_up.cancel()
    store.gate.set()
    assert await kept == Posted("posted")
    assert await written(store) == [b"a", b"b"]
    await committer.close()


async def test_a_cancelled_answer_may_fail_unheard() -> None:
    store = await ready(held=True, fails=lambda names: ValueError("no") if b"a" in names else None)
    committer = Committer(store)
    given_up, kept = committer.submit(post("a")), committer.submit(post("b"))
    given_up.cancel()
    store.gate.set()
    assert await kept == Posted("posted")
    await committer.close()


async def test_close_waits_for_what_was_accepted_and_refuses_the_rest() -> None:
    store = await ready(held=True)
    committer = Committer(store, max_group=1)
    answers = [committer.submit(post(name)) for name in "abc"]
    closing = asyncio.ensure_future(committer.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="closed"):
        committer.submit(post("d"))
    assert not closing.done()
    store.gate.set()
    await closing
    assert all(answer.done() for answer in answers)
    assert await written(store) == [b"a", b"b", b"c"]
    await committer.close()


async def test_close_without_any_work() -> None:
    committer = Committer(await ready())
    await asyncio.sleep(0)
    await committer.close()


class Crash(BaseException):
    """Stands for whatever no program goes on after."""


async def test_what_ends_the_process_reaches_everybody_and_nothing_is_written_after() -> None:
    store = await ready(held=True, fails=lambda _: Crash())
    committer = Committer(store, max_group=2)
    answers = [committer.submit(post(name)) for name in "abc"]
    store.gate.set()
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Crash] * 3
    assert store.groups == [[b"a", b"b"]]
    with pytest.raises(StoreUnavailable):
        committer.submit(post("d"))
    await committer.close()


async def test_what_ends_the_process_reaches_those_behind_a_caller_that_it_breaks() -> None:
    store = await ready(held=True, fails=lambda _: Crash())
    committer = Committer(store)
    loop, problems = asyncio.get_running_loop(), list[BaseException]()
    loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))

    def breaks(_done: object) -> None:
        raise RuntimeError("broken caller")

    first, second = committer.submit(post("a")), committer.submit(post("b"))
    first.call_directly(breaks)
    store.gate.set()
    with pytest.raises(Crash):
        await asyncio.wait_for(second, 60)
    await committer.close()
    assert [str(problem) for problem in problems] == ["broken caller"]


def test_when_the_event_loop_ends_nobody_waits_for_ever() -> None:
    answers: list[asyncio.Future[Result]] = []

    async def main() -> None:
        committer = Committer(await ready(held=True), max_group=1)
        answers.extend(committer.submit(post(name)) for name in "ab")
        await asyncio.sleep(0)

    asyncio.run(main())
    assert [answer.cancelled() for answer in answers] == [True, True]


async def test_an_operation_may_come_while_the_committer_is_being_cancelled() -> None:
    store = SlowStore()
    await store.open()
    committer = Committer(store)
    await asyncio.sleep(0)
    committer._task.cancel()  # as when everything on an event loop is cancelled; its wake-up is cancelled with it
    answer = committer.submit(StartRun("r", "w", b"", 1.0))
    await asyncio.wait([committer._task])
    assert answer.cancelled()
    await committer.close()
    await store.close()


async def test_a_caller_that_breaks_does_not_keep_others_from_their_answers() -> None:
    store = await ready()
    committer = Committer(store)
    loop, problems, told = asyncio.get_running_loop(), list[BaseException](), list[str]()
    loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))

    def breaks(_done: object) -> None:
        raise RuntimeError("broken caller")

    first, second = committer.submit(post("a")), committer.submit(post("b"))
    first.call_directly(breaks)
    second.call_directly(lambda _done: told.append("b"))
    assert await second == Posted("posted")
    assert told == ["b"]
    assert [str(problem) for problem in problems] == ["broken caller"]
    assert await committer.submit(post("c")) == Posted("posted")
    await committer.close()


async def test_close_while_a_group_is_tried_one_by_one() -> None:
    broken = ValueError("cannot be stored")
    store = await ready(held=True, fails=lambda names: broken if b"b" in names else None)
    committer = Committer(store)
    answers = [committer.submit(post(name)) for name in "abc"]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(committer.close())
    store.gate.set()
    await closing
    assert [answer.exception() for answer in answers] == [None, broken, None]
    assert await written(store) == [b"a", b"c"]


async def test_a_caller_may_submit_within_its_answer() -> None:
    store = await ready()
    committer = Committer(store)
    answers: list[asyncio.Future[Result]] = []
    first = committer.submit(post("a"))
    first.call_directly(lambda _done: answers.append(committer.submit(post("b"))))
    assert await first == Posted("posted")
    await committer.close()
    assert [answer.result() for answer in answers] == [Posted("posted")]
    assert await written(store) == [b"a", b"b"]


async def test_a_store_that_refuses_at_once_tells_the_caller() -> None:
    class Closed(SlowStore):
        def apply(self, group: Sequence[Operation]) -> Any:  # type: ignore[override] # it raises, as a closed store does
            raise StoreUnavailable("not open")

    committer = Committer(Closed())
    with pytest.raises(StoreUnavailable, match="not open"):
        await committer.submit(post("a"))
    await committer.close()
