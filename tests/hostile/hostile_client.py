"""Does cases to a server over HTTP, as a client that means harm, and looks at what became of them."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import httpx2
from hostile_flows import ANSWERS, Case
from hostile_server import HostileServer

PATIENCE_S = 90.0
"""Within which a run ends, or says what it waits for."""
LONG_S = 15.0
"""After which a run that may be long is cancelled."""
RESTING = ("waiter", "stuck", "timer", "child", "backoff")
"""What a run may wait for, by `why`, before it is cancelled."""
ENDED = ("completed", "failed", "cancelled")


@dataclass
class Outcome:
    """What became of a case."""

    number: int | str
    case: Case
    run_id: str
    began: float
    ended: float = 0.0
    end: str = ""
    failure: str = ""
    detail: str = ""
    """What a refusal or a failed run said."""


class Broken(Exception):
    """The server did what it must never do."""


class Attack:
    """A client, with what it has done to one server."""

    def __init__(self, server: HostileServer, failures: list[str]) -> None:
        self._server, self._failures = server, failures
        self._http = httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S)
        self._outcomes: list[Outcome] = []
        self._looked = 0

    async def begin(self) -> None:
        """Start the gauge."""
        await self._ask("POST", "/v1/runs", json={"workflow": "Gauge", "run_id": "gauge"})

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    def between(self, began: float, ended: float) -> list[Outcome]:
        """The cases that were under way at a time."""
        return [each for each in self._outcomes if each.began <= ended and (each.ended or ended) >= began]

    async def make(self, number: int | str, case: Case) -> Outcome:
        """Do a case, and see it to its end."""
        outcome = Outcome(number, case, f"case-{number}", time.monotonic())
        self._outcomes.append(outcome)
        try:
            outcome.end = await self._made(outcome, case)
        except (Broken, httpx2.TransportError, TimeoutError, ValueError) as error:
            outcome.end = "broken"
            outcome.failure = f"{type(error).__name__}: {error}"
        if not self._server.is_alive():
            outcome.failure = f"The server has ended with {self._server.code}: {self._server.log_tail()}"
            await self._server.start()
        outcome.ended = time.monotonic()
        return outcome

    async def _made(self, outcome: Outcome, case: Case) -> str:
        if case.document is not None:
            put = await self._ask("PUT", f"/v1/definitions/{outcome.run_id}", content=self._bytes(case.document))
            if not put.is_success:
                outcome.detail = put.text[:1000]
                return "refused"
        if case.invoke:
            path = f"/v1/definitions/{outcome.run_id}/invoke"
            invoked = await self._ask("POST", path, content=self._bytes(case.input), invoked=True)
            outcome.detail = invoked.text[:1000]
            listed = await self._ask("GET", "/v1/runs", params={"workflow": outcome.run_id})
            if not listed.json()["items"]:
                return "refused"
            outcome.run_id = listed.json()["items"][0]["run_id"]
        else:
            started = await self._start(outcome, case)
            if not started.is_success:
                outcome.detail = started.text[:1000]
                return "refused"
            outcome.run_id = started.json()["run_id"]
        return await self._seen_to_its_end(outcome, case)

    async def _start(self, outcome: Outcome, case: Case) -> httpx2.Response:
        if case.raw is not None:
            return await self._ask("POST", "/v1/runs", content=case.raw.encode("latin-1"))
        workflow = case.workflow or outcome.run_id
        body = {"workflow": workflow, "run_id": outcome.run_id, "input": case.input}
        return await self._ask("POST", "/v1/runs", content=self._bytes(body))

    def _bytes(self, value: Any) -> bytes:
        text = value if isinstance(value, str) else json.dumps(value)
        return text.replace(ANSWERS, self._server.answers).encode("utf-8", "surrogatepass")

    async def _ask(self, method: str, path: str, *, invoked: bool = False, **more: Any) -> httpx2.Response:
        """Ask once; again while the server has no room. Anything above 499 is an offence, but for a flow's answer."""
        ends_at = time.monotonic() + PATIENCE_S
        headers = {"Content-Type": "application/json"} if "content" in more else {}
        while True:
            try:
                answer = await self._http.request(method, path, headers=headers, **more)
            except httpx2.RemoteProtocolError as error:
                if invoked:
                    raise Broken(f"the answer of a flow is no HTTP: {error}") from error
                raise
            if answer.status_code == 503 and time.monotonic() < ends_at:
                await asyncio.sleep(0.3)
                continue
            if answer.status_code >= 500 and not (invoked and b"internal" not in answer.content):
                raise Broken(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")
            if answer.status_code >= 400 and not invoked and not answer.json().get("detail"):
                raise Broken(f"{method} {path}: {answer.status_code} without a reason: {answer.text[:500]}")
            return answer

    async def _seen_to_its_end(self, outcome: Outcome, case: Case) -> str:
        path = f"/v1/runs/{outcome.run_id}"
        ends_at = time.monotonic() + PATIENCE_S
        sent = case.event is None
        while True:
            run = (await self._ask("GET", path, params={"wait": "0.5" if case.may_wait else "3"})).json()
            if run["status"] in ENDED:
                return await self._ended(outcome, run)
            if run["parked"]:
                await self._look_at(outcome)
                await self._cancel(path)
                return "parked"
            if run["idle_since"] and not sent:
                sent = True
                event = {"type": "FlowEvent", "value": {"name": "Go", "data": case.event}}
                await self._ask("POST", f"{path}/events", content=self._bytes(event))
            elif case.may_wait and (kind := await self._why(path)) in RESTING:
                await self._look_at(outcome)
                await self._cancel(path)
                return f"waits ({kind})"
            elif case.may_be_long and time.monotonic() > ends_at - PATIENCE_S + LONG_S:
                await self._cancel(path)
                return "stopped at work"
            elif time.monotonic() > ends_at:
                why = await self._ask("GET", f"{path}/why")
                raise Broken(f"no end after {PATIENCE_S:.0f} s: {why.text[:1500]}")

    async def _why(self, path: str) -> str:
        why = (await self._ask("GET", f"{path}/why")).json()
        if not why["sentence"]:
            raise Broken(f"{path} does not say what it waits for: {why}")
        return str(why["kind"])

    async def _cancel(self, path: str) -> None:
        """Cancel what waits, or is parked; it must end by it."""
        await self._ask("POST", f"{path}/cancel", json={})
        run = (await self._ask("GET", path, params={"wait": "20"})).json()
        if run["status"] not in ENDED:
            raise Broken(f"{path} was cancelled and is {run['status']}")

    async def _ended(self, outcome: Outcome, run: dict[str, Any]) -> str:
        if (
            run["status"] == "failed"
            and not (run["error"] or {}).get("message")
            and not (run["error"] or {}).get("code")
        ):
            raise Broken(f"failed without a reason: {run['error']}")
        outcome.detail = json.dumps(run["error"])[:1000]
        await self._look_at(outcome)
        return str(run["status"])

    async def _look_at(self, outcome: Outcome) -> None:
        """Look at a run in one of many ways, each in its turn."""
        self._looked += 1
        ways = ("", "/why", "/history", "/history?commands=true", "/state", "/replay", "/actions", "/loops")
        way = ways[self._looked % len(ways)]
        if way in ("/actions", "/loops") and outcome.case.document is None:
            way = "/state"
        await self._ask("GET", f"/v1/runs/{outcome.run_id}{way}")

    async def look(self) -> None:
        """Read all lists to their end."""
        try:
            for params in ({}, {"include": "result"}):
                await self._pages("/v1/runs", {**params, "limit": "500"})
            for path in ("/handlers", "/v1/definitions", "/metrics", "/v1/health/ready", "/v1/audit"):
                await self._ask("GET", path)
        except (Broken, httpx2.TransportError) as error:
            self._failures.append(f"A list does not answer: {type(error).__name__}: {error}")

    async def _pages(self, path: str, params: dict[str, str]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        while True:
            page = (await self._ask("GET", path, params=params)).json()
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            params = {**params, "cursor": page["next_cursor"]}

    async def statuses(self) -> dict[str, str]:
        """The status of every run that is listed. All that were acknowledged must be."""
        found = {run["run_id"]: run["status"] for run in await self._pages("/v1/runs", {"limit": "500"})}
        for outcome in self._outcomes:
            if outcome.end not in ("refused", "broken") and outcome.run_id not in found:
                self._failures.append(f"{outcome.run_id} was acknowledged and is not listed")
        return found
