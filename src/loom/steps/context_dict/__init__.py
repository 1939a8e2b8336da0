"""Context dicts: a run as a JSON-able dict and back, in the form of llama-index-workflows.

The dict is version 2 of that form, with one key more: `loom` holds what the form has no place for. Versions 0 and 1 are
read as well. `save` and `restore` handle a whole context: the state of the run and its store together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from loom.core.state import BrokerConfig, BrokerState, StepLimits
from loom.steps.context_dict.codec import default_waiter_id
from loom.steps.context_dict.read import context_from_dict
from loom.steps.context_dict.write import context_to_dict
from loom.steps.errors import ContextSerdeError
from loom.steps.ports import definition_of
from loom.steps.state_store import InMemoryStateStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.serializers import BaseSerializer
    from loom.steps.workflow import Workflow

__all__ = ["context_from_dict", "context_to_dict", "default_waiter_id", "restore", "save"]


def _is_of_flow(config: BrokerConfig) -> bool:
    return config.program is not None and not isinstance(config.program, StepLimits)


def save(
    state: BrokerState | None, store: InMemoryStateStore[Any] | None, serializer: BaseSerializer, now: float | None
) -> dict[str, Any]:
    """Write a run, or what was prepared for one, as a dict. The form is for steps, so a flow under way has none."""
    if state is not None and state.is_running and _is_of_flow(state.config):
        raise ContextSerdeError(
            f"The flow {state.config.workflow!r} is under way and cannot be saved as a context dict. "
            'To keep its runs, register it with a runtime of a store: loom.connect("sqlite:///runs.db").'
        )
    return context_to_dict(
        state if state is not None else BrokerState(),
        store=store.to_dict(serializer) if store is not None else None,
        serializer=serializer,
        now=now if now is not None else time.time(),
    )


def restore(
    workflow: Workflow,
    data: dict[str, Any],
    serializer: BaseSerializer,
    now: float | None = None,
    renames: Mapping[str, str] | None = None,
) -> tuple[BrokerState, InMemoryStateStore[Any] | None]:
    """Return what a dict holds, as of `now`; a `ContextSerdeError` if it cannot be read.

    `renames` says what steps are called now that had another name when the dict was written.
    """
    if not isinstance(data, dict):
        raise ContextSerdeError(f"Context dict specified in an invalid format: a dict is wanted, not {type(data)}")
    state = context_from_dict(
        data,
        config=definition_of(workflow).config(),
        serializer=serializer,
        event_classes=workflow.events,
        now=now if now is not None else workflow.runtime.now(),
        renames=renames,
    )
    stored = data.get("state")
    if not stored:
        return state, None
    try:
        return state, InMemoryStateStore.from_dict(stored, serializer)
    except ValueError as error:
        raise ContextSerdeError(f"Context dict specified in an invalid format: state: {error}") from error
