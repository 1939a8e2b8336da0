"""Flows as operators see them: whether their triggers fire, what became of that, and signed addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.definitions import FlowAddress, FlowStatus, TriggerFired, TriggerHistory
from loom.api.requests import AddressRequest, NoFields
from loom.runtime.durable.flow_client import NoRequestTrigger
from loom.runtime.durable.listeners import TriggerNotFound, TriggerRefused
from loom.runtime.durable.names import OWN
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.server.answers import JsonAnswer
from loom.server.caller_limits import check_open
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import Body, Reply, RouteList

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("definitions")

_STATUS = Reply("The flow as it is now.", FlowStatus)


@route(
    "GET",
    "/v1/definitions/{name}/status",
    "getFlowStatus",
    scope="read",
    summary="See whether a flow is enabled, and what starts its runs",
    replies={200: _STATUS},
    problems=("definition-invalid",),
)
async def status(call: Call) -> Response:
    """`GET /v1/definitions/{name}/status`."""
    call.check_query()
    return JsonAnswer(await call.runtime.flow_status(_flow(call)))


@route(
    "POST",
    "/v1/definitions/{name}/enable",
    "enableFlow",
    scope="admin",
    summary="Let the triggers of a flow fire again",
    body=Body(NoFields, required=False),
    replies={200: _STATUS},
    problems=("definition-invalid",),
)
async def enable(call: Call) -> Response:
    """`POST /v1/definitions/{name}/enable`."""
    call.check_query()
    await call.body(NoFields)
    return JsonAnswer(await call.runtime.enable_flow(_flow(call)))


@route(
    "POST",
    "/v1/definitions/{name}/disable",
    "disableFlow",
    scope="admin",
    summary="Let the triggers of a flow fire no more",
    description="Requests to the flow get a 404, its own schedules start nothing, and nothing polls or is subscribed "
    "to for it. Runs under way go on, and "
    "`POST /v1/runs` still starts it.",
    body=Body(NoFields, required=False),
    replies={200: _STATUS},
    problems=("definition-invalid",),
)
async def disable(call: Call) -> Response:
    """`POST /v1/definitions/{name}/disable`."""
    call.check_query()
    await call.body(NoFields)
    return JsonAnswer(await call.runtime.disable_flow(_flow(call)))


@route(
    "POST",
    "/v1/definitions/{name}/address",
    "signAddress",
    scope="admin",
    summary="Get a signed address, at which a request fires the flow's trigger without a key",
    description="To rotate ends all addresses that were given out before.",
    body=Body(AddressRequest, required=False),
    replies={200: Reply("The address. Its query is a secret.", FlowAddress)},
    problems=("definition-invalid",),
)
async def address(call: Call) -> Response:
    """`POST /v1/definitions/{name}/address`."""
    call.check_query()
    body = await call.body(AddressRequest)
    # Who has not said where the server is gets the address that it was reached at just now.
    url = call.runtime.callbacks.url or str(call.request.base_url)
    try:
        found = await call.runtime.flow_address(_flow(call), url=url, expires_in=body.expires_in, rotate=body.rotate)
    except NoRequestTrigger as error:
        raise invalid(str(error)) from error
    return JsonAnswer(found)


_TRIGGER = "/v1/definitions/{name}/triggers/{trigger}"


@route(
    "GET",
    f"{_TRIGGER}/history",
    "getTriggerHistory",
    scope="read",
    summary="See what has become of a trigger that polls, subscribes or fires by time, latest first",
    replies={200: Reply("The trigger, with its latest firings.", TriggerHistory)},
    problems=("not-found", "definition-invalid"),
)
async def trigger_history(call: Call) -> Response:
    """`GET /v1/definitions/{name}/triggers/{trigger}/history`."""
    call.check_query()
    try:
        return JsonAnswer(await call.runtime.trigger_history(_flow(call), call.request.path_params["trigger"]))
    except TriggerNotFound as error:
        raise ApiProblem("not-found", str(error)) from error


@route(
    "POST",
    f"{_TRIGGER}/fire",
    "fireTrigger",
    scope="start",
    summary="Fire a trigger by hand: poll its service now, or start the run that time would start",
    description="What becomes of it is in the trigger's history.",
    body=Body(NoFields, required=False),
    replies={202: Reply("It is stored.", TriggerFired)},
    problems=("not-found", "flow-disabled", "definition-invalid", "memory-exceeded"),
)
async def fire_trigger(call: Call) -> Response:
    """`POST /v1/definitions/{name}/triggers/{trigger}/fire`."""
    call.check_query()
    await call.body(NoFields)
    name = _flow(call)
    check_open(call)
    if not (await call.runtime.flow_status(name)).enabled:
        raise ApiProblem("flow-disabled", f"The flow {name!r} is disabled: its triggers do not fire.")
    try:
        return JsonAnswer(await call.runtime.fire_trigger(name, call.request.path_params["trigger"]), 202)
    except TriggerNotFound as error:
        raise ApiProblem("not-found", str(error)) from error
    except TriggerRefused as error:
        raise invalid(str(error)) from error


def _flow(call: Call) -> str:
    """Return the name in the path. What a key may not see is not there for it."""
    name: str = call.request.path_params["name"]
    if not call.principal.sees(name) or name.startswith(OWN):
        raise DefinitionNotFound(name[:200])
    return name
