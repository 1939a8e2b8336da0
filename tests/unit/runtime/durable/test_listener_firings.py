"""What a listener keeps of its firings: the latest, each once, and in few words."""

from __future__ import annotations

from typing import Any

from loom.runtime.durable.listener_firings import KEPT, firing, firings_in, noted


def after(*happened: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for each in happened:
        state |= noted(state, each)
    return state


def test_the_latest_are_kept_and_no_more() -> None:
    state = after(*(firing(float(at), "data", "OK", runs=1, run_id=f"r{at}") for at in range(3 * KEPT)))
    found = firings_in(state)
    assert [each["at"] for each in found] == [float(at) for at in range(3 * KEPT - 1, 2 * KEPT - 1, -1)]
    assert len(state) == KEPT + 2


def test_the_same_again_is_counted() -> None:
    state = after(*(firing(float(at), "nothing", "Accepted") for at in range(100)))
    [only] = firings_in(state)
    assert (only["at"], only["repeats"], only["until"]) == (0.0, 99, 99.0)
    state |= noted(state, firing(100.0, "failed", "NotFound", "The server answered 404."))
    assert [each["code"] for each in firings_in(state)] == ["NotFound", "Accepted"]
    assert state["last_error"] == "The server answered 404."


def test_what_has_started_runs_is_never_merged() -> None:
    state = after(*(firing(1.0, "failed", "StartRefused", "no", runs=1, run_id=each) for each in "ab"))
    assert [each["run_id"] for each in firings_in(state)] == ["b", "a"]


def test_a_long_message_is_cut() -> None:
    assert len(firing(0.0, "failed", message="x" * 100_000)["message"]) == 1000
