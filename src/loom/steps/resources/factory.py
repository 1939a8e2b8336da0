"""Resources that a factory makes.

May import the standard library and the modules beside it.
"""

from __future__ import annotations

import functools
import inspect
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from loom.steps.resources.annotations import factory_dependencies

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.resources.descriptor import Dependency
    from loom.steps.resources.manager import ResourceManager

_T = TypeVar("_T")


class FactoryResource(Generic[_T]):
    """A resource made by calling a function, sync or async, whose parameters may be resources themselves."""

    def __init__(self, factory: Callable[..., Any], cache: bool = True) -> None:
        if not callable(factory):
            raise TypeError(f"A resource needs a factory that can be called, not {factory!r}")
        self.factory = factory
        self.cache = cache
        self.name = _name_of(factory)
        self._localns: dict[str, Any] | None = None
        self._dependencies: list[Dependency] | None = None

    @property
    def description(self) -> str | None:
        """The docstring of the factory."""
        return inspect.getdoc(self.factory)

    @property
    def identity(self) -> object:
        """What makes two resources the same one: the factory object. A bound method is its function and its object."""
        factory = self.factory
        if isinstance(factory, MethodType):
            return (id(factory.__self__), factory.__func__)
        return id(factory)

    def set_type_annotation(self, type_annotation: Any) -> None:
        """A factory knows what it makes; the annotation changes nothing."""

    def set_localns(self, localns: dict[str, Any] | None) -> None:
        """Learn the local names in which the factory's annotations may have to be read."""
        if localns is not self._localns:
            self._localns = localns
            self._dependencies = None

    def get_dependencies(self) -> list[Dependency]:
        """List the factory's own resources; its annotations are read once."""
        if self._dependencies is None:
            self._dependencies = factory_dependencies(self.factory, self._localns)
            for _, descriptor, _ in self._dependencies:
                descriptor.set_localns(self._localns)
        return self._dependencies

    async def resolve(self, manager: ResourceManager) -> _T:
        """Resolve the dependencies, then call the factory."""
        arguments = {}
        for parameter, descriptor, wanted in self.get_dependencies():
            arguments[parameter] = await manager.get(descriptor, wanted)
        made = self.factory(**arguments)
        # Only coroutines: an awaitable that a sync factory returns may be the resource itself, such as a pool.
        if inspect.iscoroutine(made):
            made = await made
        result: _T = made
        return result


def Resource(factory: Callable[..., Any], cache: bool = True) -> FactoryResource[Any]:  # noqa: N802 - a public name
    """Declare a resource for `Annotated[T, Resource(factory)]`.

    With `cache` one value serves all steps of a workflow instance; without it every execution of a step gets its own.
    """
    return FactoryResource(factory, cache)


def _name_of(factory: Callable[..., Any]) -> str:
    while isinstance(factory, functools.partial):
        factory = factory.func
    name: str = getattr(factory, "__qualname__", type(factory).__name__)
    return name
