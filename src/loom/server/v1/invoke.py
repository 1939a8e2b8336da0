"""Flows as endpoints: a request fires a trigger and a Response action answers it, or a service calls an action back.

Credentials never enter a flow. A flow answers for itself, not for the server: it cannot set cookies of the server,
speak for its origins or its connection, and what it sends runs no scripts there.

The address of a callback is all that a service needs: its signature is for one action of one run, which the call
reaches once, until the address expires. A GET is a call only where the flow has asked for it: a follower of a link does
not mean to answer.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response

from loom.api.answers import Page
from loom.api.definitions import CalledBack
from loom.api.requests import Seconds
from loom.api.runs import Run
from loom.core.records import EventRecord
from loom.effects.actions.content import TooManyValues, decode_content_off_loop, encode_content, media_type, text_of
from loom.effects.actions.events import CallbackEvent
from loom.effects.flow_codec import FlowStartEvent
from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.expressions.errors import FunctionError
from loom.flows.calls import FlowResponse
from loom.flows.plain import plain_value
from loom.flows.triggers import FiringRefused, fired, request_trigger
from loom.runtime.flow import Flow
from loom.runtime.render import rendered_run
from loom.server.answers import JsonAnswer
from loom.server.call import json_off_loop, served_code
from loom.server.caller_limits import check_open
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import ANY, Body, Param, Reply, RouteList
from loom.server.streams import StreamReader
from loom.server.v1.runs import run_answer
from loom.server.waits import while_serving
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import RunExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.flows.program import Trigger
    from loom.server.call import Call

# -- invoke -----------------------------------------------------------------------------------------------------------


route = RouteList("definitions")

_INVOKED: dict[str, Any] = {
    "scope": "start",
    "description": "The request is the trigger's: its body, its headers without credentials, its query.",
    "params": (Param("wait", Seconds, "Wait for the answer, at most so many seconds, and at most 60."),),
    "body": Body(Any, required=False, media=(ANY,)),
    "replies": {
        202: Reply("No answer came in time: the `Run`, or a page of those that splitOn has started.", Any, (ANY,)),
        "default": Reply("What the flow's Response action says.", Any, (ANY,)),
    },
    "problems": ("not-found", "method-not-allowed", "run-exists", "draining", "memory-exceeded"),
}
_CALLED_BACK: dict[str, Any] = {
    "scope": None,
    "summary": "Call back an action of a flow, at the address that it gave out",
    "description": "Needs no key: its signature is for one action of one run, until the address expires. By GET only "
    "if the action asked for that.",
    "params": (Param("sig", str, "The signature, which the address has.", required=True),),
    "replies": {202: Reply("The call is stored.", CalledBack)},
    "problems": ("unauthenticated", "method-not-allowed", "run-not-found", "run-finished"),
}

ANSWERED_BY = "Loom-Run-ID"
"""The header that marks a flow's own answer, with the run that has given it."""
MAX_SPLIT = 1000
"""How many runs one request may start."""


@route(
    "POST", "/v1/definitions/{name}/invoke", "invoke", summary="Fire a flow's trigger, and get its answer", **_INVOKED
)
@route(
    "POST",
    "/v1/definitions/{name}/invoke/{path:path}",
    "invokePath",
    summary="The same, for a trigger that has a relative path",
    **_INVOKED,
)
async def invoke(call: Call) -> Response:
    """`POST /v1/definitions/{name}/invoke`, with the rest of the path for a trigger that has a relative one."""
    wait = call.seconds("wait", call.settings.max_wait)
    check_open(call)
    name = call.request.path_params["name"]
    flow = await _flow(call, name)
    trigger = request_trigger(flow.program)
    _check_method(trigger)
    start = _start(trigger, await received(call, "wait"), call.request.path_params.get("path", ""))
    outputs = {"headers": start.headers, **start.outputs, "body": start.body}
    try:
        bodies = fired(flow.program, trigger, outputs, call.runtime.now())
    except FiringRefused as error:
        raise invalid(str(error)) from error
    if not bodies or (trigger is not None and trigger.split_on is not None):
        return await _split(call, name, start, bodies)
    [run_id] = await _started(call, name, [start], [call.nonce or uuid.uuid4().hex])
    answers = any(node.type == "response" for node in flow.program.nodes)
    return await _answer(call, run_id, (call.settings.max_wait if wait is None else wait) if answers else 0.0)


