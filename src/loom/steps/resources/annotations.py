"""What a factory depends on: the resources in the annotations of its parameters.

May import the standard library and the descriptor protocol beside it.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from loom.steps.resources.descriptor import Dependency, ResourceDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable


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
    """Find the function behind a partial, a class, a callable object or a decorated function."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    factory = inspect.unwrap(factory)
    if inspect.isroutine(factory):
        return factory
    return getattr(factory, "__init__" if isinstance(factory, type) else "__call__")


def _evaluated(text: str, factory: Callable[..., Any], localns: dict[str, Any] | None) -> Any:
    """Evaluate one annotation alone: what its neighbours name may exist for type checkers only."""
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
