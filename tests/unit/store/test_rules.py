"""The rules of starts, messages and commits, from facts alone. The conformance suite compares the stores."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from loom.store.operations import CommitRun, Posted, PostMessage, StartRun
from loom.store.records import Chunk, RunHead, TimerRow
from loom.store.rules import (
    NO_WAITS,
    Receiver,
    does_not_follow,
    effects_of_commit,
    follows,
    mac_of_reopened,
    refusal_of_full_inbox,
    refusal_of_message,
    row_of_start,
    start_notifies,
)

RUNNING = RunHead("running", 3, 2, 9.0, waiters=b'["w"]', waiting_for=("A",))
MESSAGE = PostMessage("r", b"[1]", 1.0)
FAILED = Receiver("failed", 7, is_repeated=False)


def commit(head: RunHead = RUNNING, **more: Any) -> CommitRun:
    return CommitRun("r", 1, head, **more)


def timer(seq: int, due: float = 1.0) -> TimerRow:
    return TimerRow(seq, due, "sleep")


def test_a_start_makes_a_row_that_needs_a_worker() -> None:
    asked = StartRun("r", "w", b"in", 5.0, tags={"a": "b"}, parent="p", parent_ref=2, owner=4, downtime=1.5, mac=b"m")
    row = row_of_start(replace(asked, document=("digest", b"text")))
    assert (row.run_id, row.workflow, row.created_at, row.tags, row.owner) == ("r", "w", 5.0, {"a": "b"}, 4)
    assert (row.parent, row.parent_ref, row.document, row.ended_at, row.first_tick) == ("p", 2, "digest", None, 0)
    assert row.head == RunHead("running", 0, 0, 5.0, downtime=1.5, mac=b"m")
    assert row.head.needs_worker


@pytest.mark.parametrize(("owner", "expected"), [(None, True), (3, False)])
def test_a_start_notifies_unless_it_has_an_owner(owner: int | None, expected: bool) -> None:
    assert start_notifies(owner) is expected


@pytest.mark.parametrize(
    ("asked", "receiver", "expected"),
    [
        (MESSAGE, Receiver("running", 1, is_repeated=False), None),
        (MESSAGE, Receiver("running", 1, is_repeated=True), Posted("repeated")),
        (MESSAGE, Receiver("completed", 1, is_repeated=True), Posted("repeated")),
        (MESSAGE, Receiver("completed", 1, is_repeated=False), Posted("finished", status="completed")),
        (MESSAGE, FAILED, Posted("finished", status="failed")),
        (replace(MESSAGE, reopens=True), FAILED, None),
        (
            replace(MESSAGE, reopens=True),
            Receiver("running", 7, is_repeated=False),
            Posted("finished", status="running"),
        ),
        (replace(MESSAGE, reopens=True, reopened=(7, b"m")), FAILED, None),
        (replace(MESSAGE, reopens=True, reopened=(6, b"m")), FAILED, Posted("finished", status="failed")),
    ],
)
def test_which_messages_are_refused(asked: PostMessage, receiver: Receiver, expected: Posted | None) -> None:
    assert refusal_of_message(asked, receiver) == expected


@pytest.mark.parametrize(("limit", "held", "is_full"), [(None, 99, False), (3, 2, False), (3, 3, True), (0, 0, True)])
def test_a_limit_counts_early_events_and_messages(limit: int | None, held: int, is_full: bool) -> None:
    refusal = refusal_of_full_inbox(replace(MESSAGE, limit=limit), held)
    assert refusal == (Posted("full", kept=held) if is_full else None)


def test_a_retry_brings_the_signature_of_the_row() -> None:
    assert mac_of_reopened(replace(MESSAGE, reopens=True, reopened=(7, b"m"))) == b"m"
    assert mac_of_reopened(replace(MESSAGE, reopens=True)) is None


def test_a_commit_of_a_running_run_keeps_its_inbox_and_owner() -> None:
    effects = effects_of_commit(commit(), None)
    assert (effects.ends, effects.empties_inbox, effects.waits) == (False, False, (b'["w"]', ("A",)))
    assert effects_of_commit(commit(waiting_changed=False), None).waits is None


@pytest.mark.parametrize(("status", "empties"), [("completed", True), ("cancelled", True), ("failed", False)])
def test_an_ended_run_waits_for_nothing_and_keeps_messages_only_for_a_retry(status: Any, empties: bool) -> None:
    asked = commit(replace(RUNNING, status=status), waiting_changed=False, timers_set=(timer(1),), timers_gone=(2,))
    effects = effects_of_commit(asked, None)
    assert (effects.ends, effects.empties_inbox, effects.waits) == (True, empties, NO_WAITS)
    assert (effects.timers_set, effects.timers_gone) == ((), ())


def test_a_timer_that_a_commit_sets_and_deletes_is_gone_and_each_is_set_once() -> None:
    asked = commit(timers_set=(timer(1), timer(2), timer(1, 5.0)), timers_gone=(2, 3))
    effects = effects_of_commit(asked, None)
    assert (effects.timers_set, effects.timers_gone) == ((timer(1, 5.0),), (2, 3))


def test_a_run_gets_a_document_once() -> None:
    asked = commit(document=("new", b"text"))
    assert effects_of_commit(asked, None).document == ("new", b"text")
    assert effects_of_commit(asked, "old").document is None
    assert effects_of_commit(commit(), None).document is None


def test_a_chunk_follows_the_journal_or_is_an_error() -> None:
    chunk = Chunk(3, 1, 2, 0, b"")
    assert follows(chunk, 3, 2)
    assert not follows(chunk, 4, 2)
    assert not follows(chunk, 3, 3)
    assert follows(None, 4, 2)
    told = str(does_not_follow(commit(chunk=chunk), (4, 2)))
    assert told.startswith("Run 'r': a chunk from tick 3 and cursor 2 does not follow its journal of 4 ticks")
    assert "does not follow on what its journal holds" in str(does_not_follow(commit(chunk=chunk)))
