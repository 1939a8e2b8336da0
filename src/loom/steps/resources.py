"""Resources: values that steps get as parameters, made by factories or read from config files.

A step declares one as `Annotated[T, Resource(factory)]` or `Annotated[Model, ResourceConfig("file.json")]`. The manager
of a workflow instance makes a value when a step first asks for it, once, and shares it with all who wait.

A value is kept in a *place*: that of the process, or that of a run in memory. What a factory has yielded is torn down
with its place, or with the execution that it was made for; see `resource_lifetimes`.
"""

from __future__ import annotations

import inspect
import os
from copy import copy
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
)

from pydantic import BaseModel, ConfigDict

from loom.steps.config_resources import ConfigResource, ResourceConfig
from loom.steps.resource_descriptors import (
    Dependency,
    ResourceDescriptor,
    factory_dependencies,
    function_of,
    has_end,
    identity_of,
    is_generator,
    name_of,
    refuse_repetition,
    refuse_shorter_life,
    walk,
)
from loom.steps.resource_lifetimes import TEARDOWN_LIMIT_S, KeptValue, Lifetime, close_soon

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "ConfigResource",
    "Dependency",
    "FactoryResource",
    "Resource",
    "ResourceConfig",
    "ResourceDefinition",
    "ResourceDescriptor",
    "ResourceManager",
    "ResourceUse",
    "RunResources",
    "factory_dependencies",
    "function_of",
    "has_end",
    "identity_of",
]

Scope: TypeAlias = Literal["process", "run"]
"""How long a cached value is kept: as long as the process works for its workflow, or while its run is in memory."""


class ResourceDefinition(BaseModel):
    """A parameter of a step that is a resource."""

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    name: str
    resource: ResourceDescriptor
    type_annotation: Any = None


_T = TypeVar("_T")


class FactoryResource(Generic[_T]):
    """A resource made by calling a function, sync or async, whose parameters may be resources themselves."""

    def __init__(
        self,
        factory: Callable[..., Any],
        cache: bool = True,
        scope: Scope | None = None,
        teardown_timeout: float = TEARDOWN_LIMIT_S,
    ) -> None:
        if not callable(factory):
            raise TypeError(f"A resource needs a factory that can be called, not {factory!r}")
        self.factory = factory
        self.cache = cache
        self.name = name_of(factory)
        if scope not in (None, "process", "run"):
            raise ValueError(f"The scope of resource '{self.name}' is 'process' or 'run', not {scope!r}")
        if scope is not None and not cache:
            raise ValueError(
                f"Resource '{self.name}' has cache=False, which makes a value for every execution of a step: it can "
                f"have no scope, and has {scope!r}"
            )
        if isinstance(teardown_timeout, bool) or not 0 < teardown_timeout < float("inf"):
            raise ValueError(
                f"The teardown_timeout of resource '{self.name}' is a positive number of seconds, "
                f"not {teardown_timeout!r}"
            )
        self.scope: Scope = scope or "process"
        self.teardown_timeout = teardown_timeout
        self.yields = is_generator(factory)
        """Whether the factory is a generator: the value is what it yields, and the rest of it is the teardown."""
        self._localns: dict[str, Any] | None = None
        self._dependencies: list[Dependency] | None = None

    @property
    def description(self) -> str | None:
        """The docstring of the factory."""
        return inspect.getdoc(self.factory)

    @property
    def identity(self) -> object:
        """Return what makes two resources the same one: the factory; of a bound method its function and its object."""
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
        if self.yields:
            kept: _T = await manager.keep(self, made)
            return kept
        # Only coroutines: an awaitable that a sync factory returns may be the resource itself, such as a pool.
        if inspect.iscoroutine(made):
            made = await made
        result: _T = made
        return result


def Resource(  # noqa: N802 - a public name
    factory: Callable[..., Any],
    cache: bool = True,
    *,
    scope: Scope | None = None,
    teardown_timeout: float = TEARDOWN_LIMIT_S,
) -> FactoryResource[Any]:
    """Declare a resource for `Annotated[T, Resource(factory)]`.

    With `cache` one value serves all steps of a workflow instance in this process, or of one run with `scope="run"`;
    without it every execution of a step gets its own. A factory that yields its value is continued when the value is
    not needed any more: when the runtime closes, when the run leaves memory, or when the execution ends. That may take
    `teardown_timeout` seconds.
    """
    return FactoryResource(factory, cache, scope, teardown_timeout)


