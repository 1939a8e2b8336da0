"""Flows as operators see them: whether their triggers fire, and signed addresses of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.definitions import FlowAddress, FlowStatus
from loom.api.requests import AddressRequest, NoFields
from loom.runtime.durable.flow_client import NoRequestTrigger
from loom.runtime.durable.names import OWN
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.server.answers import JsonAnswer
from loom.server.problems import invalid
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
    description="Requests to the flow get a 404, and its own schedules start nothing. Runs under way go on, and "
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


def _flow(call: Call) -> str:
    """Return the name in the path. What a key may not see is not there for it."""
    name: str = call.request.path_params["name"]
    if not call.principal.sees(name) or name.startswith(OWN):
        raise DefinitionNotFound(name[:200])
    return name
