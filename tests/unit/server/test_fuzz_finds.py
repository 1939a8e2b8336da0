"""What requests made at random have found: each was a fault of the server once."""

from __future__ import annotations

import httpx2
import pytest
from server_serving import Served


@pytest.mark.parametrize("idle", ["idle=true", "idle_duration_gt=1.0"])
async def test_no_handler_is_idle_in_a_status_that_is_not_known(
    served: Served, client: httpx2.AsyncClient, idle: str
) -> None:
    await client.post("/workflows/asks/run-nowait", json={"start_event": {"topic": "x"}, "handler_id": "h"})
    await served.until_waiting("h")
    response = await client.get(f"/handlers?{idle}&status=unheard-of")
    assert (response.status_code, response.json()) == (200, {"handlers": [], "next_cursor": None})
