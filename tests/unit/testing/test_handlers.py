"""Handlers that end with their test, and mocks of activities and actions."""

from __future__ import annotations

import pytest

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.testing import HandlerCall, isolated_handlers, run_virtual

ASK = {
    "ask": {
        "type": "http",
        "inputs": {"uri": "https://weather.example.com/now"},
        "retry": {"type": "fixed", "interval": "PT1M", "count": 2},
    }
}


def test_what_is_registered_inside_ends_with_the_block() -> None:
    with isolated_handlers():
        loom.activity("before")(lambda: "outside")
        with isolated_handlers() as handlers:
            handlers.activity("before")(lambda: "inside")
            loom.activity("inside")(lambda: 1)
            assert HANDLERS.activities["before"]() == "inside"
        assert HANDLERS.activities["before"]() == "outside"
        assert "inside" not in HANDLERS.activities
        with isolated_handlers(empty=True):
            assert HANDLERS.activities == {}
        assert HANDLERS.activities["before"]() == "outside"
    assert "before" not in HANDLERS.activities


def test_handlers_come_back_after_a_failure() -> None:
    def failing() -> None:
        with isolated_handlers() as handlers:
            handlers.mock_action("HTTP")
            assert "http" in HANDLERS.actions
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert "http" not in HANDLERS.actions


def test_a_built_in_action_is_mocked_and_its_calls_are_kept_with_their_times() -> None:
    with isolated_handlers() as handlers:
        http = handlers.mock_action("http", in_turn=[{"statusCode": 503}, ConnectionError("down"), {"body": "calm"}])
        result = run_virtual(_result(loom.load(ASK)))
    assert result.actions["ask"].outputs["body"] == "calm"
    assert http.times == [0.0, 60.0, 120.0]
    assert [call.attempt for call in http.calls] == [0, 1, 2]
    assert {call.action for call in http.calls} == {"ask"}
    assert {call.inputs["uri"] for call in http.calls} == {"https://weather.example.com/now"}
    assert len({call.idempotency_key for call in http.calls}) == 1
    assert isinstance(http.calls[0], HandlerCall)
    assert repr(http) == "<mock of action 'http': 3 calls>"


async def _result(flow: loom.Flow) -> loom.FlowResult:
    return await flow.run()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_mock_answers_by_a_function(kind: str) -> None:
    async def late(inputs: str) -> str:
        return inputs.upper()

    flow = loom.load({"shout": {"type": "activity", "inputs": {"activityType": "shout", "input": "ahoy"}}})
    with isolated_handlers() as handlers:
        shout = handlers.mock_activity("shout", by=str.upper if kind == "sync" else late)
        result = run_virtual(_result(flow))
    assert result.actions["shout"].outputs == "AHOY"
    assert [call.inputs for call in shout.calls] == ["ahoy"]


def test_a_mock_of_the_ai_provider() -> None:
    flow = loom.load({"think": {"type": "ai", "inputs": {"prompt": "why?"}}})
    with isolated_handlers(empty=True) as handlers:
        model = handlers.mock_ai_provider(returns="because")
        result = run_virtual(_result(flow))
    assert "because" in str(result.actions["think"].outputs)
    assert model.calls[0].inputs["prompt"] == "why?"


def test_a_mock_that_raises_fails_the_action() -> None:
    flow = loom.load({"shout": {"type": "activity", "inputs": {"activityType": "shout"}}})
    with isolated_handlers() as handlers:
        handlers.mock_activity("shout", raises=ValueError("hoarse"))
        with pytest.raises(loom.FlowFailed, match="hoarse"):
            run_virtual(_result(flow)).raise_for_status()


def test_a_mock_that_is_called_too_often_says_so() -> None:
    flow = loom.load({"shout": {"type": "activity", "inputs": {"activityType": "shout"}}})
    with isolated_handlers() as handlers:
        handlers.mock_activity("shout", in_turn=[])
        with pytest.raises(loom.FlowFailed, match="has 0 answers, and was called once more"):
            run_virtual(_result(flow)).raise_for_status()


def test_a_mock_takes_one_kind_of_answer() -> None:
    with isolated_handlers() as handlers, pytest.raises(TypeError, match="not returns and by"):
        handlers.mock_action("http", returns={}, by=print)


async def test_times_on_a_real_clock_count_from_the_isolation() -> None:
    with isolated_handlers() as handlers:
        http = handlers.mock_action("http")
        await loom.load(ASK).run()
    assert len(http.times) == 1
    assert http.times[0] >= 0
