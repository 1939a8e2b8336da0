"""What things are called on a Temporal cluster: signals, queries, updates, memo keys, search attributes.

A Loom run is a Temporal workflow whose id is the run's id and whose type is the name of its Loom workflow. The names
here are stored in histories, so they never change. Nothing is imported.
"""

from __future__ import annotations

SIGNAL_MAIL = "loom.mail"
"""Something from outside: a `Letter`."""
SIGNAL_EFFECTS = "loom.effects"
"""What a body did while it runs: `Effects`."""
SIGNAL_LOCK = "loom.lock"
"""A body wants to write the run's store: a `LockRequest`."""
SIGNAL_CODE = "loom.code"
"""The code has changed: a `NewCode`. It takes effect as soon as no body is at work."""

UPDATE_TELL = "loom.tell"
"""A `Letter` whose sender waits until the run is at rest again: answered with the run's row."""

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
"""The id of an event, as JSON text; answered with true if the run has had it."""
QUERY_ORIGIN = "loom.origin"
"""No argument; answered with the `Opening` that this execution began with."""

ACTIVITY_CODE = "loom.code"
"""The activity that tells the code of a workflow, for a run that was started where the code is not at hand."""

MEMO_RUN = "loom"
"""The memo with a run's `Card`: what can be told about it without a worker."""

ENTRIES = "loom.entries"
"""The type of the workflows that keep entries."""

ATTRIBUTE_IDLE_SINCE = "LoomIdleSince"
ATTRIBUTE_WAITING_FOR = "LoomWaitingFor"
ATTRIBUTE_TAGS = "LoomTags"
PARKED = "loom.parked"
"""What a parked run waits for, in the search attribute: a worker that may know better finds it by that."""
STUCK = "loom.stuck"
"""Value of `LoomWaitingFor` for a stuck run. One that is paused has it too."""
