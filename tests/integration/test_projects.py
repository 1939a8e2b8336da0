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
from click.testing import CliRunner
from project_shapes import HANDLERS, METHODS, Shape, compose, local, shapes, text, workflow
from served_process import ServedProcess

from loom.cli import main

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


def set_from_environment(group: list[Shape], monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in group:
        for name, value in shape.settings.items():
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize("number", range(_GROUPS))
async def test_projects_are_served_killed_and_recovered(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers have signed addresses only, and repeat what was cut off: nothing is lost, and nothing is done twice."""
    group = SHAPES[number::_GROUPS]
    set_from_environment(group, monkeypatch)
    folders = [shape.write(tmp_path) for shape in group]
    bearer = {"Authorization": f"Bearer {await key_of(tmp_path)}"}
    served = server(tmp_path, *(folder.name for folder in folders))
    await served.start()
    try:
        async with (
            httpx2.AsyncClient(base_url=served.url, headers=bearer, timeout=60) as operator,
            httpx2.AsyncClient(timeout=60) as stranger,
        ):
            addresses = {shape.name: await address_of(operator, shape) for shape in group}
            cut_off = {}
            for shape in group:
                await check_methods(stranger, shape, addresses[shape.name])
                cut_off[shape.name] = asyncio.create_task(paused(stranger, shape, addresses[shape.name]))
            asleep = {shape.name: await asleep_run(operator, shape.workflow) for shape in group}
            await served.kill()
            for failed in await asyncio.gather(*cut_off.values(), return_exceptions=True):
                assert isinstance(failed, httpx2.TransportError), failed
            forget(group, folders, monkeypatch)
            await served.start()
            again = {shape.name: asyncio.create_task(paused(stranger, shape, addresses[shape.name])) for shape in group}
            for shape in group:
                skipped = await operator.post(f"/v1/runs/{asleep[shape.name]}/skip", json={})
                assert skipped.status_code < 300, skipped.text
                answer = await again[shape.name]
                check_answer(shape, answer)
                assert answer.headers["loom-run-id"] == asleep[shape.name]
                runs = (await operator.get("/v1/runs", params={"workflow": shape.workflow})).json()["items"]
                assert [run["status"] for run in runs] == ["completed"] * 2, shape.name
    finally:
        await served.kill()
    log = (tmp_path / "log.txt").read_text()
    assert not any(address.rpartition("sig=")[2] in log for address in addresses.values())


async def key_of(folder: Path) -> str:
    """Make a key, so that the server asks for one."""
    arguments = ["keys", "create", "ops", "--scope", "admin,event,read", "--store", f"sqlite:///{folder}/runs.db", "-q"]
    made = await asyncio.to_thread(CliRunner().invoke, main, arguments, catch_exceptions=False)
    return made.stdout.strip()


async def address_of(operator: httpx2.AsyncClient, shape: Shape) -> str:
    """Get the signed address of a project, with a value in its path that has a slash."""
    given = (await operator.post(f"/v1/definitions/{shape.workflow}/address")).json()
    assert given["methods"] == [shape.method]
    address: str = given["url"]
    assert f"/{shape.workflow}/invoke{'/' if shape.path else ''}{shape.path}?sp=When_called&sv=1&sig=" in address
    return address.replace("{id}", "a%2Fb")


async def check_methods(stranger: httpx2.AsyncClient, shape: Shape, address: str) -> None:
    """Call an address with every method, and without its signature: one method opens it."""
    for method in METHODS:
        answer = await stranger.request(method, address, json=shape.body)
        if method == shape.method:
            check_answer(shape, answer)
        else:
            assert (answer.status_code, answer.headers["allow"]) == (405, shape.method)
    for wrong in (address.partition("?")[0], address[:-1], address.replace("sv=1", "sv=2")):
        assert (await stranger.request(shape.method, wrong, json=shape.body)).status_code == 401


def check_answer(shape: Shape, answer: httpx2.Response) -> None:
    said = answer.json() if "json" in answer.headers["content-type"] else answer.text
    assert (answer.status_code, said) == (200, shape.answer), shape.name


async def paused(stranger: httpx2.AsyncClient, shape: Shape, address: str) -> httpx2.Response:
    """Start a run that pauses before it answers. A repetition is for the same run."""
    body = {**shape.body, "pause": True}
    return await stranger.request(shape.method, address, json=body, headers={"Idempotency-Key": shape.name})


async def asleep_run(operator: httpx2.AsyncClient, workflow: str) -> str:
    """Wait for the run that pauses."""
    async with asyncio.timeout(60):
        while True:
            answer = await operator.get("/v1/runs", params={"workflow": workflow, "status": "running"})
            for run in answer.json()["items"]:
                if run["asleep"]:
                    run_id: str = run["run_id"]
                    return run_id
            await asyncio.sleep(0.02)


def forget(group: list[Shape], folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the values of projects away: what a run began with is in the store."""
    for shape in group:
        for name in shape.settings:
            monkeypatch.delenv(name)
    for folder in folders:
        (folder / "local.settings.json").write_text(json.dumps(local()))
        (folder / "parameters.json").unlink(missing_ok=True)


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
    assert log.count("A run starts without the app settings NOWHERE") == 1


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
