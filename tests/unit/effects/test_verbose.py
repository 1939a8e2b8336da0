from __future__ import annotations

import logging
from typing import Any

import pytest

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.effects.verbose import summarize_event, summarize_value


class Item(Event):
    number: int


class Noisy(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> list[Item]:
        ctx.write_event_to_stream(Item(number=9))
        return [Item(number=1), Item(number=2)]

    @step(num_workers=1)
    async def work(self, ev: Item) -> Item | None:
        return None

    @step
    async def join(self, evs: list[Item]) -> StopEvent:
        return StopEvent(result="done")


class Plain(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.topic)


async def test_lines_go_to_standard_output_if_no_logger_wants_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert await Plain(verbose=True).run(topic="tea") == "tea"
    assert capsys.readouterr().out.splitlines() == [
        "[tick] add: StartEvent(topic='tea')",
        "[only:0] started from StartEvent",
        "[result] StopEvent(result='tea')",
        "[only:0] complete with StopEvent",
    ]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
async def test_lines_go_to_the_logger_if_that_is_enabled(
    level: int, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, logger="workflows.verbose"):
        await Plain(verbose=True).run(topic="tea")
    assert capsys.readouterr().out == ""
    lines = [record.getMessage() for record in caplog.records if record.name == "workflows.verbose"]
    assert "[only:0] complete with StopEvent" in lines


async def test_queued_work_published_events_and_empty_results_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    await Noisy(verbose=True, disable_validation=True).run()
    lines = capsys.readouterr().out.splitlines()
    assert "[tick] publish: Item(number=9)" in lines
    assert "[tick] add: Item(number=2)" in lines
    assert "[work] enqueued (waiting for capacity)" in lines
    assert "[work:0] complete with no result" in lines


async def test_events_from_outside_and_cancelling_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Waits(Workflow):
        @step
        async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Item, requirements={"number": 3})
            return StopEvent()

    handler = Waits(verbose=True).run()
    handler.ctx.send_event(Item(number=1))
    await handler.cancel_run()
    lines = capsys.readouterr().out.splitlines()
    assert "[tick] add: Item(number=1)" in lines
    assert "[tick] cancelled" in lines


async def test_quiet_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    await Plain().run(topic="tea")
    assert capsys.readouterr().out == ""


def test_long_events_are_cut() -> None:
    line = summarize_event(Item(number=1, text="x" * 60, many=list(range(9)), table=dict.fromkeys(range(5)), n=[1]))
    assert line == f"Item(number=1, text={'x' * 50 + '...'!r}, many=[9 items], table={{5 keys}}, n=[1])"
    assert len(summarize_event(StopEvent(**{f"field{n}": n for n in range(100)}))) == 200


def test_value_whose_repr_fails_is_no_failure() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    bad: Any = Bad()
    assert summarize_value(bad) == "<Bad without a repr: RuntimeError>"
