"""Many runs that wait, started over HTTP, released from memory, and each woken by an event.

`python many_waiting.py --runs 10000` is the long form.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from served_process import ServedProcess

_CODE = """
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step


class Answer(HumanResponseEvent):
    number: int


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result=[ev.number, answer.number])
"""
_AT_ONCE = 50


@dataclass(frozen=True)
class Outcome:
    """What became of the runs."""

    started: int
    idle: int
    """How many the list of idle runs had."""
    in_memory: int
    """How many were in memory when all of them waited and nothing had happened for a while."""
    resumed: int
    answered: int
    seconds: dict[str, float]


class _Many:
    def __init__(self, http: httpx2.AsyncClient, runs: int) -> None:
        self._http = http
        self._runs = runs
        self.seconds: dict[str, float] = {}

    async def each(self, what: str, act: Callable[[int], Awaitable[None]]) -> None:
        """Do something for every run, several at once."""
        numbers = iter(range(self._runs))

        async def lane() -> None:
            for number in numbers:
                await act(number)

        started = time.perf_counter()
        async with asyncio.TaskGroup() as lanes:
            for _ in range(_AT_ONCE):
                lanes.create_task(lane())
        self.seconds[what] = time.perf_counter() - started

    async def start(self, number: int) -> None:
        body = {"workflow": "Ask", "input": {"number": number}, "run_id": f"ask-{number}"}
        answer = await self._http.post("/v1/runs", json=body)
        assert answer.status_code == 201, answer.text

    async def wake(self, number: int) -> None:
        body = {"type": "Answer", "value": {"number": number}}
        answer = await self._http.post(f"/v1/runs/ask-{number}/events", json=body)
        assert answer.status_code == 200, answer.text

    async def check(self, number: int) -> None:
        answer = await self._http.get(f"/v1/runs/ask-{number}", params={"wait": 60})
        run = answer.json()
        assert run["status"] == "completed", run
        assert run["result"]["value"]["result"] == [number, number], run

    async def idle(self) -> int:
        """How many runs are idle, page by page."""
        found, cursor = 0, None
        while True:
            params = {"idle": "true", "limit": 500} | ({"cursor": cursor} if cursor else {})
            page = (await self._http.get("/v1/runs", params=params)).json()
            found += len(page["items"])
            if (cursor := page["next_cursor"]) is None:
                return found

    async def figure(self, name: str) -> int:
        """One number of `/metrics`."""
        text = (await self._http.get("/metrics")).text
        found = re.search(rf"^{name} (\d+)", text, re.MULTILINE)
        assert found is not None, text
        return int(found[1])

    async def released(self) -> int:
        """How many are still in memory, once nobody leaves any more."""
        async with asyncio.timeout(60):
            while await self.figure("loom_runs_in_memory"):  # noqa: ASYNC110 - another process is asked
                await asyncio.sleep(0.05)
        return await self.figure("loom_runs_in_memory")


async def many(runs: int, folder: Path) -> Outcome:
    """Start, wait for the release, wake and check."""
    code = folder / "ask_many.py"
    code.write_text(_CODE)
    arguments = (f"{code}:Ask", "--store", f"sqlite:///{folder / 'runs.db'}", "--idle-timeout", "0.2s")
    server = ServedProcess(*arguments, cwd=folder, log=folder / "server.log")
    await server.start()
    async with httpx2.AsyncClient(base_url=server.url, timeout=120.0) as http:
        all_of_them = _Many(http, runs)
        await all_of_them.each("start", all_of_them.start)
        in_memory = await all_of_them.released()
        idle = await all_of_them.idle()
        await all_of_them.each("wake", all_of_them.wake)
        await all_of_them.each("check", all_of_them.check)
        resumed = await all_of_them.figure("loom_runs_resumed_total")
    assert await server.stop() == 0, (folder / "server.log").read_text()
    return Outcome(runs, idle, in_memory, resumed, runs, all_of_them.seconds)


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(many(parser.parse_args().runs, Path(folder))))  # noqa: T201


if __name__ == "__main__":
    main()
