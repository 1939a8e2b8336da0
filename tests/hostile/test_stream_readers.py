"""Readers of a large stream that take nothing: what they cost is bounded, however many they are."""

from __future__ import annotations

import json
from pathlib import Path

from confined import confined

_READERS = '''
import asyncio, json, resource, time
import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.server import create_app

NOTES = 25_000


class Note(Event):
    text: str


class Writes(Workflow):
    @step
    async def write(self, ctx: Context, ev: StartEvent) -> StopEvent:
        note = Note(text="x" * 200)
        for _ in range(NOTES):
            ctx.write_event_to_stream(note)
        return StopEvent()


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def main():
    async with loom.connect("sqlite:///runs.db") as runtime:
        runtime.register(Writes(), name="writes")
        await (await runtime.start("writes", run_id="r"))
        before = peak()
        app, stuck, longest = create_app(runtime), 0, 0.0

        async def read():
            """A reader that takes the first of the stream, and then nothing."""
            async def receive():
                await asyncio.Event().wait()

            async def send(message):
                nonlocal stuck
                if len(message.get("body", b"")) > 1000:
                    stuck += 1
                    await asyncio.Event().wait()

            await app({
                "type": "http", "method": "GET", "path": "/v1/runs/r/stream", "raw_path": b"",
                "root_path": "", "scheme": "http", "query_string": b"", "http_version": "1.1",
                "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            }, receive, send)

        readers = [asyncio.create_task(read()) for _ in range(20)]
        while stuck < len(readers):
            assert not any(reader.done() for reader in readers), [r for r in readers if r.done()]
            began = time.process_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.process_time() - began)
        print(json.dumps({"before": before, "after": peak(), "longest": longest}))
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


asyncio.run(main())
'''


def test_silent_readers_share_what_they_wait_with(tmp_path: Path) -> None:
    found = json.loads(confined(_READERS, cwd=tmp_path, memory_mib=1500).check())
    assert found["after"] - found["before"] < 60, found
    # Of a core's time, so that a slow machine does not matter: with one chunk for all it was ten times as much.
    assert found["longest"] < 2, found
