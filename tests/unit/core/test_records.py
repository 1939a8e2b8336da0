"""Events and their kinds, and what the reducer knows of a workflow's code."""

from __future__ import annotations

from core_rig import A, kind

from loom.core.records import EVENT, RELEASE_KIND, STEP_FAILED_KIND
from loom.core.state import BrokerConfig, StepSpec, num_workers, specs_of


def test_kind_is_itself_and_its_bases() -> None:
    sub = kind("t.Sub", A.name)
    assert sub.is_a("t.Sub")
    assert sub.is_a(A.name)
    assert sub.is_a(EVENT)
    assert not A.is_a("t.Sub")


def test_events_of_the_engine_are_events() -> None:
    assert STEP_FAILED_KIND.is_a(EVENT)
    assert RELEASE_KIND.is_a(EVENT)


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
