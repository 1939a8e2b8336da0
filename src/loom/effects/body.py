"""What an execution needs of the body that it runs, whatever wrote it: a step of a workflow or an action of a flow.

May import loom.steps and loom.core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.core.records import EventRecord
    from loom.core.state import WorkItem


class Body(Protocol):
    """Work that can be called."""

    @property
    def event_name(self) -> str:
        """The argument that holds what to work on."""
        ...

    @property
    def context_name(self) -> str | None:
        """The argument that wants a context, if one does."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """What people know the work by."""
        ...

    @property
    def retry_policy(self) -> Any:
        """Who decides whether a failure is tried again; None if nobody does at the edge."""
        ...

    def arguments(self, item: WorkItem) -> dict[str, Any]:
        """What to work on, by argument."""
        ...

    def call(self, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Do the work."""
        ...

    def classify(self, result: Any) -> tuple[tuple[EventRecord, ...], bool]:
        """The result as records, and whether it opens a stream."""
        ...
