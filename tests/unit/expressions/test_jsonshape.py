"""The shape of a JSON text before it is decoded: never fewer values than there are, and linear."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.jsonshape import count_values, is_deeper

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,[]{}"\\:\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,["\\{'), inner),
    max_leaves=30,
)


def number_of(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(number_of, parts))


def depth_of(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


@given(VALUES, st.integers(0, 40))
def test_no_value_is_missed_and_texts_do_not_count(value: Any, limit: int) -> None:
    text, number = json.dumps(value), number_of(value)
    counted = count_values(text, limit)
    assert counted > limit if number > limit else counted >= number
    # An empty list counts for what could be in it: closer than twice the values the count need not be.
    assert counted <= limit or 2 * number > limit


@given(VALUES, st.integers(0, 8))
def test_depth_is_that_of_brackets_outside_texts(value: Any, limit: int) -> None:
    assert is_deeper(json.dumps(value), limit) is (depth_of(value) > limit)


@pytest.mark.parametrize("text", ['"' * 400_001, '"' + "\\" * 2_000_001, '"\\"' * 300_000, "[" * 500_000])
def test_texts_that_are_no_json_are_measured_in_one_go(text: str) -> None:
    count_values(text, 0)
    is_deeper("[" * 3 + text, 2_000_000)
