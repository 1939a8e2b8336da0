"""Flows as endpoints: a request fires a trigger, and the flow's Response action answers it.

What a caller gets is what Logic Apps gives. The Response answers wherever it stands. A run that ends without one is a
502, and one that takes too long a 504; then it goes on. A flow without a Response, or with an asynchronous one, is a
202 at once.

The caller has a key with the scope `start`, or a signed address. The latter opens one trigger of one flow, and nothing
that only callers with keys have: no parameters, no view of the run.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace
from starlette.responses import Response

from loom.api.answers import Page
from loom.api.requests import Seconds
from loom.api.runs import Run
from loom.core.records import EventRecord
from loom.effects.flow_codec import FlowStartEvent
from loom.flows.calls import FlowEnd, FlowResponse
from loom.flows.nodes.external import Response as ResponseAction
from loom.flows.triggers import (
    FiringRefused,
    asks_before_it_fires,
    fired,
    path_values,
    relative_path,
    request_methods,
    request_trigger,
)
from loom.runtime.durable.addresses import OWN_QUERIES, AnswerAddress
from loom.runtime.durable.registration import FlowRegistration
from loom.runtime.render import cut_text, rendered_run
from loom.server import audit
from loom.server.addresses import Addresses, not_an_address
from loom.server.answers import JsonAnswer
from loom.server.call import json_off_loop, served_flow
from loom.server.caller_limits import check_open
from loom.server.problems import ApiProblem, invalid, problem_response
from loom.server.routes import ANY, PARAMETERS, Body, Param, Reply, RouteList
from loom.server.sessions import check_page
from loom.server.streams import StreamReader
from loom.server.v1.flow_requests import Received, received, response_of
from loom.server.v1.runs import run_answer
from loom.server.waits import while_serving
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import RunExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.flows.program import Program, Trigger
    from loom.server.call import Call
    from loom.store.records import RunRow

route = RouteList("definitions")

RUN_ID, RESPONSE = "Loom-Run-ID", "Loom-Response"
"""Headers of answers: the run, and what the server has to say where the flow has not answered."""
ADDRESS_TAG = "loom.address"
"""The tag of runs that a signed address has started: whose address it was."""
MAX_SPLIT = 1000
"""How many runs one request may start."""

_INVOKED: dict[str, Any] = {
    "scope": "start",
    "signed": Addresses.caller_of_trigger,
    "fires": True,
    "description": "The request is the trigger's: its body, its headers without credentials, its query. It needs a "
    "method that the trigger takes: POST if the trigger names none. A signed address (`sig`) needs no key.",
    "params": (
        Param("wait", Seconds, "Wait so many seconds for the answer, then give the run. Not for signed addresses."),
        Param(PARAMETERS, str, "The flow's parameters, as a JSON object. Not for signed addresses.", "header"),
    ),
    "replies": {
        202: Reply(
            "The run was started, and answers later or not at all: the `Run`, or a page of those that splitOn has "
            "started. The body is empty for the caller of a signed address.",
            Any,
            (ANY,),
            headers=("Location", "Loom-Response", "Loom-Run-ID"),
        ),
        "default": Reply("What the flow's Response action says.", Any, (ANY,), headers=("Loom-Run-ID",)),
    },
    "problems": (
        "not-found", "flow-disabled", "method-not-allowed", "run-exists", "no-response", "draining", "memory-exceeded",
        "response-late",
    ),
}  # fmt: skip
_BODY = Body(Any, required=False, media=(ANY,))
_PATH = "/v1/definitions/{name}/invoke"
_BELOW = f"{_PATH}/{{path:path}}"
_SUMMARY, _SUMMARY_BELOW = "Fire a flow's trigger, and get its answer", "The same, for a trigger with a relative path"


@route("GET", _PATH, "invokeByGet", summary=_SUMMARY, **_INVOKED)
@route("POST", _PATH, "invoke", summary=_SUMMARY, body=_BODY, **_INVOKED)
@route("PUT", _PATH, "invokeByPut", summary=_SUMMARY, body=_BODY, **_INVOKED)
@route("PATCH", _PATH, "invokeByPatch", summary=_SUMMARY, body=_BODY, **_INVOKED)
@route("DELETE", _PATH, "invokeByDelete", summary=_SUMMARY, **_INVOKED)
@route("GET", _BELOW, "invokePathByGet", summary=_SUMMARY_BELOW, **_INVOKED)
@route("POST", _BELOW, "invokePath", summary=_SUMMARY_BELOW, body=_BODY, **_INVOKED)
@route("PUT", _BELOW, "invokePathByPut", summary=_SUMMARY_BELOW, body=_BODY, **_INVOKED)
@route("PATCH", _BELOW, "invokePathByPatch", summary=_SUMMARY_BELOW, body=_BODY, **_INVOKED)
@route("DELETE", _BELOW, "invokePathByDelete", summary=_SUMMARY_BELOW, **_INVOKED)
async def invoke(call: Call) -> Response:
    """`ANY /v1/definitions/{name}/invoke`, with the rest of the path for a trigger that has a relative one."""
    is_signed = call.principal.address_key is not None
    if not is_signed:
        check_page(call.principal, call.request.headers, call.request.scope)
    wait = call.seconds("wait", call.settings.response_timeout) if not is_signed else None
    check_open(call)
    flow = await _flow(call)
    program = flow.definition.program
    trigger = request_trigger(program)
    _check_trigger(call, trigger)
    parameters = await _parameters(call, program)
    request = await received(call, OWN_QUERIES if is_signed else ("wait",))
    start = _start(trigger, request, _segments(call), parameters)
    outputs = {"headers": start.headers, **start.outputs, "body": start.body}
    try:
        given = flow.flow.given() if asks_before_it_fires(trigger) else None
        bodies = fired(program, trigger, outputs, call.runtime.now(), parameters, given) or []
    except (FiringRefused, WorkflowRuntimeError) as error:
        raise invalid(str(error)) from error
    if not bodies or (trigger is not None and trigger.split_on is not None):
        return await _split(call, flow, start, bodies)
    [run_id] = await _started(call, flow, [start], [call.nonce or uuid.uuid4().hex])
    return await _answered(call, run_id, wait, _answers(program))


class _Answers(NamedTuple):
    """How a flow answers its caller."""

    has_response: bool
    is_asynchronous: bool


def _answers(program: Program) -> _Answers:
    """Look for Response actions. One that is asynchronous is enough: which of them is reached is not known yet."""
    found = [node.operation for node in program.nodes if isinstance(node.operation, ResponseAction)]
    return _Answers(bool(found), any(each.is_asynchronous for each in found))


# -- what is asked ----------------------------------------------------------------------------------------------------


async def _flow(call: Call) -> FlowRegistration:
    name = call.request.path_params["name"]
    code, definition = await served_flow(call, name)
    if not isinstance(code, FlowRegistration):
        raise invalid(f"{name!r} is no flow, so it has no trigger: start it with POST /v1/runs.")
    if definition is not None and definition.is_disabled:
        raise ApiProblem("flow-disabled", f"The flow {name!r} is disabled: its trigger does not fire.")
    return code


def _check_trigger(call: Call, trigger: Trigger | None) -> None:
    """Refuse the address of another trigger, and a method that this one does not take."""
    named = trigger.name if trigger is not None else ""
    if call.principal.address_key is not None and call.request.query_params.get("sp", "") != named:
        raise not_an_address("The flow has another trigger than this address is for.")
    methods = request_methods(trigger)
    if call.request.method not in methods:
        detail = f"The trigger of this flow takes {' and '.join(methods) or 'no request'}."
        raise ApiProblem("method-not-allowed", detail, headers={"Allow": ", ".join(methods)})


async def _parameters(call: Call, program: Program) -> dict[str, Any]:
    """Read the parameters that a caller with a key gives, by the names that the flow has for them."""
    given = call.request.headers.getlist(PARAMETERS)
    if not given:
        return {}
    if call.principal.address_key is not None:
        raise ApiProblem("forbidden", f"{PARAMETERS} is for callers with a key: an address gives no parameters.")
    values = await json_off_loop(given[0].encode("latin-1"), call.settings) if len(given) == 1 else None
    if not isinstance(values, dict):
        raise invalid(f"The header {PARAMETERS} must be one JSON object.")
    known = program.parameters
    return {known[name.lower()].name if name.lower() in known else name: value for name, value in values.items()}


def _segments(call: Call) -> list[str]:
    """Split what comes after the address before it is decoded, so that a slash in a value makes no new segment."""
    path: str = call.request.path_params.get("path", "")
    raw: bytes | None = call.request.scope.get("raw_path")
    if raw is None:
        return path.strip("/").split("/")
    before = call.request.scope["path"].count("/") - path.count("/")
    rest = raw.decode("latin-1").split("/", before)[-1] if path else ""
    return [unquote(segment) for segment in rest.strip("/").split("/")]


def _start(
    trigger: Trigger | None, request: Received, given: Sequence[str], parameters: dict[str, Any]
) -> FlowStartEvent:
    outputs: dict[str, Any] = {"queries": request.queries}
    relative = relative_path(trigger)
    if relative is not None:
        values = path_values(relative, given)
        if values is None:
            raise ApiProblem("not-found", f"The flow's trigger takes paths such as /{relative[:200]}.")
        outputs["relativePathParameters"] = values
    elif any(given):
        raise ApiProblem("not-found", "The flow's trigger has no relative path.")
    name = trigger.name if trigger is not None else ""
    return FlowStartEvent(
        body=request.body, headers=request.headers, trigger=name, outputs=outputs, parameters=parameters
    )


# -- starts -----------------------------------------------------------------------------------------------------------


async def _split(call: Call, flow: FlowRegistration, start: FlowStartEvent, bodies: list[Any]) -> Response:
    """Start a run per element. It is open which of them shall answer, so none is waited for."""
    if len(bodies) > MAX_SPLIT:
        raise invalid(f"One request starts {MAX_SPLIT} runs at most, and splitOn gives {len(bodies)} elements.")
    nonce = call.nonce or uuid.uuid4().hex
    starts = [start.model_copy(update={"body": body}) for body in bodies]
    run_ids = await _started(call, flow, starts, [f"{nonce}-{index}" for index in range(len(starts))])
    if call.principal.address_key is not None:
        return Response(status_code=202)
    rows = [await call.runtime.row(run_id) for run_id in run_ids]
    items = [await rendered_run(call.runtime, row, whole=False, with_result=False) for row in rows]
    return JsonAnswer(Page[Run](items=items), 202)


async def _started(
    call: Call, flow: FlowRegistration, starts: Sequence[FlowStartEvent], run_ids: Sequence[str]
) -> Sequence[str]:
    """Start runs under ids that a repetition of this request has too. All of them are stored when this returns."""
    name, is_signed = call.request.path_params["name"], call.principal.address_key is not None
    tags = {ADDRESS_TAG: call.principal.name} if is_signed else None

    async def start(event: FlowStartEvent, run_id: str) -> None:
        try:
            await call.runtime.starter.begin(name, event, run_id=run_id, tags=tags, code=flow)
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
    if is_signed and run_ids:
        # Who holds a key is known by it; who has called by an address is in the record only.
        made = run_ids[0] if len(run_ids) == 1 else f"{len(run_ids)} runs from {run_ids[0]}"
        await audit.note(call, "run.start", name, made, 202)
    return run_ids


# -- answers ----------------------------------------------------------------------------------------------------------


async def _answered(call: Call, run_id: str, wait: float | None, answers: _Answers) -> Response:
    """Answer with what the flow says, or with what there is to say in its place."""
    if not answers.has_response or answers.is_asynchronous:
        return await _accepted(call, run_id, is_pending=answers.has_response)
    limit = call.settings.response_timeout if wait is None else wait
    found = await while_serving(call, _found(call, run_id, limit)) if limit else None
    if found is not None and (found.said is not None or found.is_over):
        return await _final(call, run_id, found)
    if wait is not None:
        return await _accepted(call, run_id, is_pending=True)
    detail = f"Run {run_id!r} has given no response in {limit:g} seconds. It goes on."
    headers = {RUN_ID: run_id, RESPONSE: "pending", "Location": await _answer_address(call, run_id)}
    return problem_response(ApiProblem("response-late", detail, headers=headers), call.request.scope)


async def _accepted(call: Call, run_id: str, *, is_pending: bool) -> Response:
    """Answer 202, with the run for a caller with a key, and with the place of the answer if there will be one."""
    if call.principal.address_key is None:
        answer = await run_answer(call, await call.runtime.row(run_id), 202)
        answer.headers["Location"] = await _answer_address(call, run_id) if is_pending else call.address_of(run_id)
    else:
        answer = Response(status_code=202)
        if is_pending:
            answer.headers["Location"] = await _answer_address(call, run_id)
    answer.headers[RUN_ID] = run_id
    answer.headers[RESPONSE] = "pending" if is_pending else "none"
    if is_pending:
        answer.headers["Retry-After"] = str(call.settings.retry_after)
    return answer


async def _answer_address(call: Call, run_id: str) -> str:
    """Return the address of a run's answer: signed for a caller whose key does not open it, or who has none."""
    plain = f"{call.address_of(run_id)}/response"
    if call.principal.has("read") and call.principal.address_key is None:
        return plain
    name = (await call.runtime.row(run_id)).workflow
    definition = await call.runtime.definitions.stored.get(name)
    if definition is None:
        return plain  # a flow that the store has no definition of has no address either
    return f"{plain}?{await AnswerAddress(run_id, definition.address_key).query(call.runtime.signer)}"


