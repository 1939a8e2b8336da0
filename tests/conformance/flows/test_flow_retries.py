"""Retry policies: Logic Apps' random windows, Loom's doubling, what is worth another try, and Retry-After."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from flow_player import Played, azure, compose, loom, play

from loom.flows.calls import ActionCall, ActionOutcome

SEEDS = range(60)


def http(**policy: Any) -> dict[str, Any]:
    inputs = {"method": "GET", "uri": "https://x.example", **({"retryPolicy": policy} if policy else {})}
    return azure({"A": {"type": "Http", "inputs": inputs}})


def answered(status: int, **more: Any) -> ActionOutcome:
    ended: Any = "Succeeded" if status < 300 else "Failed"
    return ActionOutcome(ended, {"statusCode": status, "headers": {}, "body": None}, str(status), **more)


def always(status: int, **more: Any) -> Callable[[ActionCall], ActionOutcome]:
    return lambda _call: answered(status, **more)


def delays(played: Played) -> list[float]:
    """Seconds between the attempts."""
    times = [at for at, _ in played.calls]
    return [late - early for early, late in pairwise(times)]


# -- Logic Apps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "tries"),
    [
        (408, 5),
        (429, 5),
        (500, 5),
        (502, 5),
        (503, 5),
        (504, 5),
        (599, 5),
        (400, 1),
        (401, 1),
        (404, 1),
        (409, 1),
        (302, 1),
    ],
)
def test_http_is_tried_again_four_times_on_what_may_pass(status: int, tries: int) -> None:
    played = play(http(), answer=always(status))
    assert len(played.calls) == tries
    assert played.statuses == {"A": "Failed"}
    assert played.outputs("A")["statusCode"] == status


@pytest.mark.parametrize("kind", ["connection", "timeout"])
def test_a_broken_connection_is_tried_again(kind: str) -> None:
    played = play(http(), answer=lambda _call: ActionOutcome("Failed", error_type=kind))
    assert len(played.calls) == 5


def test_an_action_whose_time_is_up_is_not_tried_again() -> None:
    played = play(http(), answer=lambda _call: ActionOutcome("TimedOut", code="ActionTimedOut", error_type="timeout"))
    assert (len(played.calls), played.status) == (1, "TimedOut")


def test_a_success_ends_the_tries_and_the_failures_are_remembered() -> None:
    answers = iter([answered(503), answered(500), answered(200)])
    played = play(http(type="fixed", interval="PT10S", count=3), answer=lambda _call: next(answers))
    assert (played.status, delays(played)) == ("Succeeded", [10, 10])
    history = played.result.actions["A"].retry_history
    assert [entry["code"] for entry in history] == ["503", "500"]
    action = played.result.actions["A"]
    times = [(entry["started_at"], entry["ended_at"]) for entry in history]
    assert times == [(1_700_000_000.0, 1_700_000_000.0), (1_700_000_010.0, 1_700_000_010.0)]
    assert (action.started_at, action.ended_at) == (1_700_000_000.0, 1_700_000_020.0), "one format in one object"
    assert not {"startTime", "endTime"} & history[0].keys()
    assert [call.attempt for _, call in played.calls] == [0, 1, 2]
    assert len({call.key for _, call in played.calls}) == 1


def test_expressions_read_the_failures_with_their_timestamps() -> None:
    answers = iter([answered(503), answered(200)])
    document = http(type="fixed", interval="PT10S", count=1)
    (document.get("definition") or document)["actions"]["B"] = {
        **compose("@actions('A').retryHistory[0].endTime"),
        "runAfter": {"A": ["Succeeded"]},
    }
    assert play(document, answer=lambda _call: next(answers)).outputs("B") == "2023-11-14T22:13:20.0000000Z"


@pytest.mark.parametrize(
    ("policy", "tries"),
    [
        ({"type": "none"}, 1),
        ({"type": "None"}, 1),
        ({"type": "fixed", "count": 2}, 3),
        ({"type": "default"}, 5),
        ({"type": "exponential", "count": 90}, 91),
    ],
)
def test_counts(policy: dict[str, Any], tries: int) -> None:
    assert len(play(http(**policy), answer=always(500)).calls) == tries


def test_fixed_waits_the_same_each_time() -> None:
    assert delays(play(http(type="fixed", interval="PT45S", count=4), answer=always(500))) == [45] * 4


def windows(interval: float, low: float, high: float, count: int) -> list[tuple[float, float]]:
    """Before retry n: random in [max(2^(n-2)·i, min), min(2^(n-1)·i, max)], the first in [min, min(i, max)]."""
    found = [(low, min(interval, high))]
    for retry in range(2, count + 1):
        found.append((max(2 ** (retry - 2) * interval, low), min(2 ** (retry - 1) * interval, high)))
    return found


@pytest.mark.parametrize(
    ("policy", "interval", "low", "high", "count"),
    [
        ({}, 7, 5, 3600, 4),
        ({"type": "exponential", "interval": "PT10S", "count": 6}, 10, 5, 3600, 6),
        (
            {
                "type": "exponential",
                "interval": "PT30S",
                "minimumInterval": "PT10S",
                "maximumInterval": "PT2M",
                "count": 3,
            },
            30,
            10,
            120,
            3,
        ),
    ],
)
def test_azures_waits_lie_in_their_windows_and_fill_them(
    policy: dict[str, Any], interval: float, low: float, high: float, count: int
) -> None:
    seen: list[list[float]] = [delays(play(http(**policy), answer=always(500), seed=seed)) for seed in SEEDS]
    for retry, (least, most) in enumerate(windows(interval, low, high, count)):
        waits = [one[retry] for one in seen]
        assert least <= min(waits)
        assert max(waits) <= most
        assert max(waits) - min(waits) > 0.7 * (most - least)


def test_no_wait_is_longer_than_the_maximum_or_shorter_than_the_minimum() -> None:
    policy = {
        "type": "exponential",
        "interval": "PT20S",
        "minimumInterval": "PT15S",
        "maximumInterval": "PT30S",
        "count": 8,
    }
    for seed in SEEDS:
        assert all(15 <= wait <= 30 for wait in delays(play(http(**policy), answer=always(500), seed=seed)))


@pytest.mark.parametrize(("after", "waits"), [(3.0, [20, 20]), (100.0, [100, 100])])
def test_retry_after_is_a_lower_bound(after: float, waits: list[float]) -> None:
    policy = {"type": "fixed", "interval": "PT20S", "count": 2}
    assert delays(play(http(**policy), answer=always(429, retry_after_s=after))) == waits


def test_an_until_has_no_retry_by_default_and_data_actions_have_none() -> None:
    played = play(azure({"A": compose("@int('x')")}))
    assert played.result.actions["A"].retry_history is None


def test_the_policy_may_stand_beside_the_inputs() -> None:
    flow = azure({"A": {"type": "Http", "inputs": {"uri": "x"}, "retryPolicy": {"type": "none"}}})
    assert len(play(flow, answer=always(500)).calls) == 1


# -- Loom --------------------------------------------------------------------------------------------------------------


def activity(key: str = "retry", **policy: Any) -> dict[str, Any]:
    return loom({"a": {"type": "activity", "inputs": {"activityType": "x"}, **({key: policy} if policy else {})}})


def broken(kind: str = "valueerror") -> Callable[[ActionCall], ActionOutcome]:
    return lambda _call: ActionOutcome("Failed", code=kind, error_type=kind, message="broken")


def test_loom_tries_nothing_again_unless_asked() -> None:
    assert len(play(activity(), answer=broken()).calls) == 1
    assert len(play(loom({"h": {"type": "http", "inputs": {"uri": "x"}}}), answer=always(503)).calls) == 1


@pytest.mark.parametrize("key", ["retry", "retryPolicy"])
def test_looms_default_policy(key: str) -> None:
    for seed in SEEDS:
        waits = delays(play(activity(key, type="exponential"), answer=broken(), seed=seed))
        assert len(waits) == 3
        assert all(base <= wait <= base * 1.1 for base, wait in zip([5, 10, 20], waits, strict=True))


def test_looms_jitter_is_random() -> None:
    first = {delays(play(activity(type="exponential"), answer=broken(), seed=seed))[0] for seed in SEEDS}
    assert len(first) > 50


def test_looms_waits_stop_growing_at_the_maximum() -> None:
    waits = delays(play(activity(type="exponential", count=8, interval="PT10S", maxInterval="PT1M"), answer=broken()))
    assert waits[3:] == [60] * 5
    assert all(wait <= 60 for wait in waits)


def test_looms_minimum() -> None:
    waits = delays(
        play(activity(type="exponential", count=2, interval="PT1S", minimumInterval="PT30S"), answer=broken())
    )
    assert waits == [30, 30]


@pytest.mark.parametrize(
    ("on", "outcome", "tries"),
    [
        (["500"], answered(500), 4),
        (["500"], answered(501), 1),
        ([500, "502"], answered(502), 4),
        (["timeout"], ActionOutcome("TimedOut", error_type="timeout"), 4),
        (["timeout"], ActionOutcome("Failed", error_type="timeout"), 4),
        (["timeout"], answered(408), 4),
        (["timeout"], answered(504), 4),
        (["timeout"], answered(500), 1),
        (["ValueError"], ActionOutcome("Failed", error_type="valueerror"), 4),
        (["KeyError", "valueerror"], ActionOutcome("Failed", error_type="valueerror"), 4),
        (["KeyError"], ActionOutcome("Failed", error_type="valueerror"), 1),
        (["connection"], ActionOutcome("Failed", error_type="connection"), 4),
        ([], answered(500), 1),
    ],
)
def test_on_says_which_failures(on: list[Any], outcome: ActionOutcome, tries: int) -> None:
    played = play(activity(type="fixed", interval="PT1S", on=on), answer=lambda _call: outcome)
    assert len(played.calls) == tries


@pytest.mark.parametrize("outcome", [answered(404), answered(500), ActionOutcome("Failed", error_type="x")])
def test_without_on_every_failure_is_tried_again(outcome: ActionOutcome) -> None:
    assert len(play(activity(type="fixed", count=2), answer=lambda _call: outcome).calls) == 3


def test_the_retry_action_gives_the_inner_actions_outputs() -> None:
    answers = iter([ActionOutcome("Failed", error_type="x"), ActionOutcome(outputs={"n": 1})])
    inner = {"type": "activity", "inputs": {"activityType": "x"}}
    flow = loom({"r": {"type": "retry", "action": inner}, "c": {"type": "compose", "inputs": "@body('r').n"}})
    played = play(flow, answer=lambda _call: next(answers))
    assert (played.outputs("r"), played.outputs("c")) == ({"n": 1}, 1)
    assert 5 <= delays(played)[0] <= 5.5


def test_the_retry_action_fails_with_the_inner_actions_error() -> None:
    inner = {"type": "activity", "inputs": {}}
    flow = loom({"r": {"type": "retry", "action": inner, "retryPolicy": {"type": "fixed", "count": 1}}})
    played = play(flow, answer=broken())
    assert len(played.calls) == 2
    assert played.error("r") == "valueerror: broken"


def test_a_container_is_tried_again_as_a_whole() -> None:
    """Any action may have a policy; here a scope whose second call fails at first."""
    answers = iter([ActionOutcome(), ActionOutcome("Failed", error_type="x"), ActionOutcome(), ActionOutcome()])
    call = {"type": "activity", "inputs": {}}
    flow = loom({"s": {"type": "scope", "actions": {"a": call, "b": call}, "retry": {"type": "fixed", "count": 1}}})
    played = play(flow, answer=lambda _call: next(answers))
    assert [call.action for _, call in played.calls] == ["a", "b", "a", "b"]
    assert (played.status, played.statuses["s"]) == ("Succeeded", "Succeeded")


def test_an_action_whose_limit_is_over_is_not_tried_again() -> None:
    """The limit is one for all tries together."""
    limited = {"type": "activity", "inputs": {}, "limit": {"timeout": "PT10S"}, "retry": {"type": "fixed", "count": 3}}
    over = ActionOutcome("TimedOut", code="ActionTimedOut", error_type="timeout")
    played = play(loom({"a": limited}), answer=lambda _call: over)
    assert (len(played.calls), played.at, played.status) == (1, 0, "TimedOut")


@pytest.mark.parametrize("kind", ["foreach", "until"])
def test_a_loop_is_tried_again_from_its_beginning(kind: str) -> None:
    answers = iter([ActionOutcome(), ActionOutcome("Failed", error_type="x"), *[ActionOutcome()] * 3])
    test = {"items": [1, 2, 3]} if kind == "foreach" else {"condition": "@equals(variables('loopIndex'), 3)"}
    inside = {"a": {"type": "activity", "inputs": {}}, "n": {"type": "compose", "inputs": "@variables('loopIndex')"}}
    flow = loom({"l": {"type": kind, **test, "actions": inside, "retry": {"type": "fixed", "interval": "PT3S"}}})
    played = play(flow, answer=lambda _call: next(answers))
    assert (played.status, played.at, len(played.calls)) == ("Succeeded", 3, 5)
    assert played.result.actions["l"].iterations == 3
    last = played.outputs("l")[-1] if kind == "foreach" else played.outputs("l")
    assert last["n"] == 2


def test_a_retry_is_told_and_survives_recovery() -> None:
    flow = activity(type="fixed", interval="PT20S", count=2)
    played = play(flow, answer=broken(), recover_always=True)
    waiting = [(report.attempt, report.code) for report in played.reports if report.status == "Waiting"]
    assert waiting == [(1, "valueerror"), (2, "valueerror")]
    assert played.at == 40
