"""What things are called on a Temporal cluster: signals, queries, updates, memo keys, search attributes.

A Loom run is a Temporal workflow. Its workflow id is the run's id, and its workflow type is the name of the Loom
workflow. Histories and memos hold these names, so they never change.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# -- signals, updates, queries ----------------------------------------------------------------------------------------

SIGNAL_MAIL = "loom.mail"
"""Carries an `RunMessage`."""
SIGNAL_EFFECTS = "loom.effects"
"""Carries `Effects`: what a body did while it still runs."""
SIGNAL_LOCK = "loom.lock"
"""Carries a `LockRequest`: a body wants to write the run's store."""
SIGNAL_CODE = "loom.code"
"""Carries a `NewCode`. The run takes it in as soon as no body is at work."""

UPDATE_TELL = "loom.tell"
"""Carries an `RunMessage`. Answered with the run's row, once the run is at rest again."""

QUERY_ROW = "loom.row"
"""No argument; answered with a `RunRow`."""
QUERY_STATE = "loom.state"
"""No argument; answered with the bytes of `codec.encode_state`."""
QUERY_CHUNKS = "loom.chunks"
"""A `ChunkQuery`; answered with `Chunks`."""
QUERY_EXECUTION = "loom.execution"
"""An `ExecutionQuery`; answered with an `ExecutionView`."""
QUERY_STORE = "loom.store"
"""A `StoreQuery`; answered with a `StoreView`."""
QUERY_SEEN = "loom.seen"
"""The id of an event, as JSON text; answered with true if the run has had the event."""
QUERY_ORIGIN = "loom.origin"
"""No argument; answered with the `StartArgument` of this execution."""

ASK_AGAIN = "loom.AskAgain"
"""Begins the message of a query that a worker refused, and names the type of its failure."""

ACTIVITY_CODE = "loom.code"
"""The activity that gives the code of a workflow to a run that was started without it."""

# -- workflows, memos, history ----------------------------------------------------------------------------------------

ENTRIES = "loom.entries"
"""The type of the workflows that keep entries."""

MEMO_RUN = "loom"
"""The memo with a run's `RunMetadata`, which needs no worker to be read."""
MEMO_ENDING = f"{MEMO_RUN}.end"
"""The memo with the `Ending` of a cancelled run: not every version of the SDK can put it into the close event."""

CLOSE_EVENTS = frozenset(
    {
        "workflow_execution_completed_event_attributes",
        "workflow_execution_failed_event_attributes",
        "workflow_execution_canceled_event_attributes",
        "workflow_execution_terminated_event_attributes",
        "workflow_execution_timed_out_event_attributes",
    }
)
"""Attributes of the events that close a run. An execution that continues as new is closed too, but its run goes on."""

# -- search attributes ------------------------------------------------------------------------------------------------

ATTRIBUTE_IDLE_SINCE = "LoomIdleSince"
ATTRIBUTE_WAITING_FOR = "LoomWaitingFor"
ATTRIBUTE_TAGS = "LoomTags"
PARKED = "loom.parked"
"""Value of `LoomWaitingFor` for a parked run: a worker with newer code finds the run by it."""
STUCK = "loom.stuck"
"""Value of `LoomWaitingFor` for a stuck run. A paused run has it too."""

MANY = "loom-many"
"""Replaces all words of a run that has more of them than an attribute can hold."""
PRESENT = "loom-run"
"""The first tag of every run that has search attributes: it tells such runs from older ones."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}")
_MOST_BYTES = 1800


def keyword(text: str) -> str:
    """Return the word by which a text is searched: the text itself if it is short and plain, else its digest.

    A visibility store may split, cut or refuse a text that is long or has quotes in it. Readers compare what they find
    with the text itself afterwards.
    """
    if _PLAIN.fullmatch(text) and text not in (MANY, PRESENT):
        return text
    return f"x{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def keywords(texts: Iterable[str]) -> list[str]:
    """Return the words for texts, or only `MANY` if an attribute cannot hold them all."""
    words = list(dict.fromkeys(keyword(text) for text in texts))
    return words if sum(len(word) + 3 for word in words) <= _MOST_BYTES else [MANY]


def tag_text(key: str, value: str) -> str:
    """Return a tag as one text."""
    return f"{key}={value}"


def tag_keywords(tags: Mapping[str, str]) -> list[str]:
    """Return the words for the tags of a run, `PRESENT` first."""
    return [PRESENT, *keywords(tag_text(key, value) for key, value in sorted(tags.items()))]
