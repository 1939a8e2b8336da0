"""Resources: values that steps get as parameters, made by factories or read from config files.

A step declares one as `Annotated[T, Resource(factory)]` or `Annotated[Model, ResourceConfig("file.json")]`. The manager
of a workflow instance makes a value when a step first asks for it, once, and shares it with all who wait.
"""

from __future__ import annotations

import functools
import inspect
import os.path
from copy import copy
from pathlib import Path
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence


@runtime_checkable
class ResourceDescriptor(Protocol):
    """Something in `Annotated[T, ...]` that gives a step parameter its value."""

    @property
    def name(self) -> str:
        """The name people see, and under which a value can be set by hand."""
        ...

    @property
    def cache(self) -> bool:
        """Return whether one value serves all who ask the same manager."""
        ...

    async def resolve(self, manager: ResourceManager) -> Any:
        """Make the value; what it depends on comes from the given manager."""
        ...

    def set_type_annotation(self, type_annotation: Any) -> None:
        """Learn the `T` of the annotation."""
        ...

    def set_localns(self, localns: dict[str, Any] | None) -> None:
        """Learn the local names around the step, for annotations that are text."""
        ...

    def get_dependencies(self) -> list[tuple[str, ResourceDescriptor, Any]]:
        """List the resources that this one is made from, as (parameter, descriptor, `T`)."""
        ...


Dependency: TypeAlias = tuple[str, ResourceDescriptor, Any]
"""A parameter of a factory: its name, its descriptor and the annotated type."""


def identity_of(resource: ResourceDescriptor) -> object:
    """Tell what makes two descriptors one resource: class and name, and the `identity` that Loom's own kinds have."""
    return (type(resource), resource.name, getattr(resource, "identity", None))


class ResourceDefinition(BaseModel):
    """A parameter of a step that is a resource."""

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    name: str
    resource: ResourceDescriptor
    type_annotation: Any = None


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


def factory_dependencies(factory: Callable[..., Any], localns: dict[str, Any] | None) -> list[Dependency]:
    """List the parameters annotated `Annotated[T, Resource(...)]` as (name, descriptor, T)."""
    found: list[Dependency] = []
    for parameter in inspect.signature(factory).parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = _evaluated(annotation, factory, localns)
        if get_origin(annotation) is not Annotated:
            continue
        wanted, *marks = get_args(annotation)
        descriptor = next((mark for mark in marks if isinstance(mark, ResourceDescriptor)), None)
        if descriptor is not None:
            found.append((parameter.name, descriptor, wanted))
    return found


