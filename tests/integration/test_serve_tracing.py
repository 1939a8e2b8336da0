"""`loom serve` with a provider of spans, as the guide shows it: runs are linked to the spans of HTTP callers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
from opentelemetry.sdk.trace import TracerProvider
from served_process import ServedProcess

from loom.client import Client

ROOT = Path(__file__).resolve().parents[2]
SHOP = """
from loom import Context, Event, StartEvent, StopEvent, Workflow, step


class Approval(Event):
    by: str


class Order(Workflow):
    @step
    async def place(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Approval, timeout=None)).by)
"""
RAW = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def guide() -> str:
    """The module that the guide shows, with spans going to a file."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    found = re.search(r"```python\n(# spans\.py\n.*?)```", page, re.DOTALL)
    assert found is not None
    module = found[1].replace("OTLPSpanExporter()", "_to_file()").replace("BatchSpanProcessor", "SimpleSpanProcessor")
    module = re.sub(r"^from opentelemetry\.exporter.*\n", "", module, flags=re.MULTILINE)
    module += "\nprovider.force_flush()\n"
    head = """
from opentelemetry.sdk.trace.export import ConsoleSpanExporter


def _to_file():
    return ConsoleSpanExporter(out=open("spans.jsonl", "w", 1), formatter=lambda span: span.to_json(None) + "\\n")


"""
    return head + module


def spans(path: Path) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in map(json.loads, path.read_text("utf-8").splitlines())}


def links(span: dict[str, Any]) -> list[tuple[str, str]]:
    return [(link["context"]["trace_id"][2:], link["context"]["span_id"][2:]) for link in span["links"]]


async def test_runs_are_linked_to_the_spans_of_callers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    (tmp_path / "spans.py").write_text(guide(), "utf-8")
    server = ServedProcess(
        "order=shop.py:Order", "--handlers", "spans.py", "--store", "sqlite:///runs.db",
        cwd=tmp_path, log=tmp_path / "log",
    )  # fmt: skip
    await server.start()
    tracer = TracerProvider().get_tracer("caller")
    try:
        async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as raw:
            body = {"workflow": "order", "run_id": "order-1"}
            started = await raw.post("/v1/runs", json=body, headers={"traceparent": RAW})
            assert started.status_code == 201, started.text
        async with Client(server.url) as client:
            with tracer.start_as_current_span("answer") as span:
                await client.send_event("order-1", "Approval", {"by": "Ada"})
            assert (await client.wait("order-1", timeout=60)).result["value"] == {"result": "Ada"}
    finally:
        await server.stop()
    found = spans(tmp_path / "spans.jsonl")
    assert links(found["order"]) == [tuple(RAW.split("-")[1:3])]
    context = span.get_span_context()
    assert links(found["order receives Approval"]) == [(f"{context.trace_id:032x}", f"{context.span_id:016x}")]
    assert found["order.place"]["context"]["trace_id"] == found["order"]["context"]["trace_id"]
