from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from loom.steps.resources import Resource, ResourceConfig, ResourceDefinition, ResourceManager


class Counting:
    """A factory that counts its calls and waits at a gate."""

    def __init__(self, *failures: Exception) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.failures = list(failures)
        self.cancelled = False

    async def __call__(self) -> int:
        self.calls += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.failures:
            raise self.failures.pop(0)
        return self.calls


async def started(*coroutines: Any) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_a_cached_resource_is_made_once_another_every_time() -> None:
    manager = ResourceManager()
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return list(made)

    cached, fresh = Resource(make), Resource(make, cache=False)

    assert await manager.get(cached) is await manager.get(Resource(make))
    assert await manager.get(fresh) is not await manager.get(fresh)
    assert len(made) == 3


async def test_none_is_a_value_that_can_be_cached() -> None:
    calls: list[int] = []
    resource = Resource(lambda: calls.append(1))
    manager = ResourceManager()

    assert await manager.get(resource) is None
    assert await manager.get(resource) is None
    assert calls == [1]


async def test_two_lambdas_are_two_resources() -> None:
    manager = ResourceManager()

    assert await manager.get(Resource(lambda: 1)) == 1
    assert await manager.get(Resource(lambda: 2)) == 2


async def test_all_who_wait_share_one_resolution() -> None:
    factory = Counting()
    manager = ResourceManager()
    waiting = await started(*(manager.get(Resource(factory)) for _ in range(5)))
    factory.gate.set()

    assert await asyncio.gather(*waiting) == [1] * 5


async def test_the_first_waiter_can_be_cancelled_without_harm_to_the_others() -> None:
    factory = Counting()
    manager = ResourceManager()
    first, second = await started(manager.get(Resource(factory)), manager.get(Resource(factory)))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    factory.gate.set()

    assert await second == 1


async def test_nobody_waiting_means_nothing_is_made_and_the_next_one_begins_anew() -> None:
    factory = Counting()
    manager = ResourceManager()
    (only,) = await started(manager.get(Resource(factory)))
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    factory.gate.set()

    assert await manager.get(Resource(factory)) == 2
    assert factory.cancelled


async def test_who_asks_while_an_abandoned_resolution_still_cleans_up_gets_a_new_one() -> None:
    cleaned = asyncio.Event()
    calls: list[int] = []

    async def make() -> int:
        calls.append(1)
        if len(calls) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()
        return len(calls)

    manager = ResourceManager()
    (only,) = await started(manager.get(Resource(make)))
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only

    assert await asyncio.wait_for(manager.get(Resource(make)), timeout=5) == 2
    cleaned.set()


async def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    factory = Counting(OSError("no route"))
    manager = ResourceManager()
    waiting = await started(manager.get(Resource(factory)), manager.get(Resource(factory)))
    factory.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert [str(result) for result in results] == ["no route", "no route"]
    assert await manager.get(Resource(factory)) == 2


async def test_two_resources_may_wait_for_the_same_slow_one() -> None:
    factory = Counting()
    slow = Resource(factory)

    def left(inner: Annotated[int, slow]) -> str:
        return f"left {inner}"

    def right(inner: Annotated[int, slow]) -> str:
        return f"right {inner}"

    for side in (left, right):
        side.__annotations__["inner"] = Annotated[int, slow]
    manager = ResourceManager()
    waiting = await started(manager.get(Resource(left)), manager.get(Resource(right)))
    factory.gate.set()

    assert await asyncio.gather(*waiting) == ["left 1", "right 1"]


def make_a(b: Annotated[str, Resource(lambda: "")]) -> str:
    return b


def make_b(a: Annotated[str, Resource(make_a)]) -> str:
    return a


def make_top(a: Annotated[str, Resource(make_a)]) -> str:
    return a


make_a.__annotations__["b"] = Annotated[str, Resource(make_b)]


async def test_a_cycle_is_named() -> None:
    manager = ResourceManager()
    with pytest.raises(ValueError, match=r"^Circular resource dependency detected: make_a -> make_b -> make_a$"):
        await manager.get(Resource(make_a))
    with pytest.raises(ValueError, match=r"make_top -> make_a -> make_b -> make_a$"):
        await manager.get(Resource(make_top, cache=False))


