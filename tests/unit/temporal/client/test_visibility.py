"""The words that search attributes have, and the conditions that are made of queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.history.v1 import HistoryEvent

from loom.store.records import RunQuery
from loom.temporal.client.records import row_closed_otherwise
from loom.temporal.client.visibility import condition
from loom.temporal.names import MANY, PRESENT, keyword, keywords, tag_keywords
from loom.temporal.payloads import RunMetadata


@pytest.mark.parametrize("text", ["Answer", "shop.orders.Paid", "team=blue", "a-b_c.d=9"])
def test_plain_texts_stay_readable(text: str) -> None:
    assert keyword(text) == text


@given(st.text(max_size=300))
def test_every_text_has_a_word_that_can_be_searched(text: str) -> None:
    word = keyword(text)
    assert 0 < len(word) <= 100
    assert word.isascii()
    assert not set(word) & set("\"'`\\%* \n")


@given(st.sets(st.text(max_size=20), max_size=20))
def test_different_texts_have_different_words(texts: set[str]) -> None:
    assert len({keyword(text) for text in texts}) == len(texts)


def test_the_marks_are_no_words_of_a_run() -> None:
    assert keyword(MANY) != MANY
    assert tag_keywords({}) == [PRESENT]


def test_too_many_words_are_one() -> None:
    assert keywords(f"event-{number:040}" for number in range(100)) == [MANY]


def test_only_what_can_rule_out_is_in_a_condition() -> None:
    where = condition(RunQuery(tags={"a": "b"}, idle=True), "loom", has_attributes=False)
    assert "LoomTags" not in where
    assert 'TaskQueue = "loom"' in where
    assert 'ExecutionStatus IN ("Running")' in where
    with_attributes = condition(RunQuery(tags={"a": "b"}, idle=True), "loom", has_attributes=True)
    assert '(LoomTags IS NULL OR LoomTags IN ("a=b", "loom-many"))' in with_attributes
    assert "(LoomTags IS NULL OR LoomIdleSince IS NOT NULL)" in with_attributes


def test_names_with_quotes_are_told_apart_by_the_cards() -> None:
    assert "WorkflowType IN" not in condition(RunQuery(workflow='say "hi"'), "loom", has_attributes=False)
    assert 'WorkflowType IN ("a", "b")' in condition(RunQuery(workflow=("a", "b")), "loom", has_attributes=False)


def test_a_run_that_has_failed_without_an_ending_says_why() -> None:
    event = HistoryEvent()
    event.workflow_execution_failed_event_attributes.failure.message = "It could not begin: no colour"
    row = row_closed_otherwise(RunMetadata("a", "dye", 5.0), event)
    assert (row.head.status, row.head.error) == ("failed", "It has failed on Temporal: It could not begin: no colour")
