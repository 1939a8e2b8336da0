"""Names that Loom keeps for itself: of workflows, of runs, and of tags."""

from __future__ import annotations

OWN = "loom."
"""The names of workflows that the engine uses for itself begin so."""

NOTICE = f"{OWN}problem:"
"""The ids of the runs that tell operators of problems begin so."""

SCHEDULES = "loom.schedule"
"""The name that the runs of schedules are stored with."""

TRIGGERS = f"{OWN}trigger:"
"""The names begin so that the runs of listeners are stored with; the name of their flow follows.

So a listener is worked for where its flow is.
"""

HANDLER = "handler"
"""The tag of a run that was started as a handler of the compatible routes: the handler's name."""
HANDLER_AGAIN = "handler_again"
"""The tag of a handler's second run and of those behind it: which one it is."""
HANDLER_REQUEST = "handler_request"
"""The tag of a handler's run whose request brought an idempotency key: a repetition of it finds its run by this."""
HANDLER_TAGS = (HANDLER, HANDLER_AGAIN, HANDLER_REQUEST)
"""They say whose run it is, and the server alone sets them: callers may not, and forks do not have them."""
