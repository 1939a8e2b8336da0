"""What the http library logs by itself: each address that it asks, and in its details the headers of answers.

Of an action whose data is secure it logs nothing, whatever the program has set up for logs. May import loom.steps,
loom.flows and the execution of steps.
"""

from __future__ import annotations

import logging

from typing_extensions import override

from loom.effects.execution import StepExecution
from loom.flows.calls import ActionCall
from loom.steps.ports import current_execution

_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2")
"""A filter sees the records of its own logger alone, not those of loggers below it."""


class _NotOfSecureActions(logging.Filter):
    """Lets pass what is not logged on behalf of a secure action."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        execution = current_execution.get()
        if not isinstance(execution, StepExecution):
            return True
        call = execution.command.item.event.body
        return not (isinstance(call, ActionCall) and call.secure)


_FILTER = _NotOfSecureActions()


def be_discreet() -> None:
    """See to it that nothing is logged of secure requests. Doing it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
