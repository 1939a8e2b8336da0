"""What the log says of requests: their ids, and none of their keys."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import httpx2
import pytest
from server_serving import Served

from loom.runtime.logs import configure_logs
from loom.server.call import Server


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the program logs as JSON. Afterwards it logs as before."""
    root = logging.getLogger()
    level, stream = root.level, io.StringIO()
    handler = configure_logs("json", logging.DEBUG, stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def _break(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(run_id: str) -> None:
        logging.getLogger("some.library").warning("reading")
        raise RuntimeError("a fault of the server")

    monkeypatch.setattr(server.runtime, "row", fail)


async def test_lines_of_a_request_have_its_id(
    served: Served, client: httpx2.AsyncClient, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    _break(served.server, monkeypatch)
    answer = await client.get("/v1/runs/a", headers={"X-Request-ID": "r-17"})
    assert answer.status_code == 500
    assert "a fault" not in answer.text
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    library, own = [line for line in lines if line["logger"] in ("some.library", "loom.server")]
    assert library["request_id"] == own["request_id"] == "r-17"
    assert "a fault of the server" in own["exception"]


async def test_keys_are_not_in_the_log_whatever_happens(
    served: Served, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = await served.key("admin")
    wrong = good[:-4] + "AAAA"
    async with served.client(good) as client, served.client(wrong) as stranger:
        await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "now"}})
        assert (await stranger.get("/v1/runs")).status_code == 401
        _break(served.server, monkeypatch)
        assert (await client.get("/v1/runs/a", headers={"X-API-Key": good})).status_code in (400, 401, 500)
        logging.getLogger("some.library").error("sent %s", dict(client.headers))
    assert written.getvalue()
    for key in (good, wrong):
        assert key not in written.getvalue()
        assert key[-20:] not in written.getvalue()