def function_of(factory: Callable[..., Any]) -> Any:
    """Find the function inside a partial, a class, a callable object or a decorated function."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    factory = inspect.unwrap(factory)
    if inspect.isroutine(factory):
        return factory
    return getattr(factory, "__init__" if isinstance(factory, type) else "__call__")


def _evaluated(text: str, factory: Callable[..., Any], localns: dict[str, Any] | None) -> Any:
    """Evaluate one annotation alone: what its neighbors name may exist for type checkers only."""
    globalns: dict[str, Any] = getattr(function_of(factory), "__globals__", {})
    # Names of the factory's own module win over those around the step that asks for it.
    local = {name: value for name, value in (localns or {}).items() if name not in globalns}

    def bearer() -> None: ...

    bearer.__annotations__ = {"it": text}
    try:
        return get_type_hints(bearer, globalns, local, include_extras=True)["it"]
    except (NameError, AttributeError) as error:
        if "Annotated" not in text:
            return text
        shown = getattr(factory, "__qualname__", repr(factory))
        raise ValueError(f"Failed to resolve type annotations for resource factory '{shown}': {error}") from error


class ConfigResource:
    """A JSON file, or one object in it, as the model that the annotation names."""

    cache = True

    def __init__(
        self,
        config_file: str,
        path_selector: str | None = None,
        label: str | None = None,
        description: str | None = None,
        cls_factory: Any = None,
    ) -> None:
        if Path(config_file).suffix != ".json":
            raise ValueError("Only JSON files can be used to load Pydantic-based resources.")
        self._declared_file = config_file
        self._found_file: str | None = None
        self.path_selector = path_selector
        self.label = label
        self.description = description
        self.cls_factory = cls_factory

    @property
    def name(self) -> str:
        """The file as it was declared, with the path into it."""
        return self._declared_file if self.path_selector is None else f"{self._declared_file}.{self.path_selector}"

    @property
    def config_file(self) -> str:
        """The absolute path of the file, which must exist when it is first asked for."""
        if self._found_file is None:
            path = Path(self._declared_file)
            if not path.is_file():
                raise FileNotFoundError(f"No such file: {self._declared_file}")
            self._found_file = str(path.resolve())
        return self._found_file

    @property
    def identity(self) -> object:
        """Return what makes two configs the same one: file, path and model."""
        return (os.path.abspath(self._declared_file), self.path_selector, id(self.cls_factory))

    def set_type_annotation(self, type_annotation: Any) -> None:
        """Take the annotated type for the model, unless there is one already."""
        if self.cls_factory is None:
            self.cls_factory = type_annotation

    def bound_to(self, type_annotation: Any) -> ConfigResource:
        """Return this config for that model: one declaration may be annotated with several."""
        if type_annotation is None or self.cls_factory is type_annotation:
            return self
        return ConfigResource(self._declared_file, self.path_selector, self.label, self.description, type_annotation)

    def set_localns(self, localns: dict[str, Any] | None) -> None:
        """A file has no annotations to read."""

    def get_dependencies(self) -> list[Dependency]:
        """A file depends on nothing."""
        return []

    def load(self) -> Any:
        """Read the file and return the data at the path, not yet validated."""
        import json

        file = self.config_file
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"Configuration file {file} is not valid JSON: {error}") from error
        walked: list[str] = []
        for key in self.path_selector.split(".") if self.path_selector is not None else []:
            walked.append(key)
            data = data.get(key) if isinstance(data, dict) else None
            if not isinstance(data, dict):
                raise ValueError(
                    f"Expected dictionary for configuration from {file} at path {'.'.join(walked)}, got: {type(data)}"
                )
        return data

    def call(self) -> Any:
        """Read the file into the model; a `ValidationError` carries a note with the file and the path."""
        if self.cls_factory is None:
            raise ValueError("Class factory should be set to a BaseModel subclass before calling")
        data = self.load()
        try:
            if isinstance(self.cls_factory, type) and issubclass(self.cls_factory, BaseModel):
                return self.cls_factory.model_validate(data)
            from pydantic import TypeAdapter

            return TypeAdapter(self.cls_factory).validate_python(data)
        except ValidationError as error:
            error.add_note(f"while reading {self._place()}")
            raise

    def problem(self) -> str | None:
        """Say what is wrong with the file or its content, or None; for the validation of a workflow."""
        try:
            self.call()
        except ValidationError as error:
            return f"{self._place()}: {error}"
        except Exception as error:  # noqa: BLE001 - validators are foreign code; every failure is a complaint
            return str(error)
        return None

    async def resolve(self, manager: ResourceManager) -> Any:  # noqa: ARG002 - the protocol's signature
        """Read the file into the model."""
        return self.call()

    def _place(self) -> str:
        return self.config_file if self.path_selector is None else f"{self.config_file} at path {self.path_selector}"


def ResourceConfig(  # noqa: N802 - a public name
    config_file: str,
    path_selector: str | None = None,
    label: str | None = None,
    description: str | None = None,
) -> ConfigResource:
    """Declare a config for `Annotated[Model, ResourceConfig("file.json")]`.

    `path_selector` names an object inside the file by dotted keys; `label` and `description` are for drawings.
    """
    return ConfigResource(config_file, path_selector, label, description)


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
        """Return `get_all()`."""
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


def check_resource_configs(steps: Mapping[str, Any]) -> list[str]:
    """Read every config file that the steps, or the factories they use, depend on.

    `steps` maps names to step configs. Every complaint says where the config is declared.
    """
    complaints: list[str] = []
    for step_name, config in steps.items():
        for definition in config.resources:
            place = f"In step '{step_name}', parameter '{definition.name}'"
            complaints += _check(definition.resource, definition.type_annotation, place, [])
    return list(dict.fromkeys(complaints))


def try_resources(steps: Mapping[str, Any], manager: ResourceManager) -> list[str]:
    """Do `check_resources` for callers that cannot await, on an event loop of its own."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    if asyncio._get_running_loop() is None:
        return asyncio.run(check_resources(steps, manager))
    # A thread has one loop at a time.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(check_resources(steps, manager))).result()


async def check_resources(steps: Mapping[str, Any], manager: ResourceManager) -> list[str]:
    """Make every resource that the steps declare; what was made stays with the manager."""
    complaints: list[str] = []
    for step_name, config in steps.items():
        for definition in config.resources:
            try:
                await manager.resolve_all([definition])
            except Exception as error:  # noqa: BLE001 - factories are foreign code; every failure is a complaint
                complaints.append(f"In step '{step_name}', parameter '{definition.name}': {error}")
    return complaints


def _check(resource: ResourceDescriptor, wanted: Any, place: str, above: list[ResourceDescriptor]) -> list[str]:
    if identity_of(resource) in map(identity_of, above):
        return []  # a cycle; making the resources reports it
    chain = [*above, resource]
    if isinstance(resource, ConfigResource):
        problem = resource.bound_to(wanted).problem()
        shown = f" ({' -> '.join(item.name for item in chain)})" if above else ""
        return [] if problem is None else [f"{place}{shown}: {problem}"]
    return [
        complaint
        for _, dependency, inner in resource.get_dependencies()
        for complaint in _check(dependency, inner, place, chain)
    ]
