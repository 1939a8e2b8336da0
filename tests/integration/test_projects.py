"""Projects of Logic Apps are served by a real process, invoked, killed in mid-run, and recovered without settings."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from project_shapes import HANDLERS, Shape, compose, local, shapes, text, workflow
from served_process import ServedProcess

_GROUPS = 4
"""Servers that share the twenty projects."""
SHAPES = shapes()
STORE = "sqlite:///runs.db"
SECRET = "s3cr3t-value-of-a-setting"


def server(folder: Path, *targets: str) -> ServedProcess:
    (folder / "handlers.py").write_text(HANDLERS)
    given = (*targets, "--store", STORE, "--handlers", "handlers.py")
    return ServedProcess(*given, cwd=folder, log=folder / "log.txt")


def invoked(url: str, name: str, body: Any) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/definitions/{name}/invoke", json=body, timeout=60)


def started(url: str, name: str, body: Any) -> str:
    answer = httpx2.post(f"{url}/v1/runs", json={"workflow": name, "input": body}, timeout=60)
    run_id: str = answer.json()["run_id"]
    return run_id


def ended(url: str, run_id: str) -> dict[str, Any]:
    answer = httpx2.get(f"{url}/v1/runs/{run_id}", params={"wait": 60}, timeout=90)
    run: dict[str, Any] = answer.json()
    return run


def set_from_environment(group: list[Shape], monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in group:
        for name, value in shape.settings.items():
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize("number", range(_GROUPS))
async def test_projects_are_served_killed_and_recovered(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = SHAPES[number::_GROUPS]
    set_from_environment(group, monkeypatch)
    folders = [shape.write(tmp_path) for shape in group]
    served = server(tmp_path, *(folder.name for folder in folders))
    await served.start()
    paused = {}
    try:
        for shape in group:
            answer = await asyncio.to_thread(invoked, served.url, shape.workflow, shape.body)
            said = answer.json() if "json" in answer.headers["content-type"] else answer.text
            assert (answer.status_code, said) == (200, shape.answer), shape.name
            begun = await asyncio.to_thread(started, served.url, shape.workflow, {**shape.body, "pause": True})
            paused[shape.name] = begun
            await until_paused(served.url, paused[shape.name])
        await served.kill()
        for shape in group:
            for name in shape.settings:
                monkeypatch.delenv(name)
        for folder in folders:  # what a run began with is in the store: it needs no values of the project
            (folder / "local.settings.json").write_text(json.dumps(local()))
            (folder / "parameters.json").unlink(missing_ok=True)
        await served.start()
        for shape in group:
            run_id = paused[shape.name]
            skipped = await asyncio.to_thread(httpx2.post, f"{served.url}/v1/runs/{run_id}/skip", json={})
            assert skipped.status_code < 300, skipped.text
            run = await asyncio.to_thread(ended, served.url, run_id)
            assert run["status"] == "completed", run
            assert run["result"]["response"]["body"] == shape.answer, shape.name
    finally:
        await served.kill()


async def until_paused(url: str, run_id: str) -> None:
    async with asyncio.timeout(60):
        while True:
            answer = await asyncio.to_thread(httpx2.get, f"{url}/v1/runs/{run_id}")
            if answer.json().get("asleep"):
                return
            await asyncio.sleep(0.02)


def bytes_of(folder: Path) -> bytes:
    return b"".join(place.read_bytes() for place in folder.glob("runs.db*"))


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A project whose run reads a setting in every way, and passes it on."""
    actions = {
        "Direct": compose("@appsetting('SECRET')"),
        "Inside": compose("key=@{appsetting('SECRET')}"),
        "Parameter": compose("@parameters('key')"),
        "Set": {
            "type": "InitializeVariable",
            "inputs": {"variables": [{"name": "kept", "type": "string", "value": "@outputs('Inside')"}]},
        },
        "Measure": compose("@length(variables('kept'))"),
    }
    project = Shape(
        "secrets",
        {
            "Vault/workflow.json": workflow(actions, "@outputs('Measure')"),
            "host.json": {"version": "2.0"},
            "parameters.json": {"key": text("@appsetting('SECRET')")},
            "local.settings.json": local(SECRET=SECRET),
        },
        "Vault",
        {},
        len(SECRET) + 4,
        {},
    )
    return project.write(tmp_path)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_settings_are_masked_and_encrypted(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_encrypted: bool
) -> None:
    if is_encrypted:
        monkeypatch.setenv("LOOM_ENCRYPTION_KEYS", "k1:" + base64.b64encode(b"k" * 32).decode())
    served = server(tmp_path, secret.name)
    await served.start()
    try:
        answer = await asyncio.to_thread(invoked, served.url, "Vault", {})
        assert (answer.status_code, answer.json()) == (200, len(SECRET) + 4)
        waiting = await asyncio.to_thread(started, served.url, "Vault", {"pause": True})
        done = answer.headers["Loom-Run-ID"]
        await until_paused(served.url, waiting)
        shown = ""
        for run_id in (waiting, done):
            for view in ("", "/history", "/state", "/events?wait=0", "/timeline", "/why", "/actions", "/loops"):
                found = await asyncio.to_thread(httpx2.get, f"{served.url}/v1/runs/{run_id}{view}")
                shown += found.text
        shown += (await asyncio.to_thread(httpx2.get, f"{served.url}/v1/definitions/Vault")).text
        shown += (await asyncio.to_thread(httpx2.get, f"{served.url}/v1/definitions/Vault/schemas")).text
        assert "*** secure ***" in shown
        assert SECRET not in shown
    finally:
        await served.kill()
    assert SECRET not in (tmp_path / "log.txt").read_text()
    stored = bytes_of(tmp_path)
    assert (SECRET.encode() in stored) is not is_encrypted