async def _split(call: Call, name: str, start: FlowStartEvent, bodies: list[Any]) -> Response:
    """Start a run per element. It is open which of them shall answer, so none is waited for."""
    if len(bodies) > MAX_SPLIT:
        raise invalid(f"One request starts {MAX_SPLIT} runs at most, and splitOn gives {len(bodies)} elements.")
    nonce = call.nonce or uuid.uuid4().hex
    starts = [start.model_copy(update={"body": body}) for body in bodies]
    run_ids = await _started(call, name, starts, [f"{nonce}-{index}" for index in range(len(starts))])
    rows = [await call.runtime.row(run_id) for run_id in run_ids]
    items = [await rendered_run(call.runtime, row, whole=False, with_result=False) for row in rows]
    return JsonAnswer(Page[Run](items=items), 202)


async def _flow(call: Call, name: str) -> Flow:
    workflow = (await served_code(call, name)).workflow
    if not isinstance(workflow, Flow):
        raise invalid(f"{name!r} is no flow, so it has no trigger: start it with POST /v1/runs.")
    return workflow


def _check_method(trigger: Trigger | None) -> None:
    """A trigger may ask for another method than the only one that starts anything here."""
    method = _asked(trigger, "method")
    if isinstance(method, str) and method.upper() != "POST":
        raise ApiProblem(
            "method-not-allowed",
            f"The trigger takes {method.upper()[:20]} only, and flows are invoked with POST: start it with"
            " POST /v1/runs.",
        )


def _asked(trigger: Trigger | None, name: str) -> Any:
    """What a trigger says about requests: in its inputs, or in Loom's dialect beside them."""
    definition = trigger.definition if trigger is not None else {}
    inputs = definition.get("inputs")
    return inputs[name] if isinstance(inputs, dict) and name in inputs else definition.get(name)


def _start(trigger: Trigger | None, request: Received, path: str) -> FlowStartEvent:
    outputs: dict[str, Any] = {"queries": request.queries}
    relative = _asked(trigger, "relativePath")
    if isinstance(relative, str) and relative.strip("/"):
        outputs["relativePathParameters"] = _matched(relative, path)
    elif path:
        raise ApiProblem("not-found", "The flow's trigger has no relative path.")
    name = trigger.name if trigger is not None else ""
    return FlowStartEvent(body=request.body, headers=request.headers, trigger=name, outputs=outputs)


def _matched(relative: str, path: str) -> dict[str, str]:
    """The values of a relative path such as `/orders/{id}`."""
    wanted, given = relative.strip("/").split("/"), path.strip("/").split("/")
    values: dict[str, str] = {}
    for part, value in zip(wanted, given, strict=False):
        named = re.fullmatch(r"\{(.+)\}", part)
        if named is not None and value:
            values[named[1]] = value
        elif part != value:
            break
    else:
        if len(wanted) == len(given):
            return values
    raise ApiProblem("not-found", f"The flow's trigger takes paths such as {relative[:200]}.")


async def _started(call: Call, name: str, starts: Sequence[FlowStartEvent], run_ids: Sequence[str]) -> Sequence[str]:
    """Start runs under ids that a repetition of this request has too. All of them are stored when this returns."""

    async def start(event: FlowStartEvent, run_id: str) -> None:
        try:
            await call.runtime.starter.begin(name, event, run_id=run_id)
        except RunExists:
            # A repetition after a crash may come with other headers: what was started first counts.
            if call.nonce is None or (await call.runtime.row(run_id)).workflow != name:
                raise
        call.has_begun(run_id)

    await call.server.starts.reserve(call, len(starts))
    try:
        # All of them are waited for: what becomes of one that is under way shall be known when this is answered.
        for failed in await asyncio.gather(*map(start, starts, run_ids), return_exceptions=True):
            if failed is not None:
                raise failed
    except (ValueError, TypeError, WorkflowRuntimeError) as error:
        raise invalid(str(error)) from error
    return run_ids


async def _answer(call: Call, run_id: str, wait: float) -> Response:
    """What the flow answers; without an answer in time, or from a flow that has none, the run and its address."""
    said = await while_serving(call, _response(call, run_id, wait)) if wait else None
    answer = response_of(said) if said is not None else None
    if answer is not None:
        answer.headers[ANSWERED_BY] = run_id
        call.is_outcome = True
        return answer
    answer = await run_answer(call, await call.runtime.row(run_id), 202)
    answer.headers["Location"] = call.address_of(run_id)
    return answer


