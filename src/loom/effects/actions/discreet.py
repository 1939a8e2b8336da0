"""What the http library logs by itself: each address that it asks, and in its details the headers of answers.

Of an action whose data is secure, and of a request whose address is secret, it logs nothing, whatever the program has
set up for logs.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from typing_extensions import override

from loom.effects.execution import StepExecution
from loom.flows.calls import ActionCall
from loom.steps.ports import current_execution

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2")
"""A filter sees the records of its own logger alone, not those of loggers below it."""

_is_secret: ContextVar[bool] = ContextVar("loom_secret_request", default=False)


@contextmanager
def secret_request() -> Iterator[None]:
    """Let nothing be logged of the requests that are made inside."""
    before = _is_secret.set(True)
    try:
        yield
    finally:
        _is_secret.reset(before)


class _NotOfSecureActions(logging.Filter):
    """Lets pass what is not logged on behalf of a secure action or a secret request."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if _is_secret.get():
            return False
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
