"""The state store: the protocol that steps see, and the store in memory that every runtime builds on.

Writers are tasks of any event loop, in any thread. One lock puts them in line; readers never wait.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast, runtime_checkable

from pydantic import BaseModel, ValidationError

from loom.steps.events import DictLikeModel
from loom.steps.state_store.edits import StoreEdit, apply_to_state, describe_rewrite, describe_write, top_level
from loom.steps.state_store.payload import StateCheckpoint, decode_payload, encode_payload
from loom.steps.state_store.state import (
    MODEL_T,
    DictState,
    copy_state_for_edit,
    get_by_path,
    shallow_copy,
    split_write_path,
    with_path_set,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from loom.steps.serializers import BaseSerializer


@runtime_checkable
class StateStore(Protocol[MODEL_T]):
    """What a step can do with the state of its run."""

    state_type: type[MODEL_T]

    async def get_state(self) -> MODEL_T:
        """Return a shallow copy of the committed state."""
        ...

    async def set_state(self, state: MODEL_T) -> None:
        """Replace the state, or merge a state of a parent class into it."""
        ...

    async def get(self, path: str, default: Any = ...) -> Any:
        """Return the committed value at a dotted path."""
        ...

    async def set(self, path: str, value: Any) -> None:
        """Write a value at a dotted path."""
        ...

    async def clear(self) -> None:
        """Reset the state to the defaults of its class."""
        ...

    def edit_state(self) -> AbstractAsyncContextManager[MODEL_T]:
        """Edit a copy of the state that is committed when the block ends well."""
        ...

    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        """Encode the state for a context dict."""
        ...


class InMemoryStateStore(Generic[MODEL_T]):
    """A state in memory. Readers never wait and see committed state; writers take turns.

    A commit replaces the state by a new object in one assignment, so reading is safe from any thread and event loop,
    and so is writing: writers of other threads wait in line on their own loops. Values are shared with their readers,
    who should treat them as read-only and write back what they change.

    `on_edit` is asked right before a commit becomes visible, once for every writer that gets that far, even if its
    edit changes nothing. False means that the edit is applied already and is dropped; what it raises reaches the
    writer and leaves the store as it was. `version` counts the applied edits.

    Without an `initial_state` the state is made from the defaults of `state_type` when it is first needed.
    """

    __slots__ = ("__weakref__", "_lock", "_state", "_version", "on_edit", "state_type")

    def __init__(
        self,
        initial_state: MODEL_T | None = None,
        *,
        state_type: type[MODEL_T] | None = None,
        on_edit: Callable[[StoreEdit], bool] | None = None,
        version: int = 0,
    ) -> None:
        self._state = initial_state
        if state_type is None:
            state_type = cast("type[MODEL_T]", DictState if initial_state is None else type(initial_state))
        self.state_type = state_type
        self.on_edit = on_edit
        self._version = version
        self._lock = WriterLock()

    @property
    def version(self) -> int:
        """Return how many edits were applied."""
        return self._version

    async def get(self, path: str, default: Any = ...) -> Any:
        """Return the committed value at a dotted path, else `default`, else raise `ValueError`."""
        return get_by_path(self._committed(), path, default)

    async def get_state(self) -> MODEL_T:
        """Return a copy of the committed state; its values are shared."""
        return shallow_copy(self._committed())

    async def set(self, path: str, value: Any) -> None:
        """Write a value at a dotted path; dicts are made on the way."""
        segments = split_write_path(path)
        await self._begin()
        try:
            old = self._current()
            new = with_path_set(old, segments, value)
            self._commit(new, lambda: describe_write(old, new, self._version, segments[0]))
        finally:
            self._lock.release()

    async def set_state(self, state: MODEL_T) -> None:
        """Replace the state by one of its class or of a subclass; one of a parent class is merged into it."""
        await self._begin()
        try:
            self._replace(cast("MODEL_T", self._merged(state)))
        finally:
            self._lock.release()

    async def clear(self) -> None:
        """Reset the state to the defaults of the class it has now."""
        await self._begin()
        try:
            self._replace(_default(self._current_type()))
        finally:
            self._lock.release()

    def edit_state(self) -> AbstractAsyncContextManager[MODEL_T]:
        """Edit a copy of the state, which is committed when the block ends without an error.

        Other writers wait until then; a writer called inside the block raises `RuntimeError`.
        """
        return _EditBlock(self)

    def values(self) -> dict[str, Any]:
        """Return the committed values by top-level key; none until the state is first needed."""
        return {} if self._state is None else top_level(self._state)

    def checkpoint(self) -> StateCheckpoint:
        """Return a reference to the committed state, from which patches can be made."""
        from loom.steps.serializers import JsonSerializer

        return StateCheckpoint(self._committed(), JsonSerializer())

    def apply_edit(self, edit: StoreEdit) -> None:
        """Apply a recorded edit without asking `on_edit`: so a run gets its state back."""
        if edit.base_version != self._version:
            raise ValueError(f"The edit is based on version {edit.base_version}, the store has {self._version}")
        self._state = cast("MODEL_T", apply_to_state(self._state, edit, self._current_type()))
        self._version += 1

    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        """Encode the state for a context dict; `from_dict` reads it."""
        return encode_payload(self._committed(), serializer)

    @classmethod
    def from_dict(cls, serialized_state: dict[str, Any], serializer: BaseSerializer) -> InMemoryStateStore[MODEL_T]:
        """Make a store from what `to_dict` wrote, or from the tree of a checkpoint; nothing makes an empty one."""
        if not serialized_state:
            return cls()
        return cls(cast("MODEL_T", decode_payload(serialized_state, serializer)))

    def _committed(self) -> MODEL_T:
        """Return the state to a reader. A default is kept only if no writer is about to replace it."""
        state = self._state
        if state is not None:
            return state
        if not self._lock.try_acquire():
            return _default(self.state_type)
        try:
            return self._current()
        finally:
            self._lock.release()

    def _current(self) -> MODEL_T:
        """Return the state to the holder of the lock."""
        if self._state is None:
            self._state = _default(self.state_type)
        return self._state

    def _current_type(self) -> type[MODEL_T]:
        return self.state_type if self._state is None else type(self._state)

    async def _begin(self) -> None:
        if not self._lock.try_acquire():
            await self._lock.acquire()

    def _merged(self, state: Any) -> BaseModel:
        current_type = self._current_type()
        if isinstance(state, current_type):
            return shallow_copy(state)  # the caller may keep the given one, and must not write into the store with it
        if not isinstance(state, BaseModel) or not issubclass(current_type, type(state)):
            raise ValueError(
                f"State must be of type {current_type.__name__} or a parent type, got {type(state).__name__}"
            )
        return current_type.model_validate({**_values(self._current()), **_values(state)}, by_alias=True, by_name=True)

    def _replace(self, new: MODEL_T) -> None:
        old, old_type = self._state, self._current_type()
        self._commit(new, lambda: describe_rewrite(old, new, self._version, old_type))

    def _commit(self, state: MODEL_T, describe: Callable[[], StoreEdit]) -> None:
        if self.on_edit is None or self.on_edit(describe()):
            self._state = state
            self._version += 1


class _EditBlock(Generic[MODEL_T]):
    """The block of `edit_state`: holds the writer lock and a draft."""

    __slots__ = ("_draft", "_store")

    def __init__(self, store: InMemoryStateStore[MODEL_T]) -> None:
        self._store = store

    async def __aenter__(self) -> MODEL_T:
        store = self._store
        await store._lock.acquire()
        try:
            self._draft = copy_state_for_edit(store._current())
        except BaseException:
            store._lock.release()
            raise
        return self._draft

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._store._replace(shallow_copy(self._draft))
        finally:
            self._store._lock.release()


def _default(cls: type[MODEL_T]) -> MODEL_T:
    try:
        return cls()
    except ValidationError as error:
        raise ValueError("State must have defaults for all fields") from error


def _values(state: BaseModel) -> dict[str, Any]:
    if not isinstance(state, DictLikeModel):
        return top_level(state)
    fields = {name: value for name, value in top_level(state).items() if name in type(state).model_fields}
    return {**fields, "_data": state._data} if state._data else fields


# Guards the few instructions that change a lock's slots, never foreign code; one for all stores keeps a store small.
_guard = allocate_lock()

_PASSING = object()
"""The holder while a writer passes through without an await: no task has to be known for that."""


class _Waiter:
    """A task that waits for the lock, and the future that tells it."""

    __slots__ = ("future", "task")

    def __init__(self, task: asyncio.Task[Any] | None, future: asyncio.Future[None]) -> None:
        self.task = task
        self.future = future

    def wake(self) -> bool:
        """Tell the waiter, wherever it runs, that it holds the lock; False if it cannot hear."""
        import asyncio

        loop = self.future.get_loop()
        try:
            same_loop = asyncio.get_running_loop() is loop
        except RuntimeError:
            same_loop = False
        if same_loop:
            _settle(self.future)
            return True
        try:
            loop.call_soon_threadsafe(_settle, self.future)
        except RuntimeError:  # its loop is closed
            return False
        return True


class WriterLock:
    """A fair lock that belongs to no event loop and knows which task holds it."""

    __slots__ = ("_holder", "_waiters")

    def __init__(self) -> None:
        self._holder: object | None = None
        self._waiters: deque[_Waiter] | None = None

    def try_acquire(self) -> bool:
        """Take the lock for a writer that will not await; False if it is held."""
        with _guard:
            if self._holder is not None:
                return False
            self._holder = _PASSING
            return True

    async def acquire(self) -> None:
        """Take the lock, waiting in turn. A task that holds it already gets a `RuntimeError`."""
        import asyncio

        task = asyncio.current_task()
        with _guard:
            if self._holder is None:
                self._holder = task
                return
            if self._holder is task:
                raise RuntimeError("writer called inside edit_state: mutate the yielded state instead")
            waiter = _Waiter(task, asyncio.get_running_loop().create_future())
            if self._waiters is None:
                self._waiters = deque()
            self._waiters.append(waiter)
        try:
            await waiter.future
        except BaseException:
            self._abandon(waiter)
            raise

    def release(self) -> None:
        """Give the lock to the next waiter whose event loop is open; without one the lock is free."""
        while (waiter := self._next()) is not None:
            if waiter.wake():
                return

    def _next(self) -> _Waiter | None:
        with _guard:
            if not self._waiters:
                self._waiters = None
                self._holder = None
                return None
            waiter = self._waiters.popleft()
            self._holder = waiter.task
            return waiter

    def _abandon(self, waiter: _Waiter) -> None:
        """Leave the line after a cancellation; the lock may have been given just before."""
        with _guard:
            given = self._holder is waiter.task
            if not given and self._waiters and waiter in self._waiters:
                self._waiters.remove(waiter)
        if given:
            self.release()


def _settle(future: asyncio.Future[None]) -> None:
    """Wake the waiter, unless it was cancelled: then it passes the lock on by itself."""
    if not future.done():
        future.set_result(None)
