"""What a resource declares: its name, how long it is kept, and what its factory's signature says it is made from."""

from __future__ import annotations

import functools
import inspect
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Protocol,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.resources import ResourceManager


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


def has_end(resource: ResourceDescriptor, above: tuple[object, ...] = ()) -> bool:
    """Tell whether a value must not outlive its place: it is yielded, kept per run, or made from one that is."""
    if getattr(resource, "yields", False) or getattr(resource, "scope", "") == "run":
        return True
    key = identity_of(resource)
    if key in above:
        return False  # a cycle; making the resource refuses it
    return any(has_end(dependency, (*above, key)) for _, dependency, _ in resource.get_dependencies())


def name_of(factory: Callable[..., Any]) -> str:
    """Name the function inside of partials."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    name: str = getattr(factory, "__qualname__", type(factory).__name__)
    return name


def is_generator(factory: Callable[..., Any]) -> bool:
    """Tell whether a call makes a generator. A decorated function makes what its decorator says."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    if not inspect.isroutine(factory) and not isinstance(factory, type):
        factory = type(factory).__call__
    return inspect.isgeneratorfunction(factory) or inspect.isasyncgenfunction(factory)


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


def walk(
    resource: ResourceDescriptor, chain: tuple[ResourceDescriptor, ...], done: set[object], given: dict[str, Any]
) -> None:
    """Walk all that a resource is declared to be made from, and raise where that cannot be made."""
    key = identity_of(resource)
    if key in done or (resource.cache and resource.name in given):
        return
    refuse_repetition(resource, chain)
    refuse_shorter_life(resource, chain)
    for _, dependency, _ in resource.get_dependencies():
        walk(dependency, (*chain, resource), done, given)
    done.add(key)


def refuse_repetition(resource: ResourceDescriptor, chain: tuple[ResourceDescriptor, ...]) -> None:
    """Raise if a resource would be made from itself."""
    if identity_of(resource) in map(identity_of, chain):
        names = " -> ".join(item.name for item in (*chain, resource))
        raise ValueError(f"Circular resource dependency detected: {names}")


def refuse_shorter_life(resource: ResourceDescriptor, chain: tuple[ResourceDescriptor, ...]) -> None:
    """Raise if a value of the process would be made from one of a run, which ends before it."""
    if getattr(resource, "scope", "") != "run":
        return
    longer = next((item for item in chain if item.cache and getattr(item, "scope", "process") == "process"), None)
    if longer is not None:
        raise ValueError(
            f"Resource '{longer.name}' is kept for the process and cannot be made from '{resource.name}', which is "
            f"kept for one run: give '{longer.name}' scope=\"run\" too."
        )