async def test_a_server_tells_what_a_project_lacks_and_serves_it(tmp_path: Path) -> None:
    host = {
        "version": "2.0",
        "extensions": {"workflow": {"settings": {"Runtime.Backend.FlowRunTimeout": "1.00:00:00"}}},
    }
    project = Shape(
        "lacking",
        {
            "Reads/workflow.json": workflow(
                {"Read": compose("@coalesce(appsetting('NOWHERE'), 'null')")}, "@outputs('Read')"
            ),
            "host.json": host,
        },
        "Reads",
        {},
        "null",
        {},
    )
    served = server(tmp_path, project.write(tmp_path).name)
    await served.start()
    try:
        answer = await asyncio.to_thread(invoked, served.url, "Reads", {})
        assert answer.text == "null"
    finally:
        await served.kill()
    log = (tmp_path / "log.txt").read_text()
    assert "lacking/host.json:1:" in log or "Runtime.Backend.FlowRunTimeout" in log
    assert log.count("there is no setting 'NOWHERE'") == 1
    assert "A run starts without the app settings NOWHERE" in log


async def test_a_broken_project_is_refused_with_all_its_problems(tmp_path: Path) -> None:
    project = Shape(
        "broken",
        {
            "Good/workflow.json": workflow({}, "x"),
            "Bad/workflow.json": '{"definition": {\n  "actions": }',
            "host.json": {"version": "2.0"},
            "connections.json": "[1]",
            "parameters.json": {"n": {"type": "Int", "value": "many"}, "m": 1},
        },
        "Good",
        {},
        None,
        {},
    )
    served = server(tmp_path, project.write(tmp_path).name)
    with pytest.raises(AssertionError, match="The server has ended"):
        await served.start()
    log = (tmp_path / "log.txt").read_text()
    assert "broken/Bad/workflow.json:2:14: error:" in log
    assert "broken/connections.json:1:1: error: (document): the file must be an object, and it is Array" in log
    assert "n.value: the value is String, and the type is Int" in log
    assert "error: m: a parameter is an object with a 'value'" in log
    assert "broken cannot be loaded: it has 4 problems." in log
