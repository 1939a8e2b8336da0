"""Paths of the API: names as parts of them, so that no name can lead elsewhere."""

from __future__ import annotations

from loom.client.exchange import segment

SCHEDULES_PATH = "/v1/schedules"


def schedule_path(name: str) -> str:
    """Write the path of a schedule."""
    return f"{SCHEDULES_PATH}/{segment(name, 'name of a schedule')}"


def definition_path(name: str) -> str:
    """Write the path of a definition."""
    return f"/v1/definitions/{segment(name, 'name of a workflow')}"


def trigger_path(name: str, trigger: str) -> str:
    """Write the path of a trigger of a definition."""
    return f"{definition_path(name)}/triggers/{segment(trigger, 'name of a trigger')}"
