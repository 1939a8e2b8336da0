"""Callbacks: services answer at the address that an action of a flow has given them.

The address is all that they need: its signature is for one action of one run, which the call reaches once, until the
address expires. A GET is a call only where the flow has asked for it: who follows a link does not mean to answer.
"""

from __future__ import annotations

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
    """`POST /v1/callbacks/{token}?sig=`, and `GET` if asked for. A repeated call changes nothing: the first counts."""
    if call.request.method == "HEAD":
        raise ApiProblem("method-not-allowed", "A callback is a GET or a POST.")  # whoever looks does not call
    token = call.request.path_params["token"]
    callback = await call.runtime.callbacks.find(token, call.request.query_params.get("sig", ""))
    if callback is None:
        raise _unknown("This is no address that was given out here.")
    if callback.until is not None and call.runtime.now() >= callback.until:
        raise _unknown("This address has expired.")
    if call.request.method == "GET" and not callback.get:
        raise ApiProblem("method-not-allowed", "This address is called by POST.", headers={"Allow": "POST"})
    await call.check_event_size()
    event = CallbackEvent(key=callback.key, **(await received(call, "sig"))._asdict())
    try:
        # One action, one event: the holder of its address cannot fill the run with calls.
        is_new = await call.runtime.send_event(callback.run_id, event, event_id=callback.event_id)
    except ValueError as error:
        raise invalid(f"The body cannot be kept: {error}") from error
    stored: CalledBack = {"duplicate": not is_new}
    return JsonAnswer(stored, 202)


def _unknown(detail: str) -> ApiProblem:
    return ApiProblem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="loom"'})


ROUTES = (
    Route("GET", "/v1/callbacks/{token}", called_back, None),
    Route("POST", "/v1/callbacks/{token}", called_back, None),
)
