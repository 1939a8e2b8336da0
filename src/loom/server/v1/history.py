"""The past and the present of a run: its ticks, its state, its loops and actions. Secure data of flows is masked.

May import the server's frame, loom.core, loom.flows and loom.runtime.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from starlette.responses import Response

from loom.core import ticks as core_ticks
from loom.core.reducer import replay_steps
from loom.effects.threads import aside, aside_if_large
from loom.runtime.flow_details import shown_dict
from loom.runtime.plain import iso
from loom.runtime.planners import planner_for
from loom.runtime.views import flow_of, masking_for, state_view, tick_view
from loom.server.answers import JsonAnswer, json_answer, json_bytes
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route
from loom.server.views import PAGE_BYTES, is_known
from loom.store import codec
from loom.store.errors import HistoryGone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.commands import WorkflowCommand
    from loom.core.draft import FieldReader
    from loom.core.planner import Planner
    from loom.core.state import BrokerState
    from loom.flows.progress import ActionState
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.masking import Masking, ScheduleMasking
    from loom.runtime.shapes import Action, Loop
    from loom.server.routing import Call
    from loom.server.shapes import Page
    from loom.store.records import Chunk, RunRow

_TYPES = frozenset(name for name in vars(core_ticks) if name.startswith("Tick") and name != "Tick")
_CHUNKS = 64
_FOREVER = "private, max-age=31536000, immutable"


async def why(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/why`."""
    call.check_query()
    row = await call.row()
    return JsonAnswer(msgspec.to_builtins(await call.runtime.why(row.run_id)))


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
    if after + 1 < row.first_tick:
        raise HistoryGone(row.run_id, f"its history begins with tick {row.first_tick}")
    masking = await masking_for(call.runtime, row)
    led_to = await _commands(call, row) if call.flag("commands") else None
    items: list[msgspec.Raw] = []
    size, last, more = 0, 0, False
    async for entry in call.runtime.history(row.run_id, start=after + 1):
        if wanted and type(entry.tick).__name__ not in wanted:
            continue
        if len(items) == limit:
            more = True
            break
        item = await aside_if_large(partial(_item, masking, led_to), entry)
        size += len(item)
        if items and size > PAGE_BYTES:
            more = True
            break
        items.append(msgspec.Raw(item))
        last = entry.seq
        await asyncio.sleep(0)  # each takes a few milliseconds, and a page has hundreds
    page: Page[Any] = {"items": items, "next_cursor": str(last) if more else None}
    return JsonAnswer(page)


def _item(
    masking: Masking | ScheduleMasking | None, led_to: dict[int, list[dict[str, Any]]] | None, entry: HistoryEntry
) -> bytes:
    """Write a tick out, as an item of its page."""
    item = tick_view(entry, masking)
    if led_to is not None:
        item["commands"] = led_to.get(entry.seq, [])
    return json_bytes(item)


def _number(call: Call, name: str) -> int:
    found = call.number(name, least=-1)
    return -1 if found is None else found


async def _commands(call: Call, row: RunRow) -> dict[int, list[dict[str, Any]]]:
    """What each tick led to, by replay: names and numbers only, for what they carry stands in the ticks."""
    if row.first_tick > 0:
        raise HistoryGone(row.run_id, "what its ticks led to cannot be told any more")
    store = call.runtime.store
    text = await store.document(row.document) if row.document is not None else None
    replaying = Replaying(row.run_id, planner_for(text), call.runtime.field_reader(row))
    while chunks := await store.chunks(row.run_id, replaying.ticks, _CHUNKS):
        # A long journal takes a while: it is decoded and reduced in a thread, and others go on.
        await aside("replay", replaying.go_on, chunks)
    return replaying.led_to


class Replaying:
    """The replay of a journal, a few chunks at a time."""

    def __init__(self, run_id: str, planner: Planner, read_field: FieldReader) -> None:
        self.ticks = 0
        self.led_to: dict[int, list[dict[str, Any]]] = {}
        """By tick, the commands that it led to."""
        self._run_id, self._planner, self._read_field = run_id, planner, read_field
        self._state: BrokerState | None = None

    def go_on(self, chunks: Sequence[Chunk]) -> None:
        """Reduce the next ticks."""
        ticks = [
            tick
            for chunk in chunks
            for number, tick in enumerate(codec.decode_ticks(self._run_id, chunk), chunk.first_tick)
            if number >= self.ticks
        ]
        for _, state, commands in replay_steps(ticks, self._planner, self._state, self._read_field):
            self.led_to[self.ticks] = [_command(command) for command in commands]
            self._state = state
            self.ticks += 1


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
    mark = f'"{row.run_id}@{tick}-{row.created_at}"'  # another run may have had the id before
    if tick is not None and row.first_tick <= tick < row.head.ticks and is_known(call.request.headers, mark):
        return Response(status_code=304, headers={"ETag": mark, "Cache-Control": _FOREVER})
    try:
        shown = await state_view(call.runtime, row, tick)
    except ValueError as error:
        raise invalid(str(error)) from error
    # A past state never changes.
    headers = {"ETag": mark, "Cache-Control": _FOREVER} if tick is not None else {}
    return await json_answer(shown, headers=headers)


async def loops(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/loops`."""
    call.check_query("all")
    ended = call.flag("all")
    row = await call.row()
    flow = await flow_of(call.runtime, row, await call.runtime.state_at(row.run_id), None)
    running = [] if flow is None else flow.loops
    items = [cast("Loop", {**shown_dict(loop), "status": "running"}) for loop in running]
    if flow is not None and ended:
        under_way = {loop.name for loop in running}
        items += [
            _ended_loop(each)
            for each in flow.actions
            if each.iterations is not None and each.ended is not None and each.name not in under_way
        ]
    page: Page[Loop] = {"items": items, "next_cursor": None}
    return await json_answer(page)


def _ended_loop(loop: ActionState) -> Loop:
    """A loop that is over, by what is left of it: its limits and its condition stand in the definition."""
    begun, ended = loop.started or 0.0, loop.ended or 0.0
    return {
        "name": loop.name,
        "path": loop.path,
        "type": loop.type,
        "status": _LOOP_ENDS.get(loop.status, "failed"),
        "condition": None,
        "condition_result": None,
        "iteration": loop.iterations or 0,
        "max_iterations": None,
        "timeout": None,
        "start_time": iso(loop.started),
        "duration": max(0.0, ended - begun),
        "last_result": loop.outputs,
        "next_iteration_at": None,
        "parent": loop.path.rpartition("/")[0] or None,
    }


_LOOP_ENDS: dict[str, Literal["complete", "timeout"]] = {"Succeeded": "complete", "TimedOut": "timeout"}


async def actions(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/actions`."""
    call.check_query("path")
    path = call.query("path")
    row = await call.row()
    if row.document is None:
        raise ApiProblem("invalid-request", f"Run {row.run_id!r} is no flow: it has steps, which its state shows.")
    flow = await flow_of(call.runtime, row, await call.runtime.state_at(row.run_id), None)
    found = [] if flow is None else flow.actions
    items = [cast("Action", shown_dict(action)) for action in found if path in (None, action.path)]
    page: Page[Action] = {"items": items, "next_cursor": None}
    return await json_answer(page)


ROUTES = (
    Route("GET", "/v1/runs/{run_id}/why", why, "read"),
    Route("GET", "/v1/runs/{run_id}/history", history, "read"),
    Route("GET", "/v1/runs/{run_id}/state", state, "read"),
    Route("GET", "/v1/runs/{run_id}/loops", loops, "read"),
    Route("GET", "/v1/runs/{run_id}/actions", actions, "read"),
)
