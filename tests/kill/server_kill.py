"""Kills a server under the load of several clients, again and again, and checks what was promised to them.

`python server_kill.py --kills 50` is the long form. Each client repeats a request until it is acknowledged, and never
after that. In the end every run that was acknowledged is there once, and has taken every note exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from served_process import ServedProcess

NOTES = 3
_TARGET = f"{Path(__file__).with_name('server_ledger.py')}:Ledger"


@dataclass
class Report:
    """What came of it."""

    kills: int = 0
    runs: int = 0
    repeated: int = 0
    """Requests that had to be made again, because no answer came or the server was not there."""
    failures: list[str] = field(default_factory=list)


class Client:
    """Starts runs and sends them notes, until it is told to stop; what it has begun it brings to its end."""

    def __init__(self, url: str, name: str, report: Report) -> None:
        self._http = httpx2.AsyncClient(base_url=url, timeout=10.0)
        self._name = name
        self._report = report
        self.acknowledged: list[str] = []

    async def work(self, enough: asyncio.Event) -> None:
        """Make runs, every second one named by an idempotency key alone."""
        number = 0
        while not enough.is_set():
            number += 1
            body: dict[str, Any] = {"workflow": "Ledger", "input": {"notes": NOTES}, "tags": {"client": self._name}}
            if number % 2:
                body["run_id"] = f"{self._name}-{number}"
            key = {"Idempotency-Key": f"{self._name}-{number}"}
            run = await self._until_acknowledged(lambda b=body, k=key: self._http.post("/v1/runs", json=b, headers=k))
            self.acknowledged.append(run["run_id"])
            for note in range(NOTES):
                sent = {"type": "Note", "value": {"number": note}, "event_id": uuid.uuid4().hex}
                path = f"/v1/runs/{run['run_id']}/events"
                await self._until_acknowledged(lambda p=path, s=sent: self._http.post(p, json=s))

    async def _until_acknowledged(self, ask: Callable[[], Awaitable[httpx2.Response]]) -> dict[str, Any]:
        while True:
            try:
                answer = await ask()
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.is_success:
                found: dict[str, Any] = answer.json()
                return found
            if answer is not None and answer.status_code not in (409, 503):
                raise AssertionError(f"{answer.request.url}: {answer.status_code} {answer.text}")
            self._report.repeated += 1
            await asyncio.sleep(0.02)

    async def check(self) -> None:
        """Every run is there once, and has every note once."""
        for run_id in self.acknowledged:
            answer = await self._http.get(f"/v1/runs/{run_id}", params={"wait": 30})
            run = answer.json()
            taken = sorted(run["result"]["value"]["result"]) if run.get("status") == "completed" else run
            if taken != list(range(NOTES)):
                self._report.failures.append(f"{run_id}: {taken}")
        listed: list[str] = []
        cursor = None
        while True:
            params = {"tag": f"client={self._name}", "limit": 500} | ({"cursor": cursor} if cursor else {})
            page = (await self._http.get("/v1/runs", params=params)).json()
            listed += [run["run_id"] for run in page["items"]]
            if (cursor := page["next_cursor"]) is None:
                break
        if sorted(listed) != sorted(self.acknowledged):
            odd = set(listed) ^ set(self.acknowledged)
            self._report.failures.append(f"{self._name}: {len(odd)} runs are there too often or not at all: {odd}")
        self._report.runs += len(listed)
        await self._http.aclose()


async def sweep(kills: int, clients: int, seed: int, folder: Path) -> Report:
    """Kill a server so often, at times that the seed decides."""
    chance, report = random.Random(seed), Report()
    store = f"sqlite:///{folder / 'runs.db'}"
    server = ServedProcess(_TARGET, "--store", store, "--idle-timeout", "0.2s", cwd=folder, log=folder / "server.log")
    await server.start()
    enough = asyncio.Event()
    workers = [Client(server.url, f"client-{number}", report) for number in range(clients)]
    working = [asyncio.create_task(worker.work(enough)) for worker in workers]
    for _ in range(kills):
        done, _ = await asyncio.wait(working, timeout=chance.uniform(0.2, 1.2), return_when="FIRST_EXCEPTION")
        for task in done:
            task.result()
        await server.kill()
        report.kills += 1
        await server.start()
    enough.set()
    await asyncio.gather(*working)
    for worker in workers:
        await worker.check()
    code = await server.stop()
    if code != 0:
        report.failures.append(f"The server has ended with {code}: {(folder / 'server.log').read_text()[-2000:]}")
    return report


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(sweep(chosen.kills, chosen.clients, chosen.seed, Path(folder)))
    print(f"{report.kills} kills, {report.runs} runs acknowledged, {report.repeated} requests repeated")  # noqa: T201
    for failure in report.failures:
        print(failure)  # noqa: T201
    raise SystemExit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
