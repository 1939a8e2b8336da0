"""`GET /metrics`, as a real parser of the format reads it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from server_serving import Asks, Served

import loom
from loom.runtime.durable.metrics import Histogram
from loom.server.exposition import Exposition
from loom.server.metrics import RunCounts
from loom.server.settings import ServerSettings
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryStore

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


async def read(client: httpx2.AsyncClient) -> dict[str, float]:
    """All samples by name and labels, in the form `name{a="b"}`."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples_of(answer.text)


def samples_of(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, key
            found[key] = sample.value
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.001)


async def start(client: httpx2.AsyncClient, topic: str, run_id: str) -> None:
    body = {"workflow": "asks", "input": {"topic": topic}, "run_id": run_id}
    answer = await client.post("/v1/runs?wait=10" if topic in ("now", "fail") else "/v1/runs", json=body)
    assert answer.status_code == 201, answer.text


async def test_runs_are_counted_by_status_and_idle(served: Served, client: httpx2.AsyncClient) -> None:
    await start(client, "now", "a")
    await start(client, "fail", "b")
    await start(client, "tea", "c")
    await served.until_waiting("c")
    found = await read(client)
    by_status = {status: found[f'loom_runs{{status="{status}"}}'] for status in ("running", "completed", "failed")}
    assert by_status == {"running": 1, "completed": 1, "failed": 1}
    assert found["loom_runs_idle"] == 1
    assert found["loom_runs_in_memory"] == 1
    assert found["loom_store_up"] == 1
    assert [value for name, value in found.items() if name.startswith("loom_build_info")] == [1]


async def test_runs_and_steps_are_counted_by_workflow(served: Served, client: httpx2.AsyncClient) -> None:
    before = await read(client)
    # They begin at zero: the first failure is a change for who reads them.
    assert before['loom_runs_failed_total{workflow="asks"}'] == 0
    assert before['loom_step_failures_total{workflow="asks",step="ask"}'] == 0
    assert before['loom_step_seconds_count{workflow="flow",step="waitforevent"}'] == 0
    for run_id, topic in (("a", "now"), ("b", "fail"), ("c", "tea"), ("d", "milk")):
        await start(client, topic, run_id)
    await served.until_waiting("c")
    await served.until_waiting("d")
    await client.post("/v1/runs/d/cancel", json={})
    counted = served.runtime.metrics.workflows["asks"]
    await until(lambda: counted.cancelled == 1)
    served.server.run_counts = RunCounts(served.runtime.store)
    found = await read(client)
    words = ("started", "completed", "failed", "cancelled", "parked")
    assert [found[f'loom_runs_{word}_total{{workflow="asks"}}'] for word in words] == [4, 1, 1, 1, 0]
    assert found['loom_step_seconds_count{workflow="asks",step="ask"}'] == 2
    assert found['loom_step_failures_total{workflow="asks",step="ask"}'] == 1
    assert found['loom_step_retries_total{workflow="asks",step="ask"}'] == 0
    assert found['loom_workflow_runs{workflow="asks",state="waiting"}'] == 1
    assert found['loom_workflow_runs{workflow="asks",state="parked"}'] == 0
    assert found['loom_workflow_runs{workflow="asks",state="stuck"}'] == 0
    assert found['loom_workflow_runs{workflow="flow",state="waiting"}'] == 0


async def test_alerts_of_the_page_name_metrics_that_exist(served: Served, client: httpx2.AsyncClient) -> None:
    page = OPERATIONS.read_text("utf-8")
    [text] = re.findall(r"```yaml\n(groups:.*?)```", page, re.DOTALL)
    [group] = yaml.safe_load(text)["groups"]
    assert "LoomOrdersFail" in [rule["alert"] for rule in group["rules"]]
    await client.get("/v1/runs")
    shown = {name.partition("{")[0] for name in await read(client)}
    named = set(re.findall(r"\bloom_\w+", text)) | set(re.findall(r"`(loom_[a-z_]+)", page))
    histograms = {name.removesuffix("_bucket") for name in shown if name.endswith("_bucket")}
    assert len(named) > 10
    # A store in memory has no size of its own.
    assert named - shown - histograms <= ({"loom_store_bytes"} if await served.runtime.store.size() is None else set())
    labels = {pair for name in await read(client) for pair in re.findall(r'(\w+)="', name)}
    assert set(re.findall(r"(\w+)=~?\"", text)) <= labels
    assert set(re.findall(r"by \((.*?)\)", text)) <= {"le", "workflow", "workflow, step", "le, workflow, step"}


