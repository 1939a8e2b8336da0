"""Names of event types from clients. They resolve among classes that are loaded, never by import.

May import loom.runtime and loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.steps.registry import module_of

if TYPE_CHECKING:
    from loom.steps.workflow import Workflow
    from loom.store.records import RunRow


def event_names(workflow: Workflow | None, row: RunRow, name: str) -> tuple[str, ...]:
    """The full names that a type may have which no step of the workflow declares.

    A step may await it now, later, or have done so before: so it is also looked for beside the workflow's class.
    """
    beside = (f"{module_of(type(workflow))}.{name}",) if workflow is not None and "." not in name else (name,)
    return (*row.head.waiting_for, *beside)
