"""The engine's own threads: apart from those of bodies, with the caller's context, and only for what is large."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

import loom
from loom.effects.off_loop import OFF_LOOP_BYTES, aside, aside_if_large
from loom.server.app import create_app
from loom.testing import run_virtual

WORD: ContextVar[str] = ContextVar("word", default="")


def name_of_thread(_value: object = None) -> str:
    return threading.current_thread().name


@contextmanager
def all_threads_of_bodies_busy() -> Iterator[None]:
    """As if as many sync steps ran for hours as there are threads for them."""
    loop, go = asyncio.get_running_loop(), threading.Event()
    busy = [loop.run_in_executor(None, go.wait, 60) for _ in range(min(32, (os.cpu_count() or 1) + 4))]
    try:
        yield
    finally:
        go.set()
        del busy


async def test_it_has_the_context_of_its_caller() -> None:
    WORD.set("said")
    assert await aside("convert", WORD.get) == "said"
    assert (await aside("replay", name_of_thread)).startswith("loom-replay")


@pytest.mark.parametrize(
    "value", ["x" * (OFF_LOOP_BYTES + 1), [[]] * 3000, {"a": {"b": ["x" * 40_000, "y" * 40_000]}}], ids=len
)
async def test_large_values_are_converted_in_a_thread(value: object) -> None:
    assert (await aside_if_large(name_of_thread, value)).startswith("loom-convert")


def test_nothing_is_done_in_a_thread_under_a_virtual_clock() -> None:
    async def names() -> list[str]:
        return [await aside("reduce", name_of_thread), await aside_if_large(name_of_thread, "x" * 100_000)]

    assert run_virtual(names()) == [threading.current_thread().name] * 2


async def test_small_values_are_converted_at_once() -> None:
    assert await aside_if_large(name_of_thread, [1, "x" * 1000]) == threading.current_thread().name


async def test_bodies_that_keep_their_threads_hold_up_no_request(tmp_path: Path) -> None:
    flow = {"triggers": {"m": {"type": "manual"}}, "actions": {"A": {"type": "Compose", "inputs": "@triggerBody()"}}}
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(loom.load(flow), name="f")
        await runtime.ready()
        transport = httpx2.ASGITransport(app=create_app(runtime), client=("127.0.0.1", 1))
        with all_threads_of_bodies_busy():
            async with asyncio.timeout(60), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as c:
                body = {"workflow": "f", "run_id": "r", "input": ["x" * 1000] * 100}
                assert (await c.post("/v1/runs?wait=20", json=body)).json()["status"] == "completed"
                assert (await c.get("/v1/runs/r/history?commands=true")).status_code == 200
                assert (await c.post("/v1/definitions/validate", json=flow)).json()["valid"] is True


class Entry(NamedTuple):
    number: int
    rows: list[str]


@pytest.mark.parametrize("large", [Entry(1, ["x"] * OFF_LOOP_BYTES), (Entry(1, ["x" * OFF_LOOP_BYTES]),)])
async def test_what_is_large_is_converted_in_a_thread_also_with_names(large: object) -> None:
    assert await aside_if_large(lambda _: threading.get_ident(), large) != threading.get_ident()
    assert await aside_if_large(lambda _: threading.get_ident(), Entry(1, ["x"])) == threading.get_ident()