async def test_work_is_counted(served: Served, client: httpx2.AsyncClient) -> None:
    before = await read(client)
    await start(client, "now", "a")
    row = await served.runtime.row("a")
    await until(lambda: served.runtime.metrics.ticks == row.head.ticks)  # others may hear of a commit first
    found = await read(client)
    assert found["loom_ticks_total"] - before["loom_ticks_total"] == row.head.ticks
    assert found["loom_commands_flushed_total"] > before["loom_commands_flushed_total"]
    assert found["loom_commands_pushed_back_total"] == 0
    assert found["loom_stale_results_total"] == 0
    # Operations are the start and the commits of the run; several may share a transaction.
    commits, operations = found["loom_commits_total"], found["loom_commit_batch_size_sum"]
    assert 2 <= commits <= operations
    assert found["loom_commit_seconds_count"] == commits
    assert found['loom_commit_seconds_bucket{le="+Inf"}'] == commits
    assert found["loom_commit_seconds_sum"] > 0


async def test_released_runs_and_their_way_back_are_measured() -> None:
    async with loom.connect("memory://", idle_timeout=0.0) as runtime:
        runtime.register(Asks(), name="asks")
        served = Served(runtime, ServerSettings())
        async with served.client() as client:
            await start(client, "tea", "a")
            await until(lambda: runtime.metrics.released == 1)
            found = await read(client)
            assert (found["loom_runs_in_memory"], found["loom_runs_released_total"]) == (0, 1)
            assert found["loom_run_resume_seconds_count"] == 0
            sent = await client.post("/v1/runs/a/events", json={"type": "Approval", "value": {"by": "me"}})
            assert sent.status_code == 200
            await client.get("/v1/runs/a?wait=10")
            found = await read(client)
    assert found["loom_runs_resumed_total"] == 1
    assert found["loom_run_resume_seconds_count"] == 1
    assert 0 < found["loom_run_resume_seconds_sum"] < 10


async def test_requests_are_counted_by_route_never_by_path(client: httpx2.AsyncClient) -> None:
    for run_id in ("hidden-1", "hidden-2"):
        assert (await client.get(f"/v1/runs/{run_id}")).status_code == 404
    assert (await client.get("/nothing-here")).status_code == 404
    assert (await client.request("INVENTED", "/v1/runs")).status_code == 405
    assert (await client.get("/v1/runs", headers={"Host": "evil.example"})).status_code == 403
    found = await read(client)
    assert found['loom_http_requests_total{method="GET",route="/v1/runs/{run_id}",code="404"}'] == 2
    assert found['loom_http_request_seconds_count{method="GET",route="/v1/runs/{run_id}"}'] == 2
    assert found['loom_http_requests_total{method="GET",route="none",code="404"}'] == 1
    assert found['loom_http_requests_total{method="other",route="none",code="405"}'] == 1
    assert found['loom_http_requests_total{method="GET",route="none",code="403"}'] == 1
    assert not [name for name in found if "hidden" in name or "nothing" in name]


async def test_no_data_of_users_is_in_a_label(served: Served, client: httpx2.AsyncClient) -> None:
    key = await served.key("admin")
    async with served.client(key) as known:
        await start(known, "tea", "run-of-somebody")
        text = (await known.get("/metrics")).text
    for secret in ("run-of-somebody", key, key.split("_")[1], "tea"):
        assert secret not in text


async def test_open_streams_are_counted(served: Served, client: httpx2.AsyncClient) -> None:
    with served.server.open_streams.opened("somebody"):
        assert (await read(client))["loom_open_streams"] == 1
    assert (await read(client))["loom_open_streams"] == 0


async def test_only_whoever_may_read_all_workflows_gets_figures(served: Served) -> None:
    reader, starter = await served.key("read"), await served.key("start")
    limited = await served.key("read", workflows=("asks",))
    for key, status in ((reader, 200), (starter, 403), (limited, 403), (None, 401)):
        async with served.client(key) as client:
            assert (await client.get("/metrics")).status_code == status


async def test_figures_of_the_process_are_there_though_the_store_fails(
    client: httpx2.AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> dict[str, int]:
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(served.runtime.store, "counts", fail)
    found = await read(client)
    assert found["loom_store_up"] == 0
    assert "loom_ticks_total" in found
    assert not [name for name in found if name.startswith("loom_runs{")]


async def test_runs_are_not_counted_for_every_scrape() -> None:
    class Counting(MemoryStore):
        asked = 0

        async def counts(self) -> dict[str, int]:
            self.asked += 1
            return await super().counts()

    store = Counting()
    await store.open()
    counts = RunCounts(store)
    first = await counts.get()
    assert await counts.get() is first
    assert store.asked == 1
    await store.close()


def test_text_is_escaped_and_numbers_are_exact() -> None:
    page = Exposition()
    page.gauge("a", "About.", 2**60 + 1, (("name", 'a "b"\\\n'),))
    spread = Histogram((0.5, 1.0))
    for value in (0.5, 0.50001, 7):
        spread.observe(value)
    page.histogram("b_seconds", "About.", spread)
    assert f'{{name="a \\"b\\"\\\\\\n"}} {2**60 + 1}' in page.text()
    found = samples_of(page.text())
    assert [found[f'b_seconds_bucket{{le="{bound}"}}'] for bound in ("0.5", "1.0", "+Inf")] == [1, 2, 3]
    assert found["b_seconds_sum"] == pytest.approx(8.00001)
