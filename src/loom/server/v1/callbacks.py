"""Callbacks: a service calls an action or a trigger of a flow, at the address that it was given.

The address is all that a service needs. That of an action is for one run, which the call reaches once, until the
address expires. That of a trigger is good until the subscription ends, and each call fires the trigger. A GET is a call
only where the flow has asked for it: a follower of a link does not mean to answer.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any

from loom.api.definitions import CalledBack
from loom.effects.actions.events import CallbackEvent
from loom.runtime.durable.listeners_run import TriggerCalled
from loom.server.addresses import not_an_address, signature_of
from loom.server.answers import JsonAnswer
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import ANY, Body, Param, Reply, RouteList
from loom.server.v1.flow_requests import received

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("definitions")

_CALLED_BACK: dict[str, Any] = {
    "scope": None,
    "summary": "Call back an action or a trigger of a flow, at the address that it gave out",
    "description": "Needs no key: its signature is for one action of one run, until the address expires, or for one "
    "trigger, until its subscription ends. By GET only if the action asked for that.",
    "params": (Param("sig", str, "The signature, which the address has.", required=True),),
    "replies": {202: Reply("The call is stored.", CalledBack)},
    "problems": ("unauthenticated", "method-not-allowed", "run-not-found", "run-finished"),
}


@route("GET", "/v1/callbacks/{token}", "callBackByGet", **_CALLED_BACK)
@route("POST", "/v1/callbacks/{token}", "callBack", body=Body(Any, required=False, media=(ANY,)), **_CALLED_BACK)
async def called_back(call: Call) -> Response:
    """`POST /v1/callbacks/{token}?sig=`, and `GET` if asked for. Of the calls of an action the first counts."""
    if call.request.method == "HEAD":
        raise ApiProblem("method-not-allowed", "A callback is a GET or a POST.")  # a HEAD does not call
    token = call.request.path_params["token"]
    callback = await call.runtime.callbacks.find(token, signature_of(call.request.scope) or "")
    if callback is None:
        raise not_an_address("This is no address that was given out here.")
    if callback.until is not None and call.runtime.now() >= callback.until:
        raise not_an_address("This address has expired.")
    if call.request.method == "GET" and not callback.get:
        raise ApiProblem("method-not-allowed", "This address is called by POST.", headers={"Allow": "POST"})
    await call.check_event_size()
    said = (await received(call, ("sig",)))._asdict()
    # One action, one event: the holder of its address cannot fill the run with calls. Each call of a trigger counts.
    call_id = _call_id(call.request.headers.get("idempotency-key"))
    event = TriggerCalled(call_id=call_id, **said) if callback.repeats else CallbackEvent(key=callback.key, **said)
    event_id = f"called:{call_id}" if callback.repeats else callback.event_id
    try:
        is_new = await call.runtime.send_event(callback.run_id, event, event_id=event_id)
    except ValueError as error:
        raise invalid(f"The body cannot be kept: {error}") from error
    return JsonAnswer(CalledBack(duplicate=not is_new), 202)


def _call_id(key: str | None) -> str:
    """Name a call of a trigger: a caller that repeats one says so by its key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32] if key else uuid.uuid4().hex
