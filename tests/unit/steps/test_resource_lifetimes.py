"""Resource factories with `yield`: when their values are set up and torn down, in which order, and what may fail."""

import asyncio
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest

from loom.steps.resource_checks import check_resource_configs
from loom.steps.resource_lifetimes import Lifetime
from loom.steps.resources import Resource, ResourceDefinition, ResourceManager, RunResources


class Run:
    """A run in memory, as resources see it."""

    def __init__(self, run_id: str = "r") -> None:
        self.run_id = run_id
        self.resources: RunResources | None = None


class Log:
    """What factories did, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def sync(self, name: str) -> Callable[[], Iterator[str]]:
        def factory() -> Iterator[str]:
            self.lines.append(f"+{name}")
            yield f"{name}{self.lines.count(f'+{name}')}"
            self.lines.append(f"-{name}")

        return factory

    def asynchronous(self, name: str) -> Callable[[], AsyncIterator[str]]:
        async def factory() -> AsyncIterator[str]:
            self.lines.append(f"+{name}")
            await asyncio.sleep(0)
            yield f"{name}{self.lines.count(f'+{name}')}"
            await asyncio.sleep(0)
            self.lines.append(f"-{name}")

        return factory


@pytest.fixture
def log() -> Log:
    return Log()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def wants(*resources: Any) -> list[ResourceDefinition]:
    return [ResourceDefinition(name=f"p{number}", resource=each) for number, each in enumerate(resources)]


async def execute(manager: ResourceManager, run: Run | None, *resources: Any) -> dict[str, Any]:
    use = manager.for_execution(run)
    try:
        return await use.values(wants(*resources))
    finally:
        await use.end()


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
async def test_a_value_of_the_process_is_kept_until_the_manager_closes(log: Log, kind: str) -> None:
    manager, resource = ResourceManager(), Resource(getattr(log, kind)("pool"))
    assert await execute(manager, Run("a"), resource) == await execute(manager, Run("b"), resource) == {"p0": "pool1"}
    assert manager.get_all().popitem()[1] == "pool1"
    await manager.close()
    assert log.lines == ["+pool", "-pool"]
    await manager.close()
    assert await execute(manager, None, resource) == {"p0": "pool2"}, "a closed manager makes it anew"
    await manager.close()
    assert log.lines == ["+pool", "-pool"] * 2


async def test_a_value_of_a_run_is_its_own_and_ends_when_the_run_leaves(log: Log) -> None:
    manager, resource = ResourceManager(), Resource(log.asynchronous("file"), scope="run")
    first, second = Run("a"), Run("b")
    assert await execute(manager, first, resource) == await execute(manager, first, resource) == {"p0": "file1"}
    assert await execute(manager, second, resource) == {"p0": "file2"}
    assert first.resources is not None
    first.resources.leave()
    await settled()
    assert log.lines == ["+file", "+file", "-file"]
    again = Run("a")
    assert await execute(manager, again, resource) == {"p0": "file3"}
    for run in (second, again):
        assert run.resources is not None
        run.resources.leave()
    await manager.close()
    assert log.lines.count("-file") == 3


async def test_a_run_that_returns_waits_until_what_it_had_is_torn_down(log: Log) -> None:
    gate = asyncio.Event()

    async def lock() -> AsyncIterator[str]:
        log.lines.append("lock")
        yield "it"
        await gate.wait()
        log.lines.append("unlock")

    manager, resource, run = ResourceManager(), Resource(lock, scope="run"), Run()
    await execute(manager, run, resource)
    assert run.resources is not None
    run.resources.leave()
    again = asyncio.create_task(execute(manager, Run(), resource))
    await settled()
    assert log.lines == ["lock"]
    gate.set()
    await again
    assert log.lines == ["lock", "unlock", "lock"]


async def test_without_a_cache_a_value_ends_with_its_execution(log: Log) -> None:
    manager, resource = ResourceManager(), Resource(log.sync("cursor"), cache=False)
    assert await execute(manager, Run(), resource, resource) == {"p0": "cursor1", "p1": "cursor1"}
    assert await execute(manager, Run(), resource) == {"p0": "cursor2"}
    assert log.lines == ["+cursor", "-cursor"] * 2


async def test_dependents_are_torn_down_before_what_they_depend_on(log: Log) -> None:
    pool = Resource(log.asynchronous("pool"))

    def session(pool: Annotated[str, pool]) -> Iterator[str]:
        log.lines.append("+session")
        yield f"session of {pool}"
        log.lines.append("-session")

    of_run = Resource(session, scope="run")

    async def cursor(session: Annotated[str, of_run]) -> AsyncIterator[str]:
        log.lines.append("+cursor")
        yield f"cursor of {session}"
        log.lines.append("-cursor")

    manager, run = ResourceManager(), Run()
    assert await execute(manager, run, Resource(cursor, cache=False)) == {"p0": "cursor of session of pool1"}
    assert run.resources is not None
    run.resources.leave()
    await manager.close()
    assert log.lines == ["+pool", "+session", "+cursor", "-cursor", "-session", "-pool"]


async def test_what_a_kept_value_is_made_from_is_not_shared_with_an_execution(log: Log) -> None:
    part = Resource(log.sync("part"), cache=False)

    def plain(part: Annotated[str, part]) -> str:
        return f"plain {part}"

    def whole(part: Annotated[str, Resource(plain, cache=False)]) -> str:
        return f"whole {part}"

    manager, kept = ResourceManager(), Resource(whole)
    values = await execute(manager, Run(), part, kept)
    assert values == {"p0": "part1", "p1": "whole plain part2"}
    assert log.lines == ["+part", "+part", "-part"], "the execution's own has ended, the kept value's has not"
    assert await execute(manager, Run(), kept) == {"p0": "whole plain part2"}
    await manager.close()
    assert log.lines.count("-part") == 2
    assert await execute(manager, Run(), kept) == {"p0": "whole plain part3"}, "a value outlived what it is made from"
    await manager.close()


async def test_one_task_enters_and_leaves_a_factory(log: Log) -> None:
    tasks: list[Any] = []

    async def group() -> AsyncIterator[int]:
        async with asyncio.TaskGroup() as inside:
            tasks.append(asyncio.current_task())
            waiting = inside.create_task(asyncio.Event().wait())
            yield 1
            waiting.cancel()
        tasks.append(asyncio.current_task())

    manager = ResourceManager()
    await execute(manager, None, Resource(group))
    await asyncio.create_task(manager.close())
    assert tasks[0] is tasks[1]
    assert tasks[0] is not asyncio.current_task()


async def test_executions_at_once_share_one_value_and_it_outlives_them(log: Log) -> None:
    manager, resource, run = ResourceManager(), Resource(log.asynchronous("file"), scope="run"), Run()
    uses = [manager.for_execution(run) for _ in range(5)]
    values = await asyncio.gather(*(use.values(wants(resource)) for use in uses))
    assert values == [{"p0": "file1"}] * 5
    assert run.resources is not None
    run.resources.leave()
    await settled()
    assert log.lines == ["+file"], "bodies that end may still use it"
    for use in uses:
        await use.end()
    await settled()
    assert log.lines == ["+file", "-file"]


async def test_a_teardown_that_raises_is_named_and_the_others_go_on(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    def leaves() -> Iterator[int]:
        yield 1
        raise SystemExit

    def twice() -> Iterator[int]:
        yield 1
        yield 2

    manager = ResourceManager()
    await execute(manager, None, Resource(log.sync("a")), *map(Resource, (broken, leaves, twice)))
    with caplog.at_level(logging.ERROR, "loom.resources"):
        await manager.close()
    assert log.lines == ["+a", "-a"]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert "twice' has failed" in messages[0]
    assert "leaves' asked the process to exit" in messages[1]
    assert "broken' has failed" in messages[2]
    assert "the disk is gone" in caplog.text
    assert "has yielded twice: it may yield one value" in caplog.text


async def test_a_teardown_that_hangs_is_cancelled_after_its_limit(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    async def hangs() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    manager = ResourceManager()
    await execute(manager, None, Resource(log.sync("a")), Resource(hangs, teardown_timeout=0.01))
    await manager.close()
    assert log.lines == ["+a", "-a"]
    assert "hangs' has not ended within 0.01 s and was cancelled" in caplog.text


async def test_a_factory_that_fails_before_its_yield_fails_the_step_and_is_tried_again(log: Log) -> None:
    failures = [OSError("not yet")]

    async def shy() -> AsyncIterator[str]:
        if failures:
            raise failures.pop()
        yield "there"

    def empty() -> Iterator[str]:
        yield from ()

    manager, resource = ResourceManager(), Resource(shy)
    with pytest.raises(OSError, match="not yet"):
        await execute(manager, None, resource)
    assert await execute(manager, None, resource) == {"p0": "there"}
    with pytest.raises(RuntimeError, match=r"factory '.*empty' ended without a yield"):
        await execute(manager, None, Resource(empty))
    await manager.close()


async def test_a_setup_whose_step_is_cancelled_is_cancelled_and_cleans_up(log: Log) -> None:
    async def slow() -> AsyncIterator[int]:
        log.lines.append("begin")
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            log.lines.append("end")

    task = asyncio.create_task(execute(ResourceManager(), Run(), Resource(slow, cache=False)))
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settled()
    assert log.lines == ["begin", "end"]


def test_the_end_of_an_event_loop_tears_down_in_order_and_the_next_loop_makes_it_anew(log: Log) -> None:
    pool = Resource(log.sync("pool"))

    async def client(pool: Annotated[str, pool]) -> AsyncIterator[str]:
        log.lines.append("+client")
        yield f"client of {pool}"
        await asyncio.sleep(0)
        log.lines.append("-client")

    manager, resource = ResourceManager(), Resource(client)
    assert asyncio.run(execute(manager, None, resource)) == {"p0": "client of pool1"}
    assert log.lines == ["+pool", "+client", "-client", "-pool"]
    assert asyncio.run(execute(manager, None, resource)) == {"p0": "client of pool2"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_process_does_not_tear_down_what_is_its_parents(log: Log) -> None:
    manager, resource = ResourceManager(), Resource(log.sync("pool"))
    use = manager.for_execution(None)
    await use.values(wants(resource))
    made = next(iter(manager._shared.made.values()))
    assert made.is_usable
    made.pid += 1
    assert await execute(manager, None, resource) == {"p0": "pool2"}
    await use.end()
    await manager.close()


def test_declarations_that_cannot_be_kept_are_refused(log: Log) -> None:
    with pytest.raises(ValueError, match="has cache=False"):
        Resource(log.sync("a"), cache=False, scope="run")
    with pytest.raises(ValueError, match="'process' or 'run', not 'session'"):
        Resource(log.sync("a"), scope="session")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive number of seconds"):
        Resource(log.sync("a"), teardown_timeout=0)


async def test_a_value_of_the_process_is_not_made_from_one_of_a_run(log: Log) -> None:
    tenant = Resource(log.sync("tenant"), scope="run")

    def client(tenant: Annotated[str, tenant]) -> str:
        return tenant

    message = r"'.*client' is kept for the process and cannot be made from '.*', which is kept for one run: give"
    with pytest.raises(ValueError, match=message):
        await execute(ResourceManager(), Run(), Resource(client))
    config: Any = type("Config", (), {"resources": wants(Resource(client))})
    (complaint,) = check_resource_configs({"s": config})
    assert complaint.startswith("In step 's', parameter 'p0'")
    assert "kept for one run" in complaint
    assert await execute(ResourceManager(), Run(), Resource(client, cache=False)) == {"p0": "tenant1"}


async def test_what_makes_no_generator_is_as_before(log: Log) -> None:
    @contextmanager
    def managed() -> Iterator[int]:
        yield 1

    class Made:
        def __iter__(self) -> Iterator[int]:
            yield 1

    for factory, kind in ((managed, "_GeneratorContextManager"), (Made, "Made")):
        values = await execute(ResourceManager(), None, Resource(factory))
        assert type(values["p0"]).__name__ == kind
    partial = Resource(functools.partial(log.sync("a")))
    assert partial.yields
    assert not Resource(managed).yields


async def test_a_lifetime_does_not_wait_for_ever_for_a_body(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("loom.steps.resource_lifetimes.TEARDOWN_LIMIT_S", 0.01)
    manager, run = ResourceManager(), Run()
    use = manager.for_execution(run)
    await use.values(wants(Resource(log.sync("file"), scope="run")))
    assert run.resources is not None
    run.resources.leave()
    await manager.close()
    assert log.lines == ["+file", "-file"]
    assert "torn down though a step still uses them" in caplog.text
    await use.end()
    await Lifetime().close()
