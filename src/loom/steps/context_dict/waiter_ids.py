"""The ids of waiters that were given none, and of those in contexts that others wrote. May import the standard library.

Older ids end without a work item, and the oldest have their requirements in Python's spelling. A loaded waiter goes by
the id that its body will ask for when it runs again.
"""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def default_waiter_id(event_type: str, requirements: Mapping[str, Any], item: int) -> str:
    """The id of a wait that its author gave none: what it waits for, and the work item that waits."""
    return f"waiter_{event_type}_{_text(requirements)}_work_item_{item}"


def current_waiter_id(waiter_id: str, event_type: str, saved_item: str | None, item: int) -> str:
    """The id under which a wait of another writer is known here; an author's own id stays as it is."""
    prefix = f"waiter_{event_type}_"
    if not waiter_id.startswith(prefix):
        return waiter_id
    wanted = waiter_id.removeprefix(prefix)
    if saved_item is not None:
        wanted = wanted.removesuffix(f"_{saved_item}")
    requirements = _parse(wanted)
    return waiter_id if requirements is None else default_waiter_id(event_type, requirements, item)


def waiter_id_of(key: str) -> str:
    """The waiter id in the key of a wait, `wait:<number of the call>:<id>`."""
    return key.split(":", 2)[2]


def _text(requirements: Mapping[str, Any]) -> str:
    return json.dumps(requirements, sort_keys=True, separators=(",", ":"), default=repr)


def _parse(text: str) -> dict[str, Any] | None:
    """Requirements in either spelling; None if the text is something else, such as a part of an author's own id."""
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, dict):
            return found
    return None
