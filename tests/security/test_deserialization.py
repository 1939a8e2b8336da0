"""Deserialization: JSON only, types through the registry; what is stored is not trusted, and nothing is imported."""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx2
import pytest
from security_rig import is_parked, until
from server_serving import Served, serving

CANARY = "loom_canary_module"
NAMES = [f"{CANARY}.Evil", f"{CANARY}:Evil", CANARY, "os.system", "builtins.eval", "subprocess.Popen", "posix.system"]
START = {"workflow": "asks", "run_id": "r", "input": {"topic": "tea"}}


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a file behind when somebody imports it, and the place of that file."""
    mark = tmp_path / "imported"
    code = (
        "from pathlib import Path",
        f"Path({str(mark)!r}).touch()",
        "from loom import Event",
        "class Evil(Event): ...",
    )
    (tmp_path / f"{CANARY}.py").write_text("\n".join(code))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark  # type: ignore[misc]
    assert not mark.exists(), "something was imported by its name"
    assert CANARY not in sys.modules


def tagged(name: str) -> dict[str, Any]:
    """A value as a serializer would mark it, of a type of the attacker's choice."""
    return {"__is_pydantic": True, "value": {"x": 1}, "qualified_name": name}


@pytest.mark.parametrize("name", NAMES)
async def test_a_type_name_from_a_client_imports_nothing(
    name: str, canary: Path, served: Served, client: httpx2.AsyncClient
) -> None:
    await client.post("/v1/runs", json=START)
    await served.until_waiting("r")
    envelope = {"type": name, "qualified_name": name, "value": {"by": "x"}, "data": {"by": "x"}}
    for path, body in (
        ("/v1/runs/r/events", {"type": name, "value": tagged(name)}),
        ("/events/r", {"event": envelope}),
        ("/events/r", {"event": json.dumps(envelope)}),
        ("/events/r", {"event": {"qualified_name": name, "data": tagged(name)}}),
        ("/v1/runs/r/events", {"type": "Approval", "value": {"by": tagged(name)}}),
        ("/workflows/asks/run-nowait", {"start_event": envelope}),
        ("/workflows/asks/run-nowait", {"start_event": {"topic": "x"}, "context": {"state": tagged(name)}}),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 400, (path, body, answer.text)
    # As plain data it is plain data: kept, shown, and nothing more.
    flow = await client.post("/v1/runs", json={"workflow": "flow", "run_id": "f", "input": {"pin": tagged(name)}})
    assert flow.status_code == 201
    sent = await client.post("/v1/runs/f/events", json={"type": "Go", "value": tagged(name)})
    assert sent.status_code == 200
    run = (await client.get("/v1/runs/f?wait=10")).json()
    assert run["result"]["outputs"]["answer"] == tagged(name)
    assert run["status"] == "completed"


def _rewrite(path: Path, change: Any) -> None:
    """Change the chunks of a run in the file, and make their checksums right again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, data in connection.execute("SELECT id, data FROM chunks").fetchall():
            changed = change(data)
            connection.execute(
                "UPDATE chunks SET data = ?, checksum = ? WHERE id = ?", (changed, crc32(changed), number)
            )


ROWS = {
    "pickled": lambda mark, _data: pickle.dumps(Bomb(mark)),
    "nested": lambda _mark, _data: b"[" * 200_000,
    "renamed": lambda _mark, data: data.replace(b"Approval", b"loom_canary_module.Evil"),
    "another type": lambda _mark, data: data.replace(b"Topic", b"loom_canary_module.Evil"),
    "empty": lambda _mark, _data: b"",
}


@pytest.mark.parametrize("attack", sorted(ROWS))
async def test_a_row_is_data_whoever_has_written_it(attack: str, canary: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with serving(url) as served, served.client() as client:
        await client.post("/v1/runs", json=START)
        await served.until_waiting("r")
    _rewrite(tmp_path / "runs.db", lambda data: ROWS[attack](canary, data))
    async with serving(url) as served, served.client() as client:
        await client.post("/v1/runs/r/events", json={"type": "Approval", "value": {"by": "x"}})
        await until(served.runtime, "r", lambda info: is_parked(info) or info.status != "running")
        run = await client.get("/v1/runs/r")
        assert run.status_code == 200
        assert (await client.get("/v1/runs")).status_code == 200
        for path in (
            "/v1/runs/r/history",
            "/v1/runs/r/state",
            "/v1/runs/r/stream",
            "/v1/runs/r/loops",
            "/handlers/r",
            "/results/r",
        ):
            if path.endswith("stream") and run.json()["status"] == "running":
                continue
            answer = await client.get(path)
            assert answer.status_code in (200, 202, 204, 400, 422), (path, answer.status_code, answer.text)
        # Another run is none the worse for it.
        other = await client.post("/v1/runs?wait=10", json={"workflow": "asks", "input": {"topic": "now"}})
        assert other.json()["status"] == "completed"


async def test_an_imported_run_imports_nothing(canary: Path, served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json=START)
    await served.until_waiting("r")
    packed = await served.runtime.export_run("r")
    await client.post("/v1/runs/r/cancel")
    await client.get("/v1/runs/r?wait=10")
    await client.delete("/v1/runs/r")
    changed = packed.replace(b"server_serving", CANARY.encode())
    assert changed != packed
    await served.runtime.import_run(changed)
    for name in (f"{CANARY}.Approval", f"{CANARY}.Evil", "Approval"):
        await client.post("/v1/runs/r/events", json={"type": name, "value": {"by": "x"}})
        await client.get("/v1/runs/r?wait=0.2")
    assert (await client.get("/v1/runs/r/history")).status_code == 200
