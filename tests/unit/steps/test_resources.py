"""Resources: managers, factories and config files."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from loom.steps.resource_checks import check_resource_configs, check_resources
from loom.steps.resources import (
    Resource,
    ResourceConfig,
    ResourceDefinition,
    ResourceDescriptor,
    ResourceManager,
    identity_of,
)

if TYPE_CHECKING:
    from somewhere import OnlyForTypeCheckers


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

    assert await asyncio.wait_for(manager.get(Resource(make)), timeout=60) == 2
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
    results = await asyncio.wait_for(both, timeout=60)

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


def make_name() -> str:
    """The name to greet."""
    return "Ada"


def make_greeting(name: Annotated[str, Resource(make_name)], mark: str = "!") -> OnlyForTypeCheckers:
    return f"Hello {name}{mark}"  # type: ignore[return-value]


async def make_slowly(greeting: Annotated[str, Resource(make_greeting)]) -> str:
    return greeting.upper()


class Shop:
    def __init__(self, name: Annotated[str, Resource(make_name)]) -> None:
        self.name = name

    def sell(self, name: Annotated[str, Resource(make_name)]) -> str:
        return f"sold to {name}"

    def __call__(self, name: Annotated[str, Resource(make_name)]) -> str:
        return f"called by {name}"


def make_with_more(name: Annotated[str, Resource(make_name)], more: int) -> str:
    return name * more


async def resolve(factory: Any) -> Any:
    return await ResourceManager().get(Resource(factory))


async def test_factories_may_be_sync_or_async_and_depend_on_each_other() -> None:
    assert await resolve(make_slowly) == "HELLO ADA!"


async def test_factories_may_be_any_callable() -> None:
    assert (await resolve(Shop)).name == "Ada"
    assert await resolve(Shop("x").sell) == "sold to Ada"
    assert await resolve(Shop("x")) == "called by Ada"
    assert await resolve(functools.partial(make_with_more, more=2)) == "AdaAda"


async def test_a_coroutine_from_a_sync_factory_is_awaited() -> None:
    assert await resolve(lambda: make_slowly("hi")) == "HI"


async def test_an_awaitable_that_is_no_coroutine_is_the_resource_itself() -> None:
    class Pool:
        def __await__(self) -> Any:
            raise AssertionError("not ours to await")

    assert isinstance(await resolve(Pool), Pool)


def test_a_resource_tells_what_drawings_show() -> None:
    resource = Resource(make_greeting, cache=False)
    ((parameter, dependency, wanted),) = resource.get_dependencies()

    assert (resource.name, resource.cache, resource.factory) == ("make_greeting", False, make_greeting)
    assert (parameter, dependency.name, wanted) == ("name", "make_name", str)
    assert Resource(make_name).description == "The name to greet."
    assert Resource(functools.partial(make_with_more, more=1)).name == "make_with_more"


def test_it_fits_the_protocol_and_the_definition() -> None:
    resource = Resource(make_name)

    assert isinstance(resource, ResourceDescriptor)
    assert ResourceDefinition(name="n", resource=resource, type_annotation=str).resource is resource
    with pytest.raises(ValueError, match="ResourceDescriptor"):
        ResourceDefinition(name="n", resource=object())


def test_a_factory_must_be_callable() -> None:
    with pytest.raises(TypeError, match="a factory that can be called"):
        Resource("make_name")  # type: ignore[arg-type]


async def test_annotations_may_name_locals_of_the_step() -> None:
    def make_local() -> str:
        return "local"

    def make_outer(inner: Annotated[str, Resource(make_local)]) -> str:
        return f"outer {inner}"

    resource = Resource(make_outer)
    resource.set_localns({"make_local": make_local, "Resource": None})

    assert await ResourceManager().get(resource) == "outer local"


async def test_a_resource_that_cannot_be_read_is_a_clear_error() -> None:
    def make_local() -> str:
        return "local"

    def make_outer(inner: Annotated[str, Resource(make_local)]) -> str:
        return inner

    with pytest.raises(
        ValueError, match=r"Failed to resolve type annotations for resource factory .*make_outer.*local"
    ):
        await resolve(make_outer)


def test_the_factory_object_is_the_identity() -> None:
    shop = Shop("x")
    first, second = (lambda: 1), (lambda: 1)

    assert identity_of(Resource(first)) == identity_of(Resource(first))
    assert identity_of(Resource(first)) != identity_of(Resource(second))
    assert identity_of(Resource(shop.sell)) == identity_of(Resource(shop.sell))
    assert identity_of(Resource(shop.sell)) != identity_of(Resource(Shop("y").sell))


class Threshold(BaseModel):
    limit: float


class Looser(BaseModel):
    limit: int = 0
    name: str = "none"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"limit": 1, "deep": {"er": {"limit": 2}, "text": "no"}}), encoding="utf-8")
    return path


def step_configs(**parameters: Any) -> dict[str, Any]:
    definitions = [
        ResourceDefinition(name=name, resource=resource, type_annotation=wanted)
        for name, (wanted, resource) in parameters.items()
    ]
    return {"classify": SimpleNamespace(resources=definitions)}


async def test_a_file_becomes_the_annotated_model(file: Path) -> None:
    manager = ResourceManager()
    value = await manager.get(ResourceConfig(str(file)), Threshold)

    assert value == Threshold(limit=1)
    assert await manager.get(ResourceConfig(str(file)), Threshold) is value


async def test_a_path_selects_an_object_in_the_file(file: Path) -> None:
    config = ResourceConfig(str(file), "deep.er", label="Limits", description="of everything")

    assert await ResourceManager().get(config, Threshold) == Threshold(limit=2)
    assert config.load() == {"limit": 2}
    assert (config.name, config.label, config.description) == (f"{file}.deep.er", "Limits", "of everything")


async def test_one_declaration_may_serve_two_models(file: Path) -> None:
    config = ResourceConfig(str(file))
    manager = ResourceManager()

    assert await manager.get(config, Threshold) == Threshold(limit=1)
    assert await manager.get(config, Looser) == Looser(limit=1)
    assert await manager.get(config, dict[str, Any]) == config.load()


def test_the_file_is_looked_for_when_it_is_needed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ResourceConfig("settings.json")
    with pytest.raises(FileNotFoundError, match=r"No such file: settings\.json"):
        _ = config.config_file
    monkeypatch.chdir(file.parent)

    assert config.config_file == str(file.resolve())


def test_only_json_files_are_read() -> None:
    with pytest.raises(ValueError, match="Only JSON files can be used to load Pydantic-based resources"):
        ResourceConfig("settings.yaml")


@pytest.mark.parametrize("path", ["deep.text", "deep.missing", "limit.x"])
def test_a_path_that_leads_to_no_object_is_named_with_its_file(file: Path, path: str) -> None:
    with pytest.raises(
        ValueError, match=r"Expected dictionary for configuration from .*settings\.json at path "
    ) as error:
        ResourceConfig(str(file), path).load()

    assert f"at path {path.removesuffix('.x')}, got: " in str(error.value)


def test_a_file_that_is_no_json_is_named(file: Path) -> None:
    file.write_text("{", encoding="utf-8")

    with pytest.raises(ValueError, match=r"settings\.json is not valid JSON: "):
        ResourceConfig(str(file)).load()


def test_a_file_that_does_not_fit_the_model_says_which(file: Path) -> None:
    config = ResourceConfig(str(file), "deep")
    config.set_type_annotation(Threshold)
    with pytest.raises(ValidationError) as error:
        config.call()

    assert error.value.__notes__ == [f"while reading {file.resolve()} at path deep"]


def test_a_config_without_a_model_cannot_be_made(file: Path) -> None:
    with pytest.raises(ValueError, match="Class factory should be set to a BaseModel subclass before calling"):
        ResourceConfig(str(file)).call()


def test_the_check_reads_configs_of_steps_and_of_their_factories(file: Path) -> None:
    def make(config: Any) -> Any:
        return config

    make.__annotations__["config"] = Annotated[Threshold, ResourceConfig("nested.json")]
    complaints = check_resource_configs(
        step_configs(
            good=(Threshold, ResourceConfig(str(file))),
            bad=(Threshold, ResourceConfig(str(file), "deep")),
            gone=(Threshold, ResourceConfig("gone.json")),
            made=(Any, Resource(make)),
        )
    )

    assert len(complaints) == 3
    assert complaints[0].startswith(f"In step 'classify', parameter 'bad': {file.resolve()} at path deep: 1 validation")
    assert complaints[1] == "In step 'classify', parameter 'gone': No such file: gone.json"
    name = Resource(make).name
    assert complaints[2] == (f"In step 'classify', parameter 'made' ({name} -> nested.json): No such file: nested.json")


def test_the_check_survives_cycles_and_broken_validators(file: Path) -> None:
    class Broken(BaseModel):
        def __init__(self, **data: Any) -> None:
            raise RuntimeError("boom")

    def make(it: Any) -> Any:
        return it

    make.__annotations__["it"] = Annotated[Any, Resource(make)]

    assert check_resource_configs(
        step_configs(cycle=(Any, Resource(make)), broken=(Broken, ResourceConfig(str(file))))
    ) == ["In step 'classify', parameter 'broken': boom"]


async def test_making_all_resources_gives_the_complaints(file: Path) -> None:
    def fail() -> None:
        raise OSError("no key")

    manager = ResourceManager()
    complaints = await check_resources(
        step_configs(good=(Threshold, ResourceConfig(str(file))), bad=(Any, Resource(fail))), manager
    )

    assert complaints == ["In step 'classify', parameter 'bad': no key"]
    assert manager.get_all() == {str(file): Threshold(limit=1)}
