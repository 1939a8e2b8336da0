"""Saving a run as a context dict and restoring it: the state and the store together.

May import loom.core and the rest of loom.steps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from loom.core.state import BrokerState
from loom.steps.context_dict import context_from_dict, context_to_dict
from loom.steps.errors import ContextSerdeError
from loom.steps.state_store import InMemoryStateStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.serializers import BaseSerializer
    from loom.steps.workflow import Workflow


def save(
    state: BrokerState | None, store: InMemoryStateStore[Any] | None, serializer: BaseSerializer, now: float | None
) -> dict[str, Any]:
    """A run, or what was prepared for one, as a dict. Its form is that of steps, so a flow under way has none."""
    if state is not None and state.is_running and state.config.program is not None:
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
    """What a dict holds, as of `now`; a `ContextSerdeError` if it cannot be read.

    `renames` says what steps are called now that had another name when the dict was written.
    """
    if not isinstance(data, dict):
        raise ContextSerdeError(f"Context dict specified in an invalid format: a dict is wanted, not {type(data)}")
    state = context_from_dict(
        data,
        config=workflow._config(),
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
