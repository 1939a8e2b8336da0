"""`workflows.resource`. Re-exports only."""

from __future__ import annotations

from loom.steps.resources import Resource, ResourceConfig, ResourceDefinition, ResourceDescriptor, ResourceManager

__all__ = ["Resource", "ResourceConfig", "ResourceDefinition", "ResourceDescriptor", "ResourceManager"]
