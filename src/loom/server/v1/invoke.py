"""Flows as endpoints: a request fires a flow's trigger, and the flow's Response action answers it.

May import the server's frame, loom.effects, loom.flows and loom.runtime.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import TYPE_CHECKING, Any

from loom.core.records import EventRecord
from loom.effects.flow_convert import FlowStartEvent
from loom.flows.calls import FlowResponse
from loom.flows.firing import FiringRefused, fired, request_trigger
from loom.runtime.flow import Flow
from loom.server.answers import JsonAnswer
from loom.server.flow_response import response_of
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route
from loom.server.served import served_code
from loom.server.starts import check_open
from loom.server.stream_reading import StreamReader
from loom.server.trigger_request import received
from loom.server.v1.runs import run_answer
from loom.server.views import run_view
from loom.server.waiting import while_serving
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import RunExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from loom.flows.program import Trigger
    from loom.runtime.shapes import Run
    from loom.server.routing import Call
    from loom.server.shapes import Page
    from loom.server.trigger_request import Received

ANSWERED_BY = "Loom-Run-ID"
"""The header that tells a flow's own answers from those of the server: the run that has given it."""
MAX_SPLIT = 1000
"""How many runs one request may start."""


async def invoke(call: Call) -> Response:
    """`POST /v1/definitions/{name}/invoke`, and what a trigger with a relative path has behind it."""
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
    """Start a run per element. Nobody could say which of them shall answer, so none is waited for."""
    if len(bodies) > MAX_SPLIT:
        raise invalid(f"One request starts {MAX_SPLIT} runs at most, and splitOn gives {len(bodies)} elements.")
    nonce = call.nonce or uuid.uuid4().hex
    starts = [start.model_copy(update={"body": body}) for body in bodies]
    run_ids = await _started(call, name, starts, [f"{nonce}-{index}" for index in range(len(starts))])
    rows = [await call.runtime.row(run_id) for run_id in run_ids]
    items = [await run_view(call.runtime, row, whole=False, with_result=False) for row in rows]
    page: Page[Run] = {"items": items, "next_cursor": None}
    return JsonAnswer(page, 202)


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
            await call.runtime.begin(name, event, run_id=run_id)
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


ROUTES = (
    Route("POST", "/v1/definitions/{name}/invoke", invoke, "start"),
    Route("POST", "/v1/definitions/{name}/invoke/{path:path}", invoke, "start"),
)
