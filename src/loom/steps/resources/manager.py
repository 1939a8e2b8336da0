"""The resources of a workflow instance: made when first asked for, once, and shared by all who wait.

May import the modules beside it; asyncio only when a value has to be made.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from loom.steps.resources.config import ConfigResource
from loom.steps.resources.descriptor import identity_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from loom.steps.resources.descriptor import ResourceDefinition, ResourceDescriptor


class _Made:
    """A value and its descriptor, which is kept because keys hold ids of what it refers to."""

    __slots__ = ("resource", "value")

    def __init__(self, resource: ResourceDescriptor, value: Any) -> None:
        self.resource = resource
        self.value = value


class _Making:
    """A value that is being made, and how many wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[_Made | BaseException]) -> None:
        self.task = task
        self.waiting = 0


class _Shared:
    """What all views of one manager have in common."""

    __slots__ = ("given", "made", "making")

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.made: dict[object, _Made] = {}
        self.making: dict[object, _Making] = {}


class ResourceManager:
    """Makes resources and keeps the cached ones.

    A factory that is asked for by many at once runs once and all of them get its value; it goes on as long as one of
    them still waits. A failure reaches all who wait and is not kept: the next one to ask tries again.

    One manager may serve several event loops; each makes what it finds missing on its own.
    """

    __slots__ = ("__weakref__", "_chain", "_scope", "_shared")

    def __init__(self) -> None:
        self._shared = _Shared()
        # Set in the views that factories get: what is being made above them, and what this execution has made.
        self._chain: tuple[ResourceDescriptor, ...] = ()
        self._scope: dict[object, _Made] | None = None

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
        made = (self._shared.made if resource.cache else self._scope or {}).get(key)
        if made is not None:
            return made.value
        self._refuse_cycle(resource)
        if resource.cache:
            return await self._make_once(resource, key)
        value = await resource.resolve(self._view(resource))
        if self._scope is not None:
            self._scope[key] = _Made(resource, value)
        return value

    async def resolve_all(self, definitions: Sequence[ResourceDefinition]) -> dict[str, Any]:
        """Return the values for the parameters of one execution of a step, by parameter.

        Within it a resource that is not cached is still made only once, however many factories ask for it.
        """
        if not definitions:
            return {}
        view = copy(self)
        view._scope = {}
        return {item.name: await view.get(item.resource, item.type_annotation) for item in definitions}

    def get_all(self) -> dict[str, Any]:
        """Return the values that exist, by name; of two with one name the later one."""
        return {**{made.resource.name: made.value for made in self._shared.made.values()}, **self._shared.given}

    @property
    def resources(self) -> dict[str, Any]:
        """The same as `get_all`."""
        return self.get_all()

    def _view(self, resource: ResourceDescriptor) -> ResourceManager:
        """The manager as a factory sees it: it knows on whose behalf it makes things."""
        view = copy(self)
        view._chain = (*self._chain, resource)
        view._scope = {} if self._scope is None else self._scope
        return view

    async def _make_once(self, resource: ResourceDescriptor, key: object) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        place = (key, loop)
        making = self._shared.making.get(place)
        if making is None or making.task.done():
            making = self._shared.making[place] = _Making(loop.create_task(self._make(resource, key)))
        making.waiting += 1
        try:
            # Not awaited directly: a cancelled waiter must not take the task from the others.
            await asyncio.wait((making.task,))
        finally:
            making.waiting -= 1
            if not making.waiting:
                making.task.cancel()
                if self._shared.making.get(place) is making:
                    del self._shared.making[place]
        made = making.task.result()
        if isinstance(made, BaseException):
            raise made
        return made.value

    async def _make(self, resource: ResourceDescriptor, key: object) -> _Made | BaseException:
        """Make a value to be kept. A factory that asks the process to exit fails for all who wait, as any failure does.

        Raised by a task, these two would end the event loop before anybody who waits is told.
        """
        try:
            value = await resource.resolve(self._view(resource))
        except (SystemExit, KeyboardInterrupt) as error:
            return error
        made = self._shared.made[key] = _Made(resource, value)
        return made

    def _refuse_cycle(self, resource: ResourceDescriptor) -> None:
        """Raise if a resource needs itself.

        At the top of a chain all that is declared is walked before anything is made, because two who wait for each
        other from opposite ends of a cycle would never see it in their own chains.
        """
        if self._chain:
            _refuse_repetition(resource, self._chain)
        else:
            _walk(resource, (), set(self._shared.made), self._shared.given)


def _walk(
    resource: ResourceDescriptor, chain: tuple[ResourceDescriptor, ...], done: set[object], given: dict[str, Any]
) -> None:
    key = identity_of(resource)
    if key in done or (resource.cache and resource.name in given):
        return
    _refuse_repetition(resource, chain)
    for _, dependency, _ in resource.get_dependencies():
        _walk(dependency, (*chain, resource), done, given)
    done.add(key)


def _refuse_repetition(resource: ResourceDescriptor, chain: tuple[ResourceDescriptor, ...]) -> None:
    if identity_of(resource) in map(identity_of, chain):
        names = " -> ".join(item.name for item in (*chain, resource))
        raise ValueError(f"Circular resource dependency detected: {names}")
