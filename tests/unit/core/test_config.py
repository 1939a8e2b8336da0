"""What the reducer may know of a workflow's code."""

from __future__ import annotations

from loom.core.config import BrokerConfig, StepSpec, num_workers, specs_of


def config(workers: int = 3) -> BrokerConfig:
    return BrokerConfig("test", (StepSpec("a", num_workers=workers), StepSpec("b", num_workers=0)))


def test_steps_are_found_by_name() -> None:
    assert list(specs_of(config())) == ["a", "b"]
    assert specs_of(config())["a"].num_workers == 3


def test_equal_configs_do_not_share_what_is_remembered() -> None:
    one, two = config(1), config(2)
    assert [num_workers(one, "a"), num_workers(two, "a"), num_workers(one, "a")] == [1, 2, 1]


def test_remembered_configs_are_bounded_and_stay_right() -> None:
    first = config(7)
    assert num_workers(first, "a") == 7
    others = [config(number) for number in range(1, 400)]
    assert [num_workers(other, "a") for other in others] == list(range(1, 400))
    assert num_workers(first, "a") == 7


def test_step_that_is_not_named_has_no_limit() -> None:
    assert num_workers(config(), "ghost") == 0
    assert num_workers(config(), "b") == 0
