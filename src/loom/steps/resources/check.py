"""Checks of the resources that a workflow's steps declare; each gives a list of complaints.

May import the modules beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.steps.resources.config import ConfigResource
from loom.steps.resources.descriptor import identity_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.resources.descriptor import ResourceDescriptor
    from loom.steps.resources.manager import ResourceManager


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
    """The same as `check_resources`, for callers that cannot await; it makes an event loop of its own."""
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
