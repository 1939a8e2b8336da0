"""The sweep of `temporal_kill.py` on plain temporalio, with nothing of Loom: what its figures are compared with.

`python temporal_kill_control.py --seconds 600 --servers 0.5`. The workflow counts votes while clients query it all the
time. The figures tell how many runs are stuck and how many histories do not replay: they are no failures of Loom.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from temporal_server import OwnServer, own_server
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

VOTES = 12
QUEUE = "control"
STICKY = timedelta(seconds=1)
AGAIN_S = 0.05
PATIENCE_S = 90.0


@workflow.defn(sandboxed=False)
class Tally:
    """Counts votes, several at a time, each by an activity that is named after its number."""

    def __init__(self) -> None:
        self.votes: list[int] = []
        self.taken = self.counted = 0

    @workflow.run
    async def run(self) -> int:
        begins = asyncio.create_task(self._count(0))
        while self.taken < VOTES:
            await workflow.wait_condition(lambda: len(self.votes) > self.taken)
            batch, self.taken = self.votes[self.taken :], len(self.votes)
            await asyncio.gather(*(self._count(vote) for vote in batch))
        await begins
        return self.counted

    async def _count(self, vote: int) -> None:
        limits: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=60), "heartbeat_timeout": STICKY * 2}
        await workflow.execute_activity(f"count-{vote}", **limits)
        self.counted += 1

    @workflow.signal
    def vote(self, number: int) -> None:
        if number not in self.votes:
            self.votes.append(number)

    @workflow.query
    def look(self) -> int:
        return self.counted


@activity.defn(dynamic=True)
async def count(_arguments: Sequence[RawValue]) -> None:
    """Beat while it takes its time, so that a lost one is tried again soon."""
    for _ in range(3):
        activity.heartbeat()
        await asyncio.sleep(0.05)


async def work(target: str) -> None:
    """A worker, until it is killed."""
    while True:
        try:
            client = await Client.connect(target)
            break
        except RuntimeError:
            await asyncio.sleep(AGAIN_S)
    await Worker(
        client,
        task_queue=QUEUE,
        workflows=[Tally],
        activities=[count],
        sticky_queue_schedule_to_start_timeout=STICKY,
    ).run()


class Control:
    """One server, its workers, and clients that see one run after the other to its end."""

    def __init__(self, server: OwnServer, client: Client, chance: random.Random) -> None:
        self._server, self._client, self._chance = server, client, chance
        self.runs: list[str] = []
        self.stuck: list[str] = []
        self.killed = {"worker": 0, "server": 0}

    async def run(self, seconds: float, servers: float, workers: int, clients: int) -> None:
        """Kill for so long, then let the clients come to an end."""
        program = (sys.executable, __file__, "--work", self._server.target)
        processes = [await asyncio.create_subprocess_exec(*program) for _ in range(workers)]
        enough = asyncio.Event()
        going = [asyncio.create_task(self._see_to_runs(f"c{number}", enough)) for number in range(clients)]
        ends_at = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < ends_at:
            await asyncio.sleep(self._chance.uniform(0.3, 4.0))
            if self._chance.random() < servers:
                self._server.stop_hard()
                await asyncio.sleep(self._chance.uniform(0, 1))
                await asyncio.to_thread(self._server.start)
                self.killed["server"] += 1
                continue
            place = self._chance.randrange(workers)
            processes[place].kill()
            await processes[place].wait()
            processes[place] = await asyncio.create_subprocess_exec(*program)
            self.killed["worker"] += 1
        enough.set()
        _, left = await asyncio.wait(going, timeout=PATIENCE_S)
        self.stuck = sorted(task.get_name() for task in left)
        for task in left:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        for process in processes:
            process.kill()
            await process.wait()

    async def _see_to_runs(self, name: str, enough: asyncio.Event) -> None:
        number = 0
        while not enough.is_set():
            number += 1
            run_id = f"{name}-{number}"
            task = asyncio.current_task()
            assert task is not None
            task.set_name(run_id)
            handle = await self._start(run_id)
            self.runs.append(run_id)
            asking = asyncio.create_task(self._ask(handle))
            for vote in range(1, VOTES + 1):
                await asyncio.sleep(self._chance.uniform(0, 0.3))
                await _until_done(partial(handle.signal, Tally.vote, vote))
            await _until_done(handle.result)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _start(self, run_id: str) -> WorkflowHandle[Any, Any]:
        with suppress(WorkflowAlreadyStartedError):  # the answer to an earlier call was lost
            await _until_done(lambda: self._client.start_workflow(Tally.run, id=run_id, task_queue=QUEUE))
        return self._client.get_workflow_handle(run_id)

    async def _ask(self, handle: WorkflowHandle[Any, Any]) -> None:
        while True:
            await _until_done(lambda: handle.query(Tally.look, rpc_timeout=timedelta(seconds=2)))
            await asyncio.sleep(AGAIN_S)

    async def do_not_replay(self) -> Iterable[str]:
        """The runs whose history no worker could go on with."""
        replayer, found = Replayer(workflows=[Tally]), []
        for run_id in self.runs:
            history = await self._client.get_workflow_handle(run_id).fetch_history()
            if (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure is not None:
                found.append(run_id)
        return found


async def _until_done(call: Any) -> Any:
    while True:
        try:
            return await call()
        except RPCError:
            await asyncio.sleep(AGAIN_S)


async def sweep(chosen: argparse.Namespace) -> str:
    """Kill, and tell the figures."""
    with tempfile.TemporaryDirectory() as folder, own_server(database=Path(folder) / "temporal.db") as server:
        client = await Client.connect(server.target)
        control = Control(server, client, random.Random(chosen.seed))
        await control.run(chosen.seconds, chosen.servers, chosen.workers, chosen.clients)
        broken = list(await control.do_not_replay())
        return (
            f"{control.killed['worker']} workers and {control.killed['server']} servers killed; "
            f"{len(control.runs)} runs, {len(control.stuck)} stuck {control.stuck}, "
            f"{len(broken)} histories do not replay {broken}"
        )


def main() -> None:
    """The sweep, or one of its workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--servers", type=float, default=0.1, help="how many of the kills are of the server")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", metavar="TARGET", help="work for such a sweep")
    chosen = parser.parse_args()
    if chosen.work:
        asyncio.run(work(chosen.work))
    else:
        print(asyncio.run(sweep(chosen)))  # noqa: T201


if __name__ == "__main__":
    main()