async def _response(call: Call, run_id: str, wait: float) -> FlowResponse | None:
    reader = StreamReader(call.runtime, run_id, 0)
    clock = asyncio.get_running_loop().time
    until = clock() + wait
    while not reader.is_over and (left := until - clock()) > 0:
        for chunk in await reader.page(left):
            for entry in await reader.entries(chunk):
                published = entry.published
                if isinstance(published, EventRecord) and isinstance(published.body, FlowResponse):
                    return published.body
    return None


# -- callbacks --------------------------------------------------------------------------------------------------------


@route("GET", "/v1/callbacks/{token}", "callBackByGet", **_CALLED_BACK)
@route("POST", "/v1/callbacks/{token}", "callBack", body=Body(Any, required=False, media=(ANY,)), **_CALLED_BACK)
async def called_back(call: Call) -> Response:
    """`POST /v1/callbacks/{token}?sig=`, and `GET` if asked for. A repeated call changes nothing: the first counts."""
    if call.request.method == "HEAD":
        raise ApiProblem("method-not-allowed", "A callback is a GET or a POST.")  # a HEAD does not call
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
    return JsonAnswer(CalledBack(duplicate=not is_new), 202)


def _unknown(detail: str) -> ApiProblem:
    return ApiProblem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="loom"'})


# -- the request as a flow sees it ------------------------------------------------------------------------------------


_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


class Received(NamedTuple):
    """What a flow gets of a request."""

    headers: dict[str, str]
    queries: dict[str, str]
    body: Any


async def received(call: Call, *own: str) -> Received:
    """The request, without the queries that are the server's own."""
    request = call.request
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        if name not in _CREDENTIALS:
            shown = "-".join(part.capitalize() for part in name.split("-"))
            headers[shown] = f"{headers[shown]}, {value}" if shown in headers else value
    queries = {name: value for name, value in request.query_params.items() if name not in own}
    body = await _body(call)
    is_large = len(await request.body()) > OFF_LOOP_BYTES
    return Received(headers, queries, await aside("convert", plain_value, body) if is_large else plain_value(body))


async def _body(call: Call) -> Any:
    """JSON as values, text as text, and everything else in an envelope. What does not say its type must be JSON."""
    data = await call.request.body()
    content_type = call.request.headers.get("content-type", "application/json")
    kind = media_type(content_type)
    if kind == "application/json" or kind.endswith("+json"):
        return await json_off_loop(data, call.settings) if data.strip() else None
    try:
        return await decode_content_off_loop(data, content_type, call.settings.max_values)
    except TooManyValues as error:
        raise ApiProblem("too-large", str(error)) from error


# -- the answer of a flow ---------------------------------------------------------------------------------------------


_DROPPED = frozenset({
    "alt-svc", "clear-site-data", "connection", "content-encoding", "content-length", "content-security-policy",
    "date", "idempotent-replay", "keep-alive", "loom-run-id", "proxy-authenticate", "proxy-connection", "server",
    "service-worker-allowed", "set-cookie", "set-cookie2", "strict-transport-security", "te", "trailer",
    "transfer-encoding", "upgrade", "www-authenticate", "x-content-type-options", "x-request-id",
})  # fmt: skip
_CORS = "access-control-"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_FIRST, _LAST = 200, 599
_BODILESS = frozenset({204, 205, 304})
_SANDBOX = {"Content-Security-Policy": "sandbox"}


def response_of(said: FlowResponse) -> Response | None:
    """The answer; None if it is none that can be sent over HTTP."""
    status = _status(said.status_code)
    if status is None:
        return None
    headers = _headers(said.headers)
    given = headers.pop("content-type", "")
    try:
        content, content_type = encode_content(said.body, given)
    except (FunctionError, ValueError, TypeError, AttributeError):
        return None  # an envelope that holds no content
    if not _VALUE.fullmatch(content_type):
        return None
    if status in _BODILESS:
        return Response(status_code=status, headers={**headers, **_SANDBOX})
    if content_type:
        headers["content-type"] = content_type
    return Response(content, status, {**headers, **_SANDBOX})


def _status(value: Any) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    number = int(text) if re.fullmatch("[0-9]{3}", text, re.ASCII) else 0
    return number if _FIRST <= number <= _LAST else None


def _headers(given: Any) -> dict[str, str]:
    """The headers that a flow may set, by their names in lower case."""
    found: dict[str, str] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        key, text = str(name).lower(), text_of(value)
        allowed = key not in _DROPPED and not key.startswith(_CORS)
        if allowed and _NAME.fullmatch(key) and _VALUE.fullmatch(text):
            found[key] = text
    return found
