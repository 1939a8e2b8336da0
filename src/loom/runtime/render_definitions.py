"""Renders definitions as the API's types: what `/v1` answers with, and what commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from loom.api.definitions import Definition, DefinitionVersion, FlowStatus, FlowTrigger
from loom.api.times import maybe_moment, moment
from loom.flows.triggers import fires_by_request, relative_path, request_methods, request_trigger

if TYPE_CHECKING:
    from loom.flows.program import Program, Trigger
    from loom.runtime.durable import stored_definitions as stored


def etag_of(version: stored.Version) -> str:
    """Mark the content of a version: the mark changes whenever another version becomes current."""
    return f'"{version.digest[:32]}"'


def steps_view(name: str, *, served: bool) -> Definition:
    """A workflow in Python, in a list."""
    return Definition(name=name, kind="steps", served=served)


def flow_view(name: str, definition: stored.StoredDefinition | None, *, served: bool = True) -> Definition:
    """A flow, in a list; one that the store has no definition of has no version."""
    if definition is None:
        return Definition(name=name, kind="flow", served=served)
    return Definition(
        name=name,
        kind="flow",
        served=served,
        version=definition.current,
        etag=etag_of(definition.latest),
        updated_at=moment(definition.updated_at),
        enabled=not definition.is_disabled,
    )


def version_view(version: stored.Version, current: int) -> DefinitionVersion:
    """One version of a flow, whose current one has this number."""
    return DefinitionVersion(
        version=version.number,
        digest=version.digest,
        etag=etag_of(version),
        created_at=moment(version.created_at),
        current=version.number == current,
    )


def flow_status(name: str, definition: stored.StoredDefinition, program: Program, *, served: bool = True) -> FlowStatus:
    """Render a flow with what starts its runs."""
    shown = flow_view(name, definition, served=served)
    fired = request_trigger(program)
    triggers = [_trigger(each, fired) for each in program.triggers]
    return FlowStatus(**asdict(shown), disabled_at=maybe_moment(definition.disabled_at), triggers=triggers)


def _trigger(trigger: Trigger, fired: Trigger | None) -> FlowTrigger:
    if trigger is not fired or not fires_by_request(trigger):
        return FlowTrigger(name=trigger.name, type=trigger.type)
    methods = list(request_methods(trigger))
    return FlowTrigger(name=trigger.name, type=trigger.type, methods=methods, path=relative_path(trigger))
