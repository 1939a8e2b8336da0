"""Keep processes from being forked while a thread is inside SQLite.

A forked process inherits SQLite's memory without its threads: the locks of a transaction that nobody ends, so that it
could never write to the same file, and the mutexes of a thread that is gone, so that it would hang when it opens one.
"""

from __future__ import annotations

import os
import threading
import time
from weakref import WeakSet

_PATIENCE_S = 5.0
"""How long a fork waits for SQLite. Work that takes longer waits itself, for a lock of another process."""


class _Forks:
    """The locks that every fork of this process waits for."""

    def __init__(self) -> None:
        self._locks: WeakSet[threading.Lock] = WeakSet()
        self._changing = threading.Lock()
        self._held: list[threading.Lock] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._let_go)

    def new_lock(self) -> threading.Lock:
        """Make a lock. Forks wait for it until the last reference to it is gone."""
        lock = threading.Lock()
        with self._changing:
            self._locks.add(lock)
        return lock

    def _hold(self) -> None:
        self._changing.acquire()
        deadline = time.monotonic() + _PATIENCE_S
        for lock in list(self._locks):
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                self._held.append(lock)

    def _let_go(self) -> None:
        for lock in self._held:
            lock.release()
        self._held = []
        self._changing.release()


_forks = _Forks()


def lock_against_forks() -> threading.Lock:
    """Make a lock for a thread that uses SQLite. While the thread holds it, no process is forked."""
    return _forks.new_lock()
