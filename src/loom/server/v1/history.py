"""The past and the present of a run: its ticks, its state, its loops and actions. Secure data of flows is masked.

May import the server's frame, loom.core, loom.flows and loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from loom.core import ticks as core_ticks
from loom.core.replay import replay_steps
from loom.effects.stored_state import kept_text
from loom.flows.progress import LoopProgress
from loom.runtime.code import planner_for
from loom.runtime.details import end_of_run, flow_status, program_of_row, shown_dict, state_details
from loom.runtime.masking import Masking
from loom.runtime.plain import iso, plain, stored_value
from loom.server.answers import JsonAnswer
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route
from loom.server.v1.runs import check_kept

if TYPE_CHECKING:
    from loom.core.commands import WorkflowCommand
    from loom.core.state import BrokerState
    from loom.flows.progress import ActionState
    from loom.runtime.details import FlowStatus
    from loom.server.routing import Call
    from loom.store.records import RunRow

_TYPES = frozenset(name for name in vars(core_ticks) if name.startswith("Tick") and name != "Tick")
_FOREVER = "private, max-age=31536000, immutable"


async def history(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/history`."""
    call.check_query("after", "type", "limit", "cursor", "commands")
    wanted = call.request.query_params.getlist("type")
    for name in wanted:
        if name not in _TYPES:
            raise invalid(f"The type {name[:100]!r} is not known: use {', '.join(sorted(_TYPES))}.")
    limit = call.page_size()
    after = max(_number(call, "after"), _number(call, "cursor"))
    row = await call.row()
    check_kept(row, after + 1)
    program = await program_of_row(call.runtime, row)
    masking = Masking(program) if program is not None else None
    led_to = await _commands(call, row) if call.flag("commands") else None
    items: list[dict[str, Any]] = []
    more = False
    async for seq, at, entry in call.runtime.history(row.run_id, start=after + 1):
        if wanted and type(entry).__name__ not in wanted:
            continue
        if len(items) == limit:
            more = True
            break
        tick = masking.tick(entry) if masking is not None else entry
        item = {"seq": seq, "at": iso(at), "tick": {"type": type(tick).__name__, **plain(tick)}}
        items.append(item if led_to is None else {**item, "commands": led_to.get(seq, [])})
    return JsonAnswer({"items": items, "next_cursor": str(items[-1]["seq"]) if more else None})


def _number(call: Call, name: str) -> int:
    found = call.number(name, least=-1)
    return -1 if found is None else found


async def _commands(call: Call, row: RunRow) -> dict[int, list[dict[str, Any]]]:
    """What each tick led to, by replay: names and numbers only, for what they carry stands in the ticks."""
    check_kept(row)
    text = await call.runtime.store.document(row.document) if row.document is not None else None
    ticks = [entry.tick async for entry in call.runtime.history(row.run_id)]
    steps = replay_steps(ticks, planner_for(text), read_field=call.runtime.convert_of(row).field)
    return {number: [_command(command) for command in commands] for number, (_, _, commands) in enumerate(steps)}


def _command(command: WorkflowCommand) -> dict[str, Any]:
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    shown = {name: value for name, value in fields.items() if name in _TOLD and isinstance(value, str | int | float)}
    return {"type": type(command).__name__, **shown}


_TOLD = frozenset({"step", "item", "execution", "timer", "due", "purpose", "child", "run_id", "workflow", "worker_id"})


async def state(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/state`."""
    call.check_query("tick")
    tick = call.number("tick")
    row = await call.row()
    mark = f'"{row.run_id}@{tick}"'
    if tick is not None:
        _check_tick(row, tick)
        if call.request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers={"ETag": mark, "Cache-Control": _FOREVER})
    found = await call.runtime.state_at(row.run_id, tick)
    flow = await _flow(call, row, found, tick)
    shown: dict[str, Any] = {
        "run_id": row.run_id,
        "tick": row.head.ticks - 1 if tick is None else tick,
        "at": iso(found.at),
        "is_running": found.is_running,
        "idle_since": iso(found.idle_since),
        **state_details(found),
        "loops": [],
    }
    if flow is not None:
        shown |= flow.as_dict()
    else:
        shown["store"] = {key: stored_value(kept_text(text)) for key, text in sorted(found.store.items())}
    # A past state never changes.
    headers = {"ETag": mark, "Cache-Control": _FOREVER} if tick is not None else {}
    return JsonAnswer(shown, headers=headers)


def _check_tick(row: RunRow, tick: int) -> None:
    check_kept(row, tick)
    if tick >= row.head.ticks:
        raise invalid(f"Run {row.run_id!r} has {row.head.ticks} ticks: there is no tick {tick}.")


async def _flow(call: Call, row: RunRow, found: BrokerState, tick: int | None) -> FlowStatus | None:
    program = await program_of_row(call.runtime, row)
    if program is None:
        return None
    at = call.runtime.now() if tick is None and row.head.status == "running" else found.at
    end = await end_of_run(call.runtime, row.run_id) if tick is None else None
    return flow_status(program, found, at, end)


async def loops(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/loops`."""
    call.check_query("all")
    ended = call.flag("all")
    row = await call.row()
    flow = await _flow(call, row, await call.runtime.state_at(row.run_id), None)
    running = [] if flow is None else flow.loops
    items = [{**shown_dict(loop), "status": "running"} for loop in running]
    if flow is not None and ended:
        under_way = {loop.name for loop in running}
        items += [
            _ended_loop(each)
            for each in flow.actions
            if each.iterations is not None and each.ended is not None and each.name not in under_way
        ]
    return JsonAnswer({"items": items, "next_cursor": None})


def _ended_loop(loop: ActionState) -> dict[str, Any]:
    """A loop that is over, by what is left of it: its limits and its condition stand in the definition."""
    begun, ended = loop.started or 0.0, loop.ended or 0.0
    known = {
        "name": loop.name,
        "path": loop.path,
        "type": loop.type,
        "status": _LOOP_ENDS.get(loop.status, "failed"),
        "iteration": loop.iterations,
        "start_time": iso(loop.started),
        "duration": max(0.0, ended - begun),
        "last_result": loop.outputs,
        "parent": loop.path.rpartition("/")[0] or None,
    }
    return {**dict.fromkeys(LoopProgress.__struct_fields__), **known}


_LOOP_ENDS = {"Succeeded": "complete", "TimedOut": "timeout"}


async def actions(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/actions`."""
    call.check_query("path")
    path = call.query("path")
    row = await call.row()
    if row.document is None:
        raise ApiProblem("invalid-request", f"Run {row.run_id!r} is no flow: it has steps, which its state shows.")
    flow = await _flow(call, row, await call.runtime.state_at(row.run_id), None)
    found = [] if flow is None else flow.actions
    items = [shown_dict(action) for action in found if path in (None, action.path)]
    return JsonAnswer({"items": items, "next_cursor": None})


ROUTES = (
    Route("GET", "/v1/runs/{run_id}/history", history, "read"),
    Route("GET", "/v1/runs/{run_id}/state", state, "read"),
    Route("GET", "/v1/runs/{run_id}/loops", loops, "read"),
    Route("GET", "/v1/runs/{run_id}/actions", actions, "read"),
)
