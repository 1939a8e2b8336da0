"""Files: no request names one; what the store and the command line write is for its owner alone."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from server_serving import Served, serving

import loom
from loom.cli.app import main

PATHS = [
    "../../../../etc/passwd",
    "/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "C:\\Windows\\win.ini",
    "file:///etc/passwd",
]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")


@pytest.fixture
def usual_umask() -> object:
    """Files are readable for others, unless their maker sees to it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


async def test_the_database_and_what_belongs_to_it_are_for_their_owner(tmp_path: Path, usual_umask: None) -> None:
    async with serving(f"sqlite:///{tmp_path}/runs.db") as served, served.client() as client:
        await client.post("/v1/runs", json={"workflow": "asks", "run_id": "r", "input": {"topic": "tea"}})
        await served.until_waiting("r")
        found = {path.name: mode(path) for path in below(tmp_path) if not path.name.endswith(".lock")}
        assert set(found) >= {"runs.db", "runs.db-wal"}
        assert set(found.values()) == {0o600}, found


async def test_rights_that_an_operator_has_given_stay(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    path.chmod(0o640)
    async with loom.connect(f"sqlite:///{path}") as runtime:
        await runtime.ready()
    assert mode(path) == 0o640


@pytest.mark.parametrize("existed", [False, True])
def test_an_export_is_for_its_owner(tmp_path: Path, usual_umask: None, existed: bool) -> None:
    import asyncio

    url, output = f"sqlite:///{tmp_path}/runs.db", tmp_path / "run.json"
    if existed:
        output.write_text("old")
        output.chmod(0o644)

    async def prepare() -> None:
        async with serving(url) as served:
            await served.runtime.start("asks", {"topic": "now"}, run_id="r")

    asyncio.run(prepare())
    result = CliRunner().invoke(main, ["workflow", "export", "r", "-o", str(output), "--store", url])
    assert result.exit_code == 0, result.output
    assert mode(output) == 0o600
    assert b"loom_run" in output.read_bytes()


async def test_no_request_reads_or_writes_a_file(served: Served, client: httpx2.AsyncClient, tmp_path: Path) -> None:
    before = below(tmp_path)
    for name in PATHS:
        for path in ("/workflows/{}/schema", "/v1/runs/{}", "/handlers/{}", "/v1/definitions/{}", "/{}", "/static/{}"):
            answer = await client.get(path.format(name))
            assert answer.status_code in (400, 404, 405), (path, name)
            assert "root:" not in answer.text
        start = {"workflow": name, "input": {}}
        assert (await client.post("/v1/runs", json=start)).status_code == 404
        body = {"workflow": "asks", "run_id": name, "input": {"topic": "x"}}
        assert (await client.post("/v1/runs", json=body)).status_code == 400
    assert below(tmp_path) == before
