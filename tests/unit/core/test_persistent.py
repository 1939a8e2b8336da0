"""The immutable queue."""

from __future__ import annotations

import pytest

from loom.core.persistent import EMPTY_FIFO, Fifo


def test_values_leave_in_the_order_they_came() -> None:
    queue = Fifo.of("ab").push_back("c")
    first, rest = queue.pop_front()
    assert (first, list(rest), len(rest)) == ("a", ["b", "c"], 2)


def test_head_can_be_pushed_below_zero() -> None:
    assert list(Fifo.of("b").push_front("a").push_front("z")) == ["z", "a", "b"]


def test_change_leaves_the_old_version_as_it_was() -> None:
    old = Fifo.of("ab")
    old.push_back("c")
    old.push_front("z")
    old.pop_front()
    assert list(old) == ["a", "b"]


def test_emptied_queue_is_the_one_empty_queue() -> None:
    assert Fifo.of("a").pop_front()[1] is EMPTY_FIFO
    assert Fifo.of(()) is EMPTY_FIFO
    assert not EMPTY_FIFO


def test_empty_queue_has_nothing_to_pop() -> None:
    with pytest.raises(IndexError, match="empty"):
        EMPTY_FIFO.pop_front()
