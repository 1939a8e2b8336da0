from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from loom.steps.resources import Resource, ResourceDefinition, ResourceDescriptor, ResourceManager, identity_of

if TYPE_CHECKING:
    from somewhere import OnlyForTypeCheckers


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
