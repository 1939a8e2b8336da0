"""How a group is cut into what can be written together."""

from __future__ import annotations

import pytest

from loom.store.operations import (
    ClaimRun,
    ClaimRuns,
    CommitRun,
    Operation,
    PostMessage,
    PurgeRuns,
    ReleaseRun,
    StartRun,
)
from loom.store.postgres.plan import OperationBatch, batches, plain_commits
from loom.store.records import RunHead, TimerRow

HEAD = RunHead("running", 1, 0, 1.0)


def start(run_id: str) -> StartRun:
    return StartRun(run_id, "w", b"", 1.0)


def post(run_id: str) -> PostMessage:
    return PostMessage(run_id, b"", 1.0)


def commit(run_id: str, *sent: StartRun | PostMessage) -> CommitRun:
    return CommitRun(run_id, 1, HEAD, sent=sent)


def cut(*group: Operation) -> list[int | str]:
    """How many operations each batch has, or the name of what stands alone."""
    parts = batches(group)
    return [len(part.operations) if isinstance(part, OperationBatch) else type(part).__name__ for part in parts]


def test_different_runs_go_together() -> None:
    assert cut(start("a"), commit("b", post("c")), ReleaseRun("d", 1), ClaimRun("e", 1), post("a")) == [5]


def test_any_amount_of_mail_for_one_run_goes_together() -> None:
    assert cut(*[post("a")] * 10, commit("a"), *[post("a")] * 10) == [21]


def test_what_the_owner_does_to_a_run_comes_one_by_one() -> None:
    assert cut(commit("a"), ReleaseRun("a", 1), ClaimRun("a", 2)) == [1, 1, 1]


def test_a_run_is_started_once_in_a_batch() -> None:
    assert cut(start("a"), commit("b", start("a")), start("a")) == [1, 1, 1]
    assert cut(commit("b", start("a"), start("a")), start("c")) == [2]


def test_what_looks_at_many_runs_stands_alone() -> None:
    assert cut(start("a"), ClaimRuns(1, ("w",), 0.0), PurgeRuns("a"), post("a")) == [1, "ClaimRuns", "PurgeRuns", 1]


def test_a_batch_names_every_run_that_it_touches() -> None:
    [batch] = batches([commit("a", start("b"), post("c")), post("d")])
    assert isinstance(batch, OperationBatch)
    assert batch.run_ids == {"a", "b", "c", "d"}
    assert list(batch.starts) == ["b"]


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(TypeError, match="Not an operation"):
        cut(start("a"), "nonsense")  # type: ignore[arg-type]


def test_only_heads_and_chunks_of_different_runs_are_plain() -> None:
    assert plain_commits([commit("a"), commit("b")]) is not None
    assert plain_commits([commit("a"), commit("a")]) is None
    assert plain_commits([commit("a"), post("b")]) is None
    assert plain_commits([commit("a", post("b"))]) is None
    assert plain_commits([CommitRun("a", 1, RunHead("failed", 1, 0, 1.0))]) is None
    assert plain_commits([CommitRun("a", 1, HEAD, timers_set=(TimerRow(1, 1.0, "sleep"),))]) is None
    assert plain_commits([CommitRun("a", 1, HEAD, document=("d", b"text"))]) is None
