"""The face of a resource: what a manager, a validator and a drawing need to know of it.

May import pydantic and the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from loom.steps.resources.manager import ResourceManager


@runtime_checkable
class ResourceDescriptor(Protocol):
    """Something in `Annotated[T, ...]` that gives a step parameter its value."""

    @property
    def name(self) -> str:
        """The name people see, and under which a value can be set by hand."""
        ...

    @property
    def cache(self) -> bool:
        """Whether one value serves all who ask the same manager."""
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
