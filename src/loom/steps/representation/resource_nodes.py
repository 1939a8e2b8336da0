"""The resources of a workflow as nodes: factories, config files, and what factories are made from.

May import `types` of this package, and `resources`.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from loom.steps.representation.types import WorkflowGraphEdge, WorkflowResourceConfigNode, WorkflowResourceNode
from loom.steps.resources import ConfigResource, FactoryResource
from loom.steps.resources.descriptor import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.resources import ResourceDescriptor

ResourceNode = WorkflowResourceNode | WorkflowResourceConfigNode


class ResourceNodes:
    """The nodes of all resources that were added, each resource once, and the edges between them."""

    def __init__(self) -> None:
        self._nodes: dict[object, ResourceNode] = {}
        self.edges: list[WorkflowGraphEdge] = []

    @property
    def nodes(self) -> list[ResourceNode]:
        """The nodes in the order in which they were met."""
        return list(self._nodes.values())

    def add(self, resource: ResourceDescriptor, wanted: Any) -> str:
        """Add a resource and all it depends on; returns the id of its node."""
        key = _identity(resource)
        if key in self._nodes:
            return self._nodes[key].id
        node = _config_node(resource, wanted) if isinstance(resource, ConfigResource) else _node(resource, wanted)
        node.id = self._unused(node.id)
        self._nodes[key] = node
        for parameter, dependency, inner in resource.get_dependencies():
            target = self.add(dependency, inner)
            self.edges.append(WorkflowGraphEdge(source=node.id, target=target, label=parameter))
        return node.id

    def _unused(self, wanted: str) -> str:
        """Two lambdas of one file have one name, and still are two resources."""
        taken = {node.id for node in self._nodes.values()}
        found, count = wanted, 1
        while found in taken:
            count += 1
            found = f"{wanted}_{count}"
        return found


def type_name(hint: Any) -> str | None:
    """How a type is called in a drawing."""
    return None if hint is None else getattr(hint, "__name__", None) or str(hint)


def json_schema(hint: Any) -> dict[str, Any] | None:
    """The JSON Schema of a model, or None where there is none, as for fields of arbitrary types."""
    if not (isinstance(hint, type) and issubclass(hint, BaseModel)):
        return None
    try:
        return hint.model_json_schema()
    except PydanticUserError:
        return None


def _identity(resource: ResourceDescriptor) -> object:
    """A config is one node whatever models it is read into, and also while its file is missing."""
    return resource.name if isinstance(resource, ConfigResource) else identity_of(resource)


def _node(resource: ResourceDescriptor, wanted: Any) -> WorkflowResourceNode:
    factory = resource.factory if isinstance(resource, FactoryResource) else type(resource)
    file, line = _source(factory)
    return WorkflowResourceNode(
        id=f"resource_{_digest(resource.name, file or 'unknown')}",
        label=type_name(wanted) or resource.name,
        type_name=type_name(wanted),
        getter_name=resource.name,
        source_file=file,
        source_line=line,
        description=inspect.getdoc(factory),
    )


def _config_node(config: ConfigResource, wanted: Any) -> WorkflowResourceConfigNode:
    try:
        file, value = config.config_file, config.load()
    except (OSError, ValueError):
        # A drawing shows what is declared, also where the file is missing; validation is what complains.
        file, value = config.name, None
    return WorkflowResourceConfigNode(
        id=f"resource_config_{_digest(file, config.path_selector or '')}",
        label=config.label or type_name(wanted) or file,
        type_name=type_name(wanted),
        config_file=file,
        path_selector=config.path_selector,
        config_schema=json_schema(wanted),
        config_value=value if isinstance(value, dict) else None,
        description=config.description,
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256(":".join(parts).encode()).hexdigest()[:12]


def _source(factory: Callable[..., Any]) -> tuple[str | None, int | None]:
    """Where a factory is defined, as far as that can be known: partials and typed-in code have no file."""
    try:
        file = inspect.getfile(factory)
    except (OSError, TypeError):
        return None, None
    try:
        return file, inspect.getsourcelines(factory)[1]
    except (OSError, TypeError):
        return file, None
