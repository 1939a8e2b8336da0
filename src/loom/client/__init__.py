"""The client of a Loom server, asynchronous and not."""

from __future__ import annotations

from loom.api.definitions import Definition, DefinitionVersion, Diagnostic, PutDefinition, Schedule, Validation
from loom.api.requests import RunFilters
from loom.api.runs import Delivery, HistoryItem, Replay, Run, RunError, StreamEvent, Waiter
from loom.api.service import Health
from loom.api.state import Action, Loop
from loom.client.connection import Client
from loom.client.errors import ClientError
from loom.client.exchange import NEVER, Retries
from loom.client.invoked import Invoked
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
