"""The marker that says how a stream is collected."""

from __future__ import annotations

import pytest

from loom.steps.step_config import All, Cardinality, Collect, Take


def test_collect_means_all_by_default() -> None:
    assert Collect() == Collect(All()) == Collect(cardinality=All())


def test_take_keeps_its_count() -> None:
    assert Take(3).n == 3
    assert Take(3) != Take(2)
    assert isinstance(Take(1), Cardinality)


@pytest.mark.parametrize("n", [0, -1, 1.0, "1", None, True])
def test_take_refuses_what_is_no_count(n: object) -> None:
    with pytest.raises(ValueError, match=r"Take\(n\) requires an integer n >= 1"):
        Take(n)  # type: ignore[arg-type]


def test_markers_cannot_be_changed_and_can_be_keys() -> None:
    assert {Collect(Take(1)): "first"}[Collect(Take(1))] == "first"
    with pytest.raises(AttributeError):
        Take(1).n = 2  # type: ignore[misc]