async def _final(call: Call, run_id: str, found: _Found) -> Response:
    """Answer with the Response, or say that there is none and why: nothing will change that."""
    call.is_outcome = True
    answer = await response_of(found.said) if found.said is not None else None
    if answer is not None:
        answer.headers[RUN_ID] = run_id
        return answer
    headers = {RUN_ID: run_id, RESPONSE: "none"}
    if found.said is not None:
        problem = ApiProblem("no-response", f"The response of run {run_id!r} has no form in HTTP.", headers=headers)
        return problem_response(problem, call.request.scope)
    run = await rendered_run(call.runtime, await call.runtime.row(run_id), with_result=False)
    error = run.error
    if error is not None:
        error = replace(error, traceback=None, message=cut_text(error.message))
    words = f" {error.message}" if error is not None and error.message else ""
    detail = f"Run {run_id!r} has ended without a response: {run.status}.{words}"
    return problem_response(ApiProblem("no-response", detail, headers=headers, error=error), call.request.scope)


class _Found(NamedTuple):
    """What a run has said to its caller so far."""

    said: FlowResponse | None = None
    is_over: bool = False
    position: int = 0
    """Where its stream goes on, if the Response is not before."""


async def _found(call: Call, run_id: str, wait: float, start: int = 0) -> _Found:
    """Look for the Response on the stream of a run, and wait for it. The end of the run has it too."""
    reader = StreamReader(call.runtime, run_id, start)
    clock = asyncio.get_running_loop().time
    until = clock() + wait
    while not reader.is_over:
        page = await reader.page(max(0.0, until - clock()))
        for chunk in page:
            for entry in await reader.entries(chunk):
                published = entry.published
                if isinstance(published, EventRecord):
                    if isinstance(published.body, FlowResponse):
                        return _Found(published.body)
                    if isinstance(published.body, FlowEnd) and published.body.response is not None:
                        return _Found(_of_end(published.body.response))
        if not page and clock() >= until:
            break  # what is stored was read to its end
    return _Found(is_over=reader.is_over, position=reader.position)


