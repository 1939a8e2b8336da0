"""A workflow that keeps the entries of one kind: updates write them, queries read them.

It waits for ever, and continues in a new execution when the server suggests it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from loom.store.records import ABSENT, Entry
from loom.temporal.bridge import messages
from loom.temporal.payloads import (
    QUERY_GET,
    QUERY_LIST,
    UPDATE_DROP,
    UPDATE_PUT,
    DropEntry,
    EntriesArgument,
    EntryQuery,
    FoundEntries,
    PutEntry,
    Written,
    payload_of,
    value_of,
)
from loom.temporal.workflow.instance import InstanceBase

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.api.common.v1 import Payload
    from temporalio.workflow import Info

    from loom.temporal.bridge import activations, completions
    from loom.temporal.workflow.queries import Intake

MAX_KEPT = 1_500_000
"""The bytes of all entries of one kind, as JSON: they go into one payload when the workflow continues as new."""
_MAX_ANSWER = 1_000_000
_UNREADABLE = (ValueError, IndexError, RecursionError)
"""What reading an argument raises that Loom has not made: its sender is told."""


class EntriesRefused(Exception):
    """The entry cannot be kept."""


class EntryTable:
    """The entries of one kind. Time comes with each call, in seconds since the epoch."""

    def __init__(self, argument: EntriesArgument) -> None:
        self.kind = argument.kind
        self._entries = {entry.key: entry for entry in argument.entries}
        self._last_version = argument.last_version
        self._size = sum(_size(entry) for entry in argument.entries)

    def argument(self) -> EntriesArgument:
        """Return the argument of the next execution."""
        return EntriesArgument(self.kind, tuple(self._entries.values()), self._last_version)

    def check(self, asked: PutEntry, now: float) -> None:
        """Raise `EntriesRefused` if there is no room for an entry."""
        self._sweep(now)
        size = self._size + len(asked.data) * 4 // 3 + len(asked.key) * 6
        if size > MAX_KEPT:
            raise EntriesRefused(
                f"The entries of kind {self.kind!r} would have {size} bytes with {asked.key!r}, and one kind may have "
                f"{MAX_KEPT} on Temporal: delete some of them."
            )

    def put(self, asked: PutEntry, now: float) -> Written:
        """Keep an entry under a new version, which grows with the time, so that it grows over all kinds."""
        self._sweep(now)
        if not self._is_expected(asked.key, asked.expect):
            return Written()
        self._last_version = max(self._last_version + 1, int(now * 1_000_000))
        self._remove(asked.key)
        entry = Entry(self.kind, asked.key, self._last_version, asked.data, asked.expires_at)
        self._entries[asked.key] = entry
        self._size += _size(entry)
        return Written(self._last_version)

    def drop(self, asked: DropEntry, now: float) -> Written:
        """Delete an entry, if it is the expected one."""
        self._sweep(now)
        if asked.key not in self._entries or not self._is_expected(asked.key, asked.expect):
            return Written()
        self._remove(asked.key)
        return Written(1)

    def get(self, asked: EntryQuery) -> FoundEntries:
        """Return one entry."""
        entry = self._entries.get(asked.key)
        return FoundEntries((entry,) if entry is not None and _is_alive(entry, asked.now) else ())

    def page(self, asked: EntryQuery) -> FoundEntries:
        """Return entries in the order of their keys, as many as an answer can hold."""
        found: list[Entry] = []
        size = 0
        for key in sorted(key for key in self._entries if key > asked.after):
            entry = self._entries[key]
            if not _is_alive(entry, asked.now):
                continue
            size += _size(entry)
            if len(found) >= asked.limit or (found and size > _MAX_ANSWER):
                break
            found.append(entry)
        return FoundEntries(tuple(found))

    def _is_expected(self, key: str, expect: int | None) -> bool:
        entry = self._entries.get(key)
        return expect is None or (ABSENT if entry is None else entry.version) == expect

    def _sweep(self, now: float) -> None:
        for key in [key for key, entry in self._entries.items() if not _is_alive(entry, now)]:
            self._remove(key)

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= _size(entry)


def _is_alive(entry: Entry, now: float) -> bool:
    return entry.expires_at is None or entry.expires_at > now


def _size(entry: Entry) -> int:
    return len(msgspec.json.encode(entry))


class EntriesInstance(InstanceBase):
    """The workflow of one kind of entries in the cache of a worker."""

    def __init__(self, info: Info, check_recorded: Callable[[Info, Intake, int], None]) -> None:
        super().__init__(info, check_recorded)
        self._table: EntryTable

    @override
    def take(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """Take an activation: updates and queries."""
        now = act.timestamp.ToMicroseconds() / 1_000_000
        asked = False
        for job in act.jobs:
            match job.WhichOneof("variant"):
                case "initialize_workflow":
                    self._table = EntryTable(value_of(job.initialize_workflow.arguments[0], EntriesArgument))
                case "do_update":
                    success.commands.extend(self._update(job.do_update, now))
                case "query_workflow":
                    asked = True
                    success.commands.append(self._answer(job.query_workflow))
                case "remove_from_cache":
                    return
                case _:
                    pass  # nothing else is for it; a request to cancel it changes nothing
        if act.continue_as_new_suggested and not asked:
            success.commands.append(self._continued())

    def _update(self, update: activations.DoUpdate, now: float) -> list[messages.WorkflowCommand]:
        accepted, answer = messages.WorkflowCommand(), messages.WorkflowCommand()
        for built in (accepted, answer):
            built.update_response.protocol_instance_id = update.protocol_instance_id
        try:
            written = self._written(update, now)
        except (EntriesRefused, *_UNREADABLE) as error:
            failure = answer.update_response.rejected
            failure.message = str(error)
            failure.application_failure_info.type = type(error).__name__
            return [answer]
        accepted.update_response.accepted.SetInParent()
        answer.update_response.completed.CopyFrom(payload_of(written))
        return [accepted, answer]

    def _written(self, update: activations.DoUpdate, now: float) -> Written:
        if update.name == UPDATE_PUT:
            put = value_of(update.input[0], PutEntry)
            if update.run_validator:  # on a replay it was accepted already
                self._table.check(put, now)
            return self._table.put(put, now)
        if update.name == UPDATE_DROP:
            return self._table.drop(value_of(update.input[0], DropEntry), now)
        raise ValueError(f"Entries know no update {update.name!r}: there are {UPDATE_PUT!r} and {UPDATE_DROP!r}.")

    def _answer(self, query: activations.QueryWorkflow) -> messages.WorkflowCommand:
        built = messages.WorkflowCommand()
        built.respond_to_query.query_id = query.query_id
        try:
            built.respond_to_query.succeeded.response.CopyFrom(self._found(query))
        except _UNREADABLE as error:
            built.respond_to_query.failed.message = str(error)
        return built

    def _found(self, query: activations.QueryWorkflow) -> Payload:
        if query.query_type == QUERY_GET:
            return payload_of(self._table.get(value_of(query.arguments[0], EntryQuery)))
        if query.query_type == QUERY_LIST:
            return payload_of(self._table.page(value_of(query.arguments[0], EntryQuery)))
        raise ValueError(f"Entries know no query {query.query_type!r}: there are {QUERY_GET!r} and {QUERY_LIST!r}.")

    def _continued(self) -> messages.WorkflowCommand:
        built = messages.WorkflowCommand()
        continued = built.continue_as_new_workflow_execution
        continued.workflow_type = self._info.workflow_type
        continued.task_queue = self._info.task_queue
        continued.arguments.append(payload_of(self._table.argument()))
        return built
