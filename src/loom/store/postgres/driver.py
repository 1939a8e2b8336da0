"""What is used of asyncpg, with types: the only place that imports it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg  # type: ignore[import-untyped]

from loom.store.loop_time import can_skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

PATIENCE = 10.0
"""How many seconds a server has to greet, or to say goodbye."""
_COMMAND_TIMEOUT = 60.0
_STATEMENT_LIFETIME = 300
"""For how many seconds a prepared statement is kept: the driver's own default."""


class Connection(Protocol):
    """A connection to a database. It does one thing at a time."""

    async def execute(self, query: str, *values: Any) -> str:
        """Run a statement; without values, also several."""
        ...

    async def fetch(self, query: str, *values: Any) -> Sequence[Any]:
        """The rows of a query."""
        ...

    async def fetchrow(self, query: str, *values: Any) -> Any:
        """The first row of a query, or None."""
        ...

    async def fetchval(self, query: str, *values: Any) -> Any:
        """The first value of the first row, or None."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction that ends with the block."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether one is open."""
        ...

    def is_closed(self) -> bool:
        """Whether it was closed or lost."""
        ...

    def get_server_pid(self) -> int:
        """The number of the server's process."""
        ...

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None:
        """Call this when the connection is closed or lost."""
        ...

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, Any], None]) -> None:
        """Call this with (connection, pid, channel, payload) for each notification."""
        ...

    async def close(self) -> None:
        """Say goodbye."""
        ...

    def terminate(self) -> None:
        """Hang up."""
        ...


async def connect(url: str, settings: dict[str, str]) -> Connection:
    """Open a connection with these settings of its session."""
    # The driver drops each statement after a while, by a timer. A clock that jumps would go from one to the next.
    lifetime = 0 if can_skip(asyncio.get_running_loop()) else _STATEMENT_LIFETIME
    connection: Connection = await asyncpg.connect(
        url,
        timeout=PATIENCE,
        command_timeout=_COMMAND_TIMEOUT,
        max_cached_statement_lifetime=lifetime,
        server_settings=settings,
    )
    return connection


LOST: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
)
"""What is raised when no answer came: whether the server did what it was asked, nobody knows."""

FAILURES: tuple[type[Exception], ...] = (*LOST, asyncpg.PostgresError, asyncpg.InternalClientError)
"""Everything that a call to the database may raise."""

UNSUITABLE: tuple[type[Exception], ...] = (asyncpg.DataError,)
"""A value that the database cannot hold."""

REPEATED: tuple[type[Exception], ...] = (asyncpg.IntegrityConstraintViolationError,)
"""Something that is stored already."""

CLASHED: tuple[type[Exception], ...] = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""Two transactions got into each other's way, and this one was undone."""