def _of_end(said: dict[str, Any]) -> FlowResponse:
    return FlowResponse(said.get("statusCode", 200), said.get("headers") or {}, said.get("body"))


@route(
    "GET",
    "/v1/runs/{run_id}/response",
    "getResponse",
    scope="read",
    signed=Addresses.caller_of_answer,
    tag="runs",
    summary="Get what a flow has answered its caller",
    description="The address in `Location` of an answer that is still to come; signed, it needs no key.",
    params=(Param("wait", Seconds, "Wait for the answer, at most so many seconds, and at most 60."),),
    replies={
        202: Reply("It is still to come.", headers=("Location", "Loom-Response", "Loom-Run-ID", "Retry-After")),
        "default": Reply("What the flow's Response action says.", Any, (ANY,), headers=("Loom-Run-ID",)),
    },
    problems=("no-response",),
)
async def response(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/response`: 202 until the run has answered its caller, then what it has answered."""
    wait = call.seconds("wait", call.settings.max_wait) or 0.0
    row = await call.row()
    _check_flow(row)
    read = call.server.responses_from
    found = await while_serving(call, _found(call, row.run_id, wait, read.get(row.run_id) or 0))
    if found is not None and (found.said is not None or found.is_over):
        return await _final(call, row.run_id, found)
    if found is not None:
        read.put(row.run_id, found.position)  # who asks again and again does not make the server read it all again
    headers = {
        RUN_ID: row.run_id,
        RESPONSE: "pending",
        "Location": await _answer_address(call, row.run_id),
        "Retry-After": str(call.settings.retry_after),
    }
    return Response(status_code=202, headers=headers)


def _check_flow(row: RunRow) -> None:
    if row.document is None:
        raise invalid(f"Run {row.run_id!r} is no run of a flow, so it has no response: GET /v1/runs/{{run_id}}.")
