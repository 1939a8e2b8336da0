"""What each GET route answers on the fixed store, and how refusals look."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from surface_golden import Compare, without_chance, without_keys
from surface_script import AFTER, RUNS, client_of, process

from loom.cli import main
from loom.testing import run_virtual

FLOWS = ("loop-1", "loop-2", "failed-flow-1", "weighed-1", "stored-1")
NDJSON = "Accept: application/x-ndjson"

SERVER = (
    "GET /v1/health/live",
    "GET /v1/health/ready",
    "GET /health",
    "GET /v1/audit",
    "GET /v1/audit?limit=2",
    "GET /v1/session",
)
LISTS = (
    "GET /v1/runs",
    "GET /v1/runs?limit=3",
    "GET /v1/runs?include=result&status=completed",
    "GET /v1/runs?status=failed&status=cancelled&order=created_at",
    "GET /v1/runs?workflow=asks",
    "GET /v1/runs?waiting_for=Approval",
    "GET /v1/runs?tag=team%3Dblue",
    "GET /v1/runs?idle=true",
    "GET /v1/runs?idle_longer_than=7200",
    "GET /v1/runs?parked=true",
    "GET /v1/runs?stuck=true",
    "GET /v1/runs?paused=true",
    "GET /v1/runs?parent_id=parent-1",
    "GET /v1/runs?created_after=2023-11-14T22:13:40Z&created_before=2023-11-15T00:00:00Z",
    "GET /v1/runs?workflow=nobody",
    "GET /v1/runs?id_prefix=failed&order=-updated_at",
    "GET /v1/runs?asleep=true",
    "GET /v1/runs?waiting=true&order=updated_at",
    "GET /v1/counts",
    "GET /v1/workers",
    "GET /v1/session",
    "GET /v1/counts?workflow=asks",
)
RUN = (
    *(f"GET /v1/runs/{run_id}" for run_id in RUNS),
    "GET /v1/runs/parent-2:2",
    "GET /v1/runs/asks-1?wait=5",
    "HEAD /v1/runs/report-1",
)
DETAILS = (
    *(f"GET /v1/runs/{run_id}/why" for run_id in ("report-1", "broken-1", "slow-1", "asks-1", "nap-1", "parked-1")),
    *(f"GET /v1/runs/{run_id}/state" for run_id in ("report-1", "broken-1", "slow-1", "asks-1", "early-1", "loop-2")),
    "GET /v1/runs/report-1/state?tick=1",
    *(f"GET /v1/runs/{run_id}/loops" for run_id in FLOWS),
    *(f"GET /v1/runs/{run_id}/actions" for run_id in FLOWS),
    *(f"GET /v1/runs/{run_id}/response" for run_id in ("report-1", *FLOWS)),
    *(f"GET /v1/runs/{run_id}/graph" for run_id in ("report-1", "broken-1", "asks-1", "loop-1", "failed-flow-1")),
    "GET /v1/runs/report-1/graph?tick=1",
    *(f"GET /v1/runs/{run_id}/timeline" for run_id in ("report-1", "broken-1", "slow-1", "loop-1", "failed-flow-1")),
    "GET /v1/runs/loop-1/iterations?path=rounds",
    "GET /v1/runs/loop-1/iterations?path=each",
    *(f"GET /v1/runs/{run_id}/replay" for run_id in ("report-1", "asks-1", "loop-2")),
)
HISTORIES = (
    *(f"GET /v1/runs/{run_id}/history" for run_id in ("report-1", "broken-1", "paused-1", "loop-1", "failed-flow-1")),
    "GET /v1/runs/report-1/history?limit=2",
)
STREAMS = (
    "GET /v1/runs/report-1/stream",
    "GET /v1/runs/report-1/stream?after=3",
    f"GET /v1/runs/report-1/stream {NDJSON}",
    "GET /v1/runs/report-1/stream Last-Event-ID: 3",
    f"GET /v1/runs/broken-1/stream {NDJSON}",
    f"GET /v1/runs/loop-1/stream {NDJSON}",
    f"GET /v1/runs/failed-flow-1/stream {NDJSON}",
)
DEFINITIONS = (
    "GET /v1/definitions",
    "GET /v1/definitions?limit=2",
    *(f"GET /v1/definitions/{name}" for name in ("stored", "loop", "failing", "report")),
    "GET /v1/definitions/stored?version=1",
    "GET /v1/definitions/stored/status",
    "GET /v1/definitions/report/status",
    "GET /v1/definitions/stored/triggers/nothing/history",
    "GET /v1/definitions/stored/invoke",
    "GET /v1/definitions/stored/invoke/more",
    "GET /v1/definitions/stored/versions",
    *(f"GET /v1/definitions/{name}/graph" for name in ("stored", "loop", "report")),
    *(f"GET /v1/definitions/{name}/schema" for name in ("stored", "failing", "report")),
    "GET /v1/schedules",
    "GET /v1/schedules/nightly",
    "GET /v1/schedules/rarely",
)
COMPATIBLE = (
    "GET /workflows",
    *(
        f"GET /workflows/{name}/{what}"
        for name in ("report", "asks")
        for what in ("schema", "events", "representation")
    ),
    "GET /workflows/loop/representation",
    "GET /handlers",
    "GET /handlers?status=running&workflow_name=asks",
    "GET /handlers?limit=2",
    *(f"GET /handlers/{name}" for name in ("handler-1", "asks-1", "broken-1", "cancelled-1", "loop-1")),
    *(f"GET /results/{name}" for name in ("handler-1", "asks-1", "broken-1", "cancelled-1", "loop-1")),
    "GET /events/handler-1",
    "GET /events/handler-1?after_sequence=-1",
    "GET /events/handler-1?sse=false&after_sequence=-1",
    "GET /events/handler-1?sse=false&include_internal=true&after_sequence=-1",
    "GET /events/handler-1?sse=false&after_sequence=2",
)
REFUSALS = (
    "GET /v1/runs/nobody",
    "GET /v1/runs/nobody/history",
    "GET /v1/runs/not%20an%20id",
    "GET /v1/runs?status=sleeping",
    "GET /v1/runs?limit=0",
    "GET /v1/runs?color=red",
    "GET /v1/runs?tag=blue",
    "GET /v1/runs?cursor=nonsense",
    "GET /v1/runs/report-1/state?tick=99",
    "GET /v1/runs/report-1/stream?after=x",
    "GET /v1/runs/report-1/loops",
    "GET /v1/definitions/nobody",
    "GET /v1/definitions/stored?version=9",
    "GET /v1/schedules/nobody",
    "GET /v1/callbacks/nonsense?sig=nonsense",
    "GET /v1/nothing",
    "GET /nothing",
    "DELETE /v1/runs",
    "PATCH /v1/runs/report-1",
    "POST /workflows",
    "GET /handlers/nobody",
    "GET /results/nobody",
    "GET /events/nobody",
    "GET /workflows/nobody/schema",
    "GET /handlers?limit=x",
    "GET /v1/runs Host: example.com",
    "GET /v1/runs Origin: https://example.com",
    "POST /v1/runs",
    "POST /v1/runs Content-Type: text/plain",
    "POST /v1/runs/report-1/cancel",
    "POST /v1/runs/report-1/events",
    "POST /v1/runs/asks-1/retry",
)
GROUPS = {
    "server": SERVER,
    "lists": LISTS,
    "runs": RUN,
    "details": DETAILS,
    "histories": HISTORIES,
    "streams": STREAMS,
    "definitions": DEFINITIONS,
    "compatible": COMPATIBLE,
    "refusals": REFUSALS,
}

USUAL = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "content-type": "application/json",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-request-id": "surface",
}
"""Headers that are shown only where they are not these. The length of a body is never shown: masks change it."""

_DOCUMENTS = ("application/json", "application/problem+json")


def _shown(request: str, answer: Any) -> str:
    """Write down a request and its answer: its status, headers that are not the usual ones, and its body."""
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    if "allow" in headers:
        headers["allow"] = ", ".join(sorted(headers["allow"].split(", ")))  # its order follows the order of hashes
    lines = [request, str(answer.status_code)]
    lines += [f"{name}: {value}" for name, value in sorted(headers.items()) if USUAL.get(name) != value]
    lines += [f"without {name}" for name in sorted(USUAL.keys() - headers.keys())]
    text = answer.text
    if headers.get("content-type", "").partition(";")[0] in _DOCUMENTS and text:
        value = json.loads(text)
        if _compact(value) != text:
            lines.append("(JSON with spaces)")
        text = json.dumps(value, indent=1, ensure_ascii=False)
    return "\n".join([*lines, text.rstrip("\n"), ""])


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def _ask(client: Any, request: str) -> Any:
    method, path, header = re.fullmatch(r"(\S+) (\S+)(?: (.+))?", request).groups()  # type: ignore[union-attr]
    headers = dict([header.split(": ", 1)]) if header else {}
    return await client.request(method, path, headers=headers)


def answers(path: Path, requests: Sequence[str], **headers: str) -> str:
    """Let a process recover the runs of a store, and ask its server one request after the other."""

    async def ask_all() -> str:
        async with process(path) as runtime, client_of(runtime, **headers) as client:
            await asyncio.sleep(2)
            return "\n".join([_shown(request, await _ask(client, request)) for request in requests])

    return without_chance(run_virtual(ask_all(), start=AFTER))


@pytest.mark.parametrize("group", GROUPS)
def test_routes_answer_what_they_did(group: str, place: Path, golden: Compare) -> None:
    golden(f"http/{group}.txt", answers(place / "loom.db", GROUPS[group]))


def test_with_keys_a_caller_gets_what_the_key_is_good_for(place: Path, golden: Compare) -> None:
    def key(*options: str) -> str:
        made = CliRunner().invoke(main, ["keys", "create", *options, "--quiet"], catch_exceptions=False)
        assert made.exit_code == 0, made.output
        return made.stdout.strip()

    reader = key("reader", "--scope", "read", "--workflow", "asks")
    admin = key("ops", "--scope", "admin")
    wanted = [
        "GET /v1/runs?limit=2",
        "GET /v1/runs/asks-1",
        "GET /v1/runs/report-1",
        "GET /v1/definitions",
        "GET /handlers?limit=2",
        "GET /v1/schedules",
        "GET /v1/audit?limit=1",
        "POST /v1/runs/asks-1/cancel",
        "GET /v1/health/live",
        "GET /handlers",
    ]
    by_key = {
        "no key": {},
        "a wrong key": {"Authorization": f"Bearer {reader[:-1]}"},
        "a key for reading runs of asks": {"Authorization": f"Bearer {reader}"},
        "a key for everything": {"X-API-Key": admin},
    }
    pages = [f"# With {who}\n\n{answers(place / 'loom.db', wanted, **has)}" for who, has in by_key.items()]
    golden("http/keys.txt", without_keys("\n".join(pages)))


def test_every_get_route_is_asked() -> None:
    described = json.loads((Path(__file__).parent / "golden" / "openapi.json").read_text("utf-8"))["paths"]
    asked = {request.split()[1].partition("?")[0] for requests in GROUPS.values() for request in requests}
    missing = []
    for path, operations in described.items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        if "get" in operations and not any(pattern.fullmatch(each) for each in asked):
            missing.append(path)
    # The metrics are another test's, the description has a golden file of its own, a feed does not end, and an export
    # is the store's format, which golden histories hold.
    assert missing == ["/metrics", "/openapi.json", "/v1/changes", "/v1/runs/{run_id}/export"]
