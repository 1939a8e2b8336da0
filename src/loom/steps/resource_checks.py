"""Checks of the resources that steps declare, for the validation of a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.steps.config_resources import ConfigResource
from loom.steps.resource_descriptors import identity_of, refuse_shorter_life

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.resource_descriptors import ResourceDescriptor
    from loom.steps.resources import ResourceManager


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
    try:
        refuse_shorter_life(resource, tuple(above))
    except ValueError as error:
        return [f"{place}: {error}"]
    if isinstance(resource, ConfigResource):
        problem = resource.bound_to(wanted).problem()
        shown = f" ({' -> '.join(item.name for item in chain)})" if above else ""
        return [] if problem is None else [f"{place}{shown}: {problem}"]
    return [
        complaint
        for _, dependency, inner in resource.get_dependencies()
        for complaint in _check(dependency, inner, place, chain)
    ]
