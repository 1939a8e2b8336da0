"""Events and their kinds."""

from __future__ import annotations

from core_rig import A, kind

from loom.core.records import EVENT, RELEASE_KIND, STEP_FAILED_KIND


def test_kind_is_itself_and_its_bases() -> None:
    sub = kind("t.Sub", A.name)
    assert sub.is_a("t.Sub")
    assert sub.is_a(A.name)
    assert sub.is_a(EVENT)
    assert not A.is_a("t.Sub")


def test_events_of_the_engine_are_events() -> None:
    assert STEP_FAILED_KIND.is_a(EVENT)
    assert RELEASE_KIND.is_a(EVENT)