class _Made:
    """A value and its descriptor, which is kept because keys hold ids of what it refers to."""

    __slots__ = ("loop", "pid", "resource", "value")

    def __init__(self, resource: ResourceDescriptor, value: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.resource = resource
        self.value = value
        self.loop = loop
        """The event loop on which a value with an end was made; None for other values."""
        self.pid = os.getpid() if loop is not None else 0

    @property
    def is_usable(self) -> bool:
        """Whether the value is this process's own: a fork has copies, and what they refer to ends elsewhere."""
        return self.loop is None or self.pid == os.getpid()


class _Making:
    """A value that is being made, and how many wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[_Made | BaseException]) -> None:
        self.task = task
        self.waiting = 0


class _Place:
    """What is kept together: cached values, the ones that are being made, and what is torn down at the end."""

    __slots__ = ("is_left", "lifetime", "made", "making")

    def __init__(self) -> None:
        self.made: dict[object, _Made] = {}
        self.making: dict[object, _Making] = {}
        self.lifetime = Lifetime()
        self.is_left = False
        """Whether nothing will tear down what is kept here from now on."""

    def forget(self) -> Lifetime:
        """Forget all values that have an end, and return what tears them down."""
        self.made = {key: made for key, made in self.made.items() if made.loop is None}
        lifetime, self.lifetime = self.lifetime, Lifetime()
        return lifetime

    def forget_those_of(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget the values with an end that were made on an event loop, which ends."""
        self.made = {key: made for key, made in self.made.items() if made.loop is not loop}


class _Shared(_Place):
    """What all views of one manager have in common; the place of the process."""

    __slots__ = ("given", "leaving")

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}
        self.leaving: dict[str, asyncio.Task[None]] = {}
        """The teardowns under way of runs that have left memory, by run."""


class _Owner(NamedTuple):
    """For whom values without a cache are made: an execution, or a cached value, with whose place they end."""

    made: dict[object, _Made]
    place: _Place


class RunResources(_Place):
    """The place of one run in memory."""

    __slots__ = ("_manager", "_run_id")

    def __init__(self, manager: ResourceManager, run_id: str) -> None:
        super().__init__()
        self._manager = manager
        self._run_id = run_id

    def leave(self) -> None:
        """Tear the run's values down, once its bodies have ended. The run does not wait for that."""
        self.is_left = True
        task = close_soon(self.forget())
        if task is not None:
            leaving = self._manager._shared.leaving
            leaving[self._run_id] = task
            task.add_done_callback(
                lambda done: leaving.pop(self._run_id) if leaving.get(self._run_id) is done else None
            )

    async def predecessor(self) -> None:
        """Wait until what the run had before it left memory is torn down."""
        await _ended_here([self._manager._shared.leaving.get(self._run_id)])


async def _ended_here(tasks: Iterable[asyncio.Task[None] | None]) -> None:
    """Wait for the tasks of this event loop."""
    import asyncio

    here = [task for task in tasks if task is not None and task.get_loop() is asyncio.get_running_loop()]
    if here:
        await asyncio.wait(here)


class RunInMemory(Protocol):
    """A run, as resources see it."""

    run_id: str
    resources: RunResources | None
    """What is kept for it while it is in memory; None until something is."""


