"""The store of a run, as its bodies have it in activities: read by queries, written in turn. May import loom.steps.

The values are with the run. A reader asks for them each time. A writer asks the run for its turn, gets the values with
it, and gives its turn back with the edit; the run sees to it that there is one writer at a time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import WeakValueDictionary

from typing_extensions import override

from loom.steps.errors import ContextStateError
from loom.steps.state_store import InMemoryStateStore
from loom.steps.state_store.writer_lock import WriterLock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import BaseModel

    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import StoreEdit


class StoreOwner(Protocol):
    """What the store needs of the execution that it belongs to."""

    async def read_store(self) -> InMemoryStateStore[Any]:
        """The store as it is now."""
        ...

    async def lock_store(self) -> InMemoryStateStore[Any]:
        """The store as it is, once the execution is its only writer."""
        ...

    async def unlock_store(self) -> None:
        """Give the turn back, with all that was edited."""
        ...

    def edited(self, edit: StoreEdit) -> bool:
        """Note an edit. False if an interrupted run of the same execution had made it already."""
        ...

    def repeats_edit(self) -> bool:
        """Whether an interrupted run of the same execution had made the edit that comes now."""
        ...


class Turn(WriterLock):
    """Which task of this process may ask for its turn: of those that write the same run's store, one at a time."""

    __slots__ = ("__weakref__",)


class Turns:
    """The writers of all runs that this process has bodies of. So most of them need not ask the run again and again."""

    def __init__(self) -> None:
        self._of_runs: WeakValueDictionary[str, Turn] = WeakValueDictionary()

    def of_run(self, run_id: str) -> Turn:
        """The turn of a run's writers."""
        return self._of_runs.setdefault(run_id, Turn())


class RemoteStore(InMemoryStateStore[Any]):
    """The run's store within one activity. What it holds is what was read last."""

    __slots__ = ("_is_writer", "_owner", "_turn")

    def __init__(self, owner: StoreOwner, state_type: type[BaseModel], turn: Turn) -> None:
        super().__init__(state_type=state_type, on_edit=owner.edited)
        self._owner = owner
        self._turn = turn
        self._is_writer = False

    @override
    async def get(self, path: str, default: Any = ...) -> Any:
        """Return the committed value at a dotted path, else `default`, else raise `ValueError`."""
        await self._refresh()
        return await super().get(path, default)

    @override
    async def get_state(self) -> Any:
        """Return a copy of the committed state."""
        await self._refresh()
        return await super().get_state()

    @override
    async def set(self, path: str, value: Any) -> None:
        """Write a value at a dotted path; dicts are made on the way."""
        if not self._owner.repeats_edit():
            async with self._writing():
                await super().set(path, value)

    @override
    async def set_state(self, state: Any) -> None:
        """Replace the state by one of its class or of a subclass; one of a parent class is merged into it."""
        if not self._owner.repeats_edit():
            async with self._writing():
                await super().set_state(state)

    @override
    async def clear(self) -> None:
        """Reset the state to the defaults of the class it has now."""
        if not self._owner.repeats_edit():
            async with self._writing():
                await super().clear()

    @override
    @asynccontextmanager
    async def edit_state(self) -> AsyncIterator[Any]:
        """Edit a copy of the state, which is committed when the block ends without an error."""
        async with self._writing(), super().edit_state() as draft:
            yield draft

    @override
    def values(self) -> dict[str, Any]:
        _refuse("values")

    @override
    def checkpoint(self) -> NoReturn:
        _refuse("checkpoint")

    @override
    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        _refuse("to_dict")

    async def _refresh(self) -> None:
        """Read the values; a writer has them, and nobody else changes them meanwhile."""
        if not self._is_writer:
            self._adopt(await self._owner.read_store())

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """Be the only writer: in this process first, then among all bodies of the run."""
        await self._turn.acquire()
        try:
            self._adopt(await self._owner.lock_store())
            self._is_writer = True
            try:
                yield
            finally:
                self._is_writer = False
                await self._owner.unlock_store()
        finally:
            self._turn.release()

    def _adopt(self, read: InMemoryStateStore[Any]) -> None:
        self._state, self._version, self.state_type = read._state, read._version, read.state_type


def _refuse(what: str) -> NoReturn:
    raise ContextStateError(
        f"store.{what}() is not available within a step on Temporal, where reading the store takes a while: "
        "use `await ctx.store.get_state()`."
    )
