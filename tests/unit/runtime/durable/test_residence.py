"""The table of a run's residence: every row happens as it says, nothing else does."""

from __future__ import annotations

from typing import get_args

import pytest

from loom.runtime.durable.residence import (
    ABSENT,
    BUSY,
    IN_MEMORY,
    TABLE,
    Action,
    Fact,
    Row,
    Slot,
    State,
    transition,
)

STATES: tuple[State, ...] = get_args(State)
FACTS: tuple[Fact, ...] = get_args(Fact)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.before}-{row.fact}")
def test_row_says_what_happens(row: Row) -> None:
    assert transition(Slot(row.before), row.fact) == (Slot(row.after, wanted=row.wants), row.actions)


def test_every_state_fact_and_action_is_used_and_rows_can_be_told_apart() -> None:
    assert {row.before for row in TABLE} | {row.after for row in TABLE} == {*STATES}
    assert {row.fact for row in TABLE} == {*FACTS}
    assert {action for row in TABLE for action in row.actions} == {*get_args(Action)}
    assert len({(row.before, row.fact) for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("state", STATES)
def test_fact_without_a_row_changes_nothing(state: State) -> None:
    known = {row.fact for row in TABLE if row.before == state}
    for slot in (Slot(state), Slot(state, wanted=True)):
        for fact in {*FACTS} - known:
            assert transition(slot, fact) == (slot, ())


@pytest.mark.parametrize("state", STATES)
def test_something_that_comes_is_told_or_noted_in_every_state(state: State) -> None:
    slot, actions = transition(Slot(state), "notified")
    assert {*actions} & {"claim", "fetch"} or slot.wanted
    assert (state in BUSY) == slot.wanted


@pytest.mark.parametrize("state", sorted(BUSY))
def test_every_way_out_of_a_busy_state_tells_what_has_come(state: State) -> None:
    for row in TABLE:
        if row.before == state and row.after != state:
            after, actions = transition(Slot(state, wanted=True), row.fact)
            assert after.wanted or {*actions} & {"claim", "fetch"}, row
            assert len({*actions}) == len(actions)


def test_what_leaves_memory_is_forgotten_and_gives_its_place_back() -> None:
    for row in TABLE:
        leaves = row.before in IN_MEMORY and row.after not in IN_MEMORY
        assert ("forget" in row.actions) == leaves, row
        if leaves and row.fact != "begin failed":  # whoever has loaded it has its place still
            assert "free" in row.actions
        if row.after == "absent" and row.before not in ("draining", *IN_MEMORY):
            assert row.actions == ("dequeue", "free")


def test_run_whose_mail_could_not_be_read_is_tried_with_the_next_scan() -> None:
    slot, actions = transition(Slot("active"), "messages unread")
    assert (slot.is_stranded, actions) == (True, ())
    assert transition(slot, "rested") == (Slot("idle", wanted=True), ("track",))
    assert transition(slot, "scanned") == (Slot("active"), ("fetch",))
    assert transition(slot, "left") == (Slot("claiming"), ("forget", "free", "claim"))
    assert transition(slot, "commit failed") == (Slot("stranded"), ("forget", "free"))
    assert not ABSENT.is_stranded
    assert not Slot("claiming", wanted=True).is_stranded


def test_release_that_was_refused_fetches_once_what_has_come() -> None:
    slot, actions = transition(Slot("releasing"), "notified")
    assert (slot, actions) == (Slot("releasing", wanted=True), ("fetch",))
    assert transition(slot, "release refused") == (Slot("active"), ("fetch",))


def test_run_is_not_claimed_before_its_commit_has_settled() -> None:
    slot, _ = transition(Slot("releasing", wanted=True), "left mid-commit")
    assert slot == Slot("draining", wanted=True)
    assert transition(slot, "commit settled") == (Slot("claiming"), ("claim",))
    assert transition(Slot("draining"), "commit settled") == (ABSENT, ())