async def test_a_cycle_entered_from_both_ends_is_found_by_both() -> None:
    manager = ResourceManager()
    both = asyncio.gather(manager.get(Resource(make_a)), manager.get(Resource(make_b)), return_exceptions=True)
    results = await asyncio.wait_for(both, timeout=5)

    assert [str(result).partition(": ")[2] for result in results] == [
        "make_a -> make_b -> make_a",
        "make_b -> make_a -> make_b",
    ]


class Remote:
    """A descriptor of the user's own, which asks the manager for what it needs."""

    cache = True

    def __init__(self, name: str, needs: Any = None) -> None:
        self.name = name
        self.needs = needs
        self.annotation: Any = None

    async def resolve(self, manager: ResourceManager) -> str:
        return f"{self.name}:{await manager.get(self.needs) if self.needs else 'end'}"

    def set_type_annotation(self, type_annotation: Any) -> None:
        self.annotation = type_annotation

    def set_localns(self, localns: dict[str, Any] | None) -> None: ...

    def get_dependencies(self) -> list[Any]:
        return []


async def test_descriptors_of_ones_own_are_resolved_cached_by_name_and_checked_for_cycles() -> None:
    manager = ResourceManager()
    inner = Remote("inner")

    assert await manager.get(Remote("outer", inner), str) == "outer:inner:end"
    assert await manager.get(Remote("outer", None)) == "outer:inner:end"
    first = Remote("first")
    first.needs = Remote("second", first)
    with pytest.raises(ValueError, match="first -> second -> first"):
        await manager.get(first)


async def test_a_value_can_be_given_by_name() -> None:
    manager = ResourceManager()
    await manager.set("make_a", "given")

    assert await manager.get(Resource(make_a)) == "given"
    assert await manager.get(Resource(make_top, cache=False)) == "given"
    assert manager.get_all() == {"make_a": "given"}


async def test_a_given_config_needs_no_file() -> None:
    manager = ResourceManager()
    await manager.set("missing.json", {"a": 1})

    assert await manager.get(ResourceConfig("missing.json"), dict) == {"a": 1}


async def test_what_was_made_can_be_listed() -> None:
    manager = ResourceManager()
    await manager.get(Remote("remote"))

    assert manager.get_all() == manager.resources == {"remote": "remote:end"}


def make_fresh() -> object:
    return object()


def make_user(own: Annotated[object, Resource(make_fresh, cache=False)]) -> object:
    return own


make_user.__annotations__["own"] = Annotated[object, Resource(make_fresh, cache=False)]


async def test_one_execution_of_a_step_shares_even_what_is_not_cached() -> None:
    manager = ResourceManager()
    definitions = [
        ResourceDefinition(name="a", resource=Resource(make_fresh, cache=False)),
        ResourceDefinition(name="b", resource=Resource(make_user, cache=False)),
    ]
    first = await manager.resolve_all(definitions)
    second = await manager.resolve_all(definitions)

    assert first["a"] is first["b"]
    assert first["a"] is not second["a"]
    assert await manager.resolve_all([]) == {}


def test_a_manager_serves_one_event_loop_after_another() -> None:
    manager = ResourceManager()
    calls: list[int] = []

    async def make() -> int:
        await asyncio.sleep(0)
        calls.append(1)
        return len(calls)

    assert asyncio.run(manager.get(Resource(make))) == 1
    assert asyncio.run(manager.get(Resource(make))) == 1


async def test_a_subclass_of_the_manager_sees_every_request() -> None:
    asked: list[str] = []

    class Watching(ResourceManager):
        async def get(self, resource: Any, type_annotation: Any = None) -> Any:
            asked.append(resource.name)
            return await super().get(resource, type_annotation)

    await Watching().resolve_all([ResourceDefinition(name="u", resource=Resource(make_user))])

    assert asked == ["make_user", "make_fresh"]