class ResourceManager:
    """Makes resources and keeps the cached ones.

    A factory that is asked for by many at once runs once and all of them get its value; it goes on as long as one of
    them still waits. A failure reaches all who wait and is not kept: the next one to ask tries again.

    One manager may serve several event loops; each makes what it finds missing on its own.
    """

    __slots__ = ("__weakref__", "_chain", "_owner", "_run", "_scope", "_shared")

    def __init__(self) -> None:
        self._shared = _Shared()
        # Set in the views that factories get: what is being made above them, and what this execution has made.
        self._chain: tuple[ResourceDescriptor, ...] = ()
        self._scope: dict[object, _Made] | None = None
        self._run: RunResources | None = None
        self._owner: _Owner | None = None

    async def set(self, name: str, val: Any) -> None:
        """Give the value for cached resources of that name; nothing is made for them then."""
        self._shared.given[name] = val

    async def get(self, resource: ResourceDescriptor, type_annotation: Any = None) -> Any:
        """Return the value of a resource, making it if need be."""
        if type_annotation is not None:
            resource.set_type_annotation(type_annotation)
            if isinstance(resource, ConfigResource):
                resource = resource.bound_to(type_annotation)
        if resource.cache and resource.name in self._shared.given:
            return self._shared.given[resource.name]
        key = identity_of(resource)
        if resource.cache:
            place = self._place_for(resource)
            made = place.made.get(key)
            if made is not None and made.is_usable:
                return made.value
            self._refuse_cycle(resource)
            return await self._make_once(resource, key, place)
        self._refuse_cycle(resource)
        own = self._owner.made if self._owner is not None and has_end(resource) else self._scope
        made = own.get(key) if own is not None else None
        if made is not None:
            return made.value
        value = await resource.resolve(self._view(resource))
        if own is not None:
            own[key] = _Made(resource, value)
        return value

    async def resolve_all(self, definitions: Sequence[ResourceDefinition]) -> dict[str, Any]:
        """Return the values for the parameters of one execution of a step, by parameter.

        Within it a resource that is not cached is still made only once, however many factories ask for it.
        """
        if not definitions:
            return {}
        view = copy(self)
        view._scope = {}
        if view._owner is None:
            view._owner = _Owner({}, self._shared)
        return {item.name: await view.get(item.resource, item.type_annotation) for item in definitions}

    def for_execution(self, run: RunInMemory | None) -> ResourceUse:
        """Return the values' use by one execution of a run; without a run its values are kept with the process's."""
        return ResourceUse(self, run)

    async def keep(self, resource: FactoryResource[Any], generator: Any) -> Any:
        """Set up a value that a factory yields, and note where it ends."""
        place = self._owner.place if self._owner is not None else self._shared
        kept = KeptValue(resource.name, resource.teardown_timeout, place.forget_those_of)
        await kept.begin(generator)
        if place.is_left:
            await kept.end()
            raise RuntimeError(f"Resource '{resource.name}' was made for what has ended by now.")
        place.lifetime.kept.append(kept)
        return kept.value

    async def close(self) -> None:
        """Tear down what factories have yielded for the process, after what they have yielded for runs that have left.

        The manager can still be used: what was torn down is made anew when a step asks for it.
        """
        await _ended_here(list(self._shared.leaving.values()))
        await self._shared.forget().close()

    def get_all(self) -> dict[str, Any]:
        """Return the values that exist, by name; of two with one name the later one."""
        return {**{made.resource.name: made.value for made in self._shared.made.values()}, **self._shared.given}

    @property
    def resources(self) -> dict[str, Any]:
        """Return `get_all()`."""
        return self.get_all()

    def _place_for(self, resource: ResourceDescriptor) -> _Place:
        return self._run if getattr(resource, "scope", "") == "run" and self._run is not None else self._shared

    def _view(self, resource: ResourceDescriptor) -> ResourceManager:
        """The manager as a factory sees it: it knows on whose behalf it makes things."""
        view = copy(self)
        view._chain = (*self._chain, resource)
        view._scope = {} if self._scope is None else self._scope
        if resource.cache:
            # What is made for a value that is kept lives as long, and is not shared with the execution.
            view._owner = _Owner({}, self._place_for(resource))
        return view

    async def _make_once(self, resource: ResourceDescriptor, key: object, home: _Place) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        place = (key, loop)
        making = home.making.get(place)
        if making is None or making.task.done():
            making = home.making[place] = _Making(loop.create_task(self._make(resource, key, home)))
        making.waiting += 1
        try:
            # Not awaited directly: a cancelled waiter must not take the task from the others.
            await asyncio.wait((making.task,))
        finally:
            making.waiting -= 1
            if not making.waiting:
                making.task.cancel()
                if home.making.get(place) is making:
                    del home.making[place]
        made = making.task.result()
        if isinstance(made, BaseException):
            raise made
        return made.value

    async def _make(self, resource: ResourceDescriptor, key: object, home: _Place) -> _Made | BaseException:
        """Make a value to be kept. A factory that asks the process to exit fails for all who wait, as any failure does.

        Raised by a task, these two would end the event loop before anybody who waits is told.
        """
        import asyncio

        try:
            if isinstance(home, RunResources):
                await home.predecessor()
            value = await resource.resolve(self._view(resource))
        except (SystemExit, KeyboardInterrupt) as error:
            return error
        made = home.made[key] = _Made(resource, value, asyncio.get_running_loop() if has_end(resource) else None)
        return made

    def _refuse_cycle(self, resource: ResourceDescriptor) -> None:
        """Raise if a resource needs itself.

        At the top of a chain all that is declared is walked before anything is made, because two who wait for each
        other from opposite ends of a cycle would never see it in their own chains.
        """
        if self._chain:
            refuse_repetition(resource, self._chain)
            refuse_shorter_life(resource, self._chain)
        else:
            walk(resource, (), set(self._shared.made), self._shared.given)


class ResourceUse:
    """The values of one execution of a step: what was made for it alone ends with it."""

    __slots__ = ("_held", "_manager", "_place")

    def __init__(self, manager: ResourceManager, run: RunInMemory | None) -> None:
        if run is not None and run.resources is None:
            run.resources = RunResources(manager, run.run_id)
        self._place = _Place()
        self._manager = copy(manager)
        self._manager._run = run.resources if run is not None else None
        self._manager._owner = _Owner({}, self._place)
        self._held = [
            manager._shared.lifetime,
            *([run.resources.lifetime] if run is not None and run.resources else []),
        ]
        for lifetime in self._held:
            lifetime.hold()

    async def values(self, definitions: Sequence[ResourceDefinition]) -> dict[str, Any]:
        """Return the values for the parameters of the step."""
        return await self._manager.resolve_all(definitions)

    async def end(self) -> None:
        """Tear down what was made for the execution alone, and let go of the rest."""
        import asyncio

        self._place.is_left = True
        try:
            task = close_soon(self._place.forget())
            if task is not None:
                await asyncio.wait((task,))
        finally:
            for lifetime in self._held:
                lifetime.let_go()
