"""The result of a run as the event that ended it."""

from __future__ import annotations

from typing import Any

import pytest

from loom import StopEvent
from loom.api.runs import Run


class Answer(StopEvent):
    words: list[str]


def _run(result: Any, status: Any = "completed") -> Run:
    return Run(run_id="r", workflow="w", status=status, result=result)


def test_the_event_is_read_as_its_class() -> None:
    answer = _run({"type": "Answer", "value": {"words": ["a"]}}).result_as(Answer)
    assert answer == Answer(words=["a"])
    assert _run({"type": "StopEvent", "value": {"result": 3}}).result_as(StopEvent).result == 3


def test_another_end_is_refused() -> None:
    with pytest.raises(ValueError, match="Run 'r' ended with StopEvent, not with Answer"):
        _run({"type": "StopEvent", "value": {"result": 3}}).result_as(Answer)
    with pytest.raises(ValueError, match="Run 'r' is failed and ended with no event"):
        _run(None, "failed").result_as(Answer)
    with pytest.raises(ValueError, match="ended with no event"):
        _run({"status": "Succeeded", "outputs": {}}).result_as(Answer)
    with pytest.raises(ValueError, match="words"):
        _run({"type": "Answer", "value": {"words": 1}}).result_as(Answer)
