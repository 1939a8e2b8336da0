"""Resources: values that steps get as parameters, made by factories or read from config files.

May import pydantic and the standard library.
"""

from __future__ import annotations

from loom.steps.resources.check import check_resource_configs, check_resources, try_resources
from loom.steps.resources.config import ConfigResource, ResourceConfig
from loom.steps.resources.descriptor import ResourceDefinition, ResourceDescriptor, identity_of
from loom.steps.resources.factory import FactoryResource, Resource
from loom.steps.resources.manager import ResourceManager

__all__ = [
    "ConfigResource",
    "FactoryResource",
    "Resource",
    "ResourceConfig",
    "ResourceDefinition",
    "ResourceDescriptor",
    "ResourceManager",
    "check_resource_configs",
    "check_resources",
    "identity_of",
    "try_resources",
]
