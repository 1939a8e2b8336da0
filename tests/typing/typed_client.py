"""What type checkers know of the results that clients get. It is checked, and never run."""

from __future__ import annotations

from typing import Any, assert_type

from loom import Client, StopEvent, SyncClient
from loom.api.runs import Run


class Answer(StopEvent):
    words: list[str]


async def results(client: Client) -> None:
    run = await client.wait("run-1")
    assert_type(run, Run)
    assert_type(run.result_as(Answer), Answer)
    assert_type(run.result_as(StopEvent), StopEvent)
    assert_type(run.result, Any)


def results_without_await(client: SyncClient) -> None:
    assert_type(client.wait("run-1").result_as(Answer).words, list[str])
