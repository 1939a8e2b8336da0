"""Names that callers give to runs, events and tags: what a store can keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.runtime.own_names import (
    HANDLER,
    HANDLER_AGAIN,
    HANDLER_REQUEST,
    HANDLER_TAGS,
    NOTICE,
    OWN,
    SCHEDULES,
    TRIGGERS,
)
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from loom.store.records import RunQuery

__all__ = [
    "HANDLER",
    "HANDLER_AGAIN",
    "HANDLER_REQUEST",
    "HANDLER_TAGS",
    "MAX_NAME",
    "NOTICE",
    "OWN",
    "SCHEDULES",
    "TRIGGERS",
    "can_be_kept",
    "can_match",
    "check_event",
    "check_name",
    "check_run_id",
    "check_tags",
    "check_workflow",
]

MAX_NAME = 500
"""Longer names would be content, not names; every store has them in its indexes."""


def can_be_kept(name: str) -> bool:
    """Whether a store could have something under this name; if not, it need not be asked."""
    return 0 < len(name) <= MAX_NAME and "\0" not in name and not any("\ud800" <= each <= "\udfff" for each in name)


def can_match(query: RunQuery) -> bool:
    """Whether a store could have runs for a query; if not, it need not be asked."""
    if query.statuses == () or query.workflows == ():
        return False
    single = (query.waiting_for, query.parent, query.id_prefix, *(query.workflows or ()))
    names = (*filter(None, single), *query.tags, *filter(None, query.tags.values()))
    return all(can_be_kept(name) for name in names)


def check_name(what: str, name: object) -> None:
    """Raise a `ValueError` that names the thing, if no store could keep the name."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a string, not {type(name).__name__}.")
    if not name or len(name) > MAX_NAME:
        raise ValueError(f"{what} must have 1 to {MAX_NAME} characters, not {len(name)}.")
    if not can_be_kept(name):
        raise ValueError(f"{what} {name!r} has characters that cannot be stored.")


def check_workflow(name: object) -> None:
    """Raise a `ValueError` if no caller may start runs of this name: no store could keep it, or it is Loom's own.

    A run of Loom's own may call an operator's hook, in the operator's name.
    """
    check_name("The name of a workflow", name)
    if isinstance(name, str) and name.startswith(OWN):
        raise ValueError(f"The workflow {name!r} is Loom's own: only the engine starts its runs.")


def check_run_id(run_id: object) -> None:
    """Raise a `ValueError` if no caller may choose this id: a notice that finds its id taken would tell nobody."""
    check_name("A run_id", run_id)
    if isinstance(run_id, str) and run_id.startswith(NOTICE):
        raise ValueError(f"The run_id {run_id!r} is kept for Loom's own runs: choose another one.")


def check_stored_names(run_id: str, workflow: str, tags: dict[str, str]) -> None:
    """Raise a `ValueError` if no store could keep the names of a run that comes from another store."""
    check_name("A run_id", run_id)
    check_name("The name of a workflow", workflow)
    check_tags(tags, of_callers=False)


def check_tags(tags: dict[str, str], *, of_callers: bool = True) -> None:
    """Raise a `ValueError` for the key or value of a tag that cannot be; a value may be empty.

    Callers cannot choose the tags by which a server knows its handlers.
    """
    for key, value in tags.items():
        check_name("The key of a tag", key)
        if of_callers and key in HANDLER_TAGS:
            raise ValueError(f"The tag {key!r} says which handler of a server a run belongs to: use another name.")
        if value != "":
            check_name(f"The tag {key!r}", value)


def check_event(event: object, event_id: str | None) -> None:
    """Raise, if this cannot be sent into a run."""
    from loom.steps.events import Event

    if not isinstance(event, Event):
        raise WorkflowRuntimeError(f"Only events can be sent into a run, not {type(event).__name__}.")
    if event_id is not None:
        check_name("An event_id", event_id)
