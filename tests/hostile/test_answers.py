"""What strangers answer and send: bombs of gzip, of structure and of parts cost neither memory nor the event loop."""

from __future__ import annotations

import json
from pathlib import Path

from confined import confined

_ANSWERS = """
import asyncio, gzip, json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import loom

LISTS = b"[" + b"[]," * 12_999_999 + b"[]]"
BODIES = {
    "gzip": (gzip.compress(LISTS, 9), "application/json", {"Content-Encoding": "gzip"}),
    "lists": (LISTS[: 9_000_000] + b"[]]", "application/json", {}),
    "objects": (b"[" + b'{"a":1},' * 1_000_000 + b"0]", "application/json", {}),
    "parts": (b"--b\\r\\n\\r\\n\\r\\n" * 900_000 + b"--b--", "multipart/mixed; boundary=b", {}),
    "form": (b"a=1&" * 3_000_000, "application/x-www-form-urlencoded", {}),
    "control": (b"\\x01" * 15_000_000, "text/plain", {}),
    "commas": (b'"' + b"," * 9_000_000 + b'"', "application/json", {}),
    "tangled": (b"x", 'text/plain; a="' + ";" * 60_000, {}),
    "behind": (gzip.compress(b"{}") + b"x" * 15_000_000, "application/json", {"Content-Encoding": "gzip"}),
    "escapes": (b"a=" + b"%41" * 4_000_000, "application/x-www-form-urlencoded", {}),
}
del LISTS


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body, kind, headers = BODIES[self.path[1:]]
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_): pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
place = f"127.0.0.1:{server.server_port}"


async def main():
    found = {}
    async with loom.connect("sqlite:///runs.db", http_allow=[place]) as runtime:
        flow = loom.load({"actions": {"ask": {"type": "http", "inputs": {"uri": "@triggerBody()"}}}})
        runtime.register(flow, name="asks")
        for name in BODIES:
            handle = await runtime.start("asks", f"http://{place}/{name}", run_id=name)
            try:
                ended = await asyncio.wait_for(handle, 60)
                found[name] = [ended.status, ended.actions["ask"].code]
            except Exception as error:
                found[name] = [type(error).__name__, str(error)]
            info = await runtime.get(name)
            assert info.parked is None, info.parked
    print(json.dumps(found))


asyncio.run(main())
"""


def test_answers_that_grow_fail_their_action(tmp_path: Path) -> None:
    ended = confined(_ANSWERS, cwd=tmp_path, memory_mib=1500, cpu_s=30)
    found = json.loads(ended.check())
    for name in ("commas", "tangled", "behind", "escapes"):  # much, but not many values
        assert found.pop(name) == ["Succeeded", "OK"], name
    for name, outcome in found.items():
        assert "AnswerRefused" in str(outcome), (name, outcome)
    # About 410 MiB, and more on a busy machine, where one answer is decoded before another one's memory is given back.
    assert ended.peak_mib < 700, f"{ended.peak_mib} MiB"


_FIRST = """
import asyncio, importlib.abc, sys, threading
import loom

class Watched(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("httpx2", "loom.effects.actions.http"):
            print(name, threading.current_thread() is threading.main_thread())

async def main():
    async with loom.connect("memory://") as runtime:
        runtime.register(loom.load({"ask": {"type": "http", "inputs": {"uri": "http://127.0.0.1:1/"}}}), name="asks")
        sys.meta_path.insert(0, Watched())
        for _ in range(2):
            print((await (await runtime.start("asks"))).actions["ask"].code)

asyncio.run(main())
"""


def test_the_first_request_imports_the_client_in_a_thread(tmp_path: Path) -> None:
    told = confined(_FIRST, cwd=tmp_path).check().splitlines()
    assert sorted(told[:-2]) == ["httpx2 False", "loom.effects.actions.http False"]
    assert len(set(told[-2:])) == 1
