"""The client of a Loom server, asynchronous and not. May import loom.store, loom.flows and what is below them."""

from __future__ import annotations

from loom.client.connection import Client
from loom.client.errors import ClientError
from loom.client.invoking import Invoked
from loom.client.models import (
    Action,
    Definition,
    DefinitionVersion,
    Delivery,
    Diagnostic,
    Health,
    HistoryItem,
    Loop,
    PutDefinition,
    Replay,
    Run,
    RunError,
    RunFilters,
    Schedule,
    StreamEvent,
    Validation,
    Waiter,
)
from loom.client.retries import NEVER, Retries
from loom.client.sync import SyncClient

__all__ = [
    "NEVER",
    "Action",
    "Client",
    "ClientError",
    "Definition",
    "DefinitionVersion",
    "Delivery",
    "Diagnostic",
    "Health",
    "HistoryItem",
    "Invoked",
    "Loop",
    "PutDefinition",
    "Replay",
    "Retries",
    "Run",
    "RunError",
    "RunFilters",
    "Schedule",
    "StreamEvent",
    "SyncClient",
    "Validation",
    "Waiter",
]
