"""Errors of stores, as callers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class StoreError(Exception):
    """The base of all errors of a store, or of a runtime over it."""


class RunNotFound(StoreError):
    """No run of this id is stored."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run {run_id!r} was not found.")
        self.run_id = run_id


class RunFinished(StoreError):
    """The run has ended, and what was asked of it needs a running one."""

    def __init__(self, run_id: str, status: str, what: str = "it takes no event any more") -> None:
        super().__init__(f"Run {run_id!r} has ended ({status}): {what}.")
        self.run_id = run_id
        self.status = status


class RunActive(StoreError):
    """The run has not ended, and what was asked of it needs one that has."""

    def __init__(self, run_id: str, advice: str) -> None:
        super().__init__(f"Run {run_id!r} is running: {advice}.")
        self.run_id = run_id


class NothingToSkip(StoreError):
    """The run has no delay that can be ended early, or not the one that was named."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"Run {run_id!r} has nothing to skip: {why}.")
        self.run_id = run_id


class RunExists(StoreError):
    """Another run has this id: of another workflow, or with another input."""

    def __init__(self, run_id: str, difference: str, advice: str = "Choose another run_id") -> None:
        super().__init__(f"Run {run_id!r} exists already, {difference}. {advice}.")
        self.run_id = run_id


class RunBusy(StoreError):
    """The run keeps as many unclaimed events as it may, so that another one would have no place."""

    def __init__(self, run_id: str, event: str, kept: int) -> None:
        super().__init__(f"Run {run_id!r} already keeps {kept} events that nobody has asked for: {event} is refused.")
        self.run_id = run_id


class MemoryExceeded(StoreError):
    """This process uses more memory than it may, and starts no run. Another one may, or this one later."""


class HistoryGone(StoreError):
    """The answer needs ticks of a run that were pruned."""

    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(f"Run {run_id!r}: {what}, because ticks that it needs were pruned.")
        self.run_id = run_id


class NotSupported(StoreError):
    """The store cannot do this, now or later."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, is full, or failed."""

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        """Whether the write may have happened nevertheless: the connection was lost during the commit."""


class PartlyApplied(StoreUnavailable):
    """Some operations of a group have failed in a store that has no transactions, and the others are durable."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self.outcomes = outcomes
        """The result or the error of each operation."""
        failed = sum(isinstance(outcome, BaseException) for outcome in outcomes)
        super().__init__(f"{failed} of {len(outcomes)} operations failed.")


class StoreLocked(StoreUnavailable):
    """Another engine works on this database file. `holder` names it."""

    def __init__(self, message: str, *, outcome_unknown: bool = False, holder: str = "another process") -> None:
        super().__init__(message, outcome_unknown=outcome_unknown)
        self.holder = holder


class StoreTooNew(StoreError):
    """The database was written by a newer version of Loom than this one."""


class StoreOutdated(StoreError):
    """The database needs an upgrade, which was not allowed."""


class CorruptRecord(StoreError):
    """A stored record cannot be read: it is damaged, or of a format that this version does not know."""

    def __init__(self, run_id: str, place: str, reason: str) -> None:
        super().__init__(f"Run {run_id!r}: {place} cannot be read: {reason}")
        self.run_id = run_id
        self.place = place
        self.reason = reason


class CorruptEntry(CorruptRecord):
    """A document or an entry cannot be read."""

    def __init__(self, kind: str, key: str, reason: str) -> None:
        super().__init__(key, kind, reason)
        self.args = (f"The stored {kind} {key!r} cannot be read: {reason}",)


class BrokenJournal(CorruptRecord):
    """What is stored of a run is not what was written: its links do not fit, or something is missing."""

    def __init__(self, run_id: str, place: str, reason: str) -> None:
        super().__init__(run_id, place, reason)
        self.args = (f"Run {run_id!r}: {place} is not what was written: {reason}.",)


class WrongKeys(StoreError):
    """This process has other keys than the store was written with."""


class BadKeys(WrongKeys, ValueError):
    """The text of a keyring cannot be read."""


class PayloadUnavailable(StoreUnavailable):
    """A payload beside the store cannot be written or read now. What needs none is not concerned."""


class KeyUnavailable(StoreUnavailable):
    """A value is encrypted or signed with a key that this process lacks; with that key, nothing is lost."""
