"""The reference of settings: the options of `loom.connect`, of `create_app`, and what an operator allows flows."""

from __future__ import annotations

from loomsite.classes import Field, field_table, fields

CLASSES = {
    "connect": ("loom.runtime.durable.settings", "Settings"),
    "temporal": ("loom.temporal.settings", "TemporalSettings"),
    "server": ("loom.server.settings", "ServerSettings"),
    "limits": ("loom.flows.limits", "Limits"),
}
"""The classes that hold settings, by the word that the page uses."""


def options(name: str) -> list[Field]:
    """List the settings of one kind."""
    return fields(*CLASSES[name])


def settings(name: str) -> str:
    """Describe the settings of one kind in a table."""
    return field_table(options(name), "option")
