"""Callbacks: services answer at the address that an action of a flow has given them.

The address is all that they need: its signature stands for one action of one run, whom the call reaches once, and for
nothing else. May import the server's frame, loom.effects and loom.runtime.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from loom.effects.actions.events import CallbackEvent
from loom.server.answers import JsonAnswer
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route
from loom.server.trigger_request import received

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.routing import Call
    from loom.server.shapes_definitions import CalledBack


async def called_back(call: Call) -> Response:
    """`GET` and `POST /v1/callbacks/{token}?sig=`. A call that is repeated changes nothing: the first one counts."""
    if call.request.method == "HEAD":
        raise ApiProblem("method-not-allowed", "A callback is a GET or a POST.")  # whoever looks does not call
    token = call.request.path_params["token"]
    callback = await call.runtime.callbacks.find(token, call.request.query_params.get("sig", ""))
    if callback is None:
        raise ApiProblem(
            "unauthenticated",
            "This is no address that was given out here.",
            headers={"WWW-Authenticate": 'Bearer realm="loom"'},
        )
    await call.check_event_size()
    event = CallbackEvent(key=callback.key, **(await received(call, "sig"))._asdict())
    # One address, one event: whoever has it cannot fill the run with calls.
    event_id = f"callback:{hashlib.sha256(token.encode()).hexdigest()}"
    try:
        is_new = await call.runtime.send_event(callback.run_id, event, event_id=event_id)
    except ValueError as error:
        raise invalid(f"The body cannot be kept: {error}") from error
    stored: CalledBack = {"duplicate": not is_new}
    return JsonAnswer(stored, 202)


ROUTES = (
    Route("GET", "/v1/callbacks/{token}", called_back, None),
    Route("POST", "/v1/callbacks/{token}", called_back, None),
)
