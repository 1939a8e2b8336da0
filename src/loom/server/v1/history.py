"""A run now and before: its ticks, its state, its loops and actions, and whether its journal still replays.

Secure data of flows is masked.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from loom.api.answers import Page
from loom.api.runs import HistoryItem, Replay
from loom.api.state import Action, Loop, State
from loom.api.why import Why
from loom.core import ticks as core_ticks
from loom.core.reducer import replay_steps
from loom.effects.off_loop import aside, aside_if_large
from loom.runtime.planners import planner_for
from loom.runtime.render import flow_of, masking_for, rendered_state, rendered_tick
from loom.runtime.render_flow import rendered_actions, rendered_loops
from loom.runtime.render_views import rendered_repetition
from loom.runtime.verification import replayed_run
from loom.server.answers import JsonAnswer, is_known, json_answer, json_bytes
from loom.server.pages import PAGE_BYTES
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import CURSOR, IF_NONE_MATCH, LIMIT, After, Number, Param, Reply, RouteList
from loom.server.v1.runs import SAME
from loom.store import codec
from loom.store.errors import HistoryGone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.commands import WorkflowCommand
    from loom.core.planner import Planner
    from loom.core.reducer import FieldReader
    from loom.core.state import BrokerState
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.masking import AnyMasking
    from loom.server.call import Call
    from loom.store.records import Chunk, RunRow

route = RouteList("runs")

_TYPES = frozenset(name for name in vars(core_ticks) if name.startswith("Tick") and name != "Tick")
_CHUNKS = 64
_FOREVER = "private, max-age=31536000, immutable"


@route(
    "GET",
    "/v1/runs/{run_id}/why",
    "whyRun",
    scope="read",
    summary="Ask what holds a run now",
    replies={200: Reply("One sentence, and its causes as data.", Why)},
)
async def why(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/why`."""
    call.check_query()
    row = await call.row()
    return JsonAnswer(await call.runtime.why(row.run_id))


@route(
    "GET",
    "/v1/runs/{run_id}/history",
    "getHistory",
    scope="read",
    summary="Read the ticks of a run",
    params=(
        Param("after", After, "Begin behind this tick."),
        Param("type", list[str], "Only ticks of these types, such as `TickAddEvent`."),
        Param("commands", bool, "Add what each tick led to, by replay."),
        LIMIT,
        Param("cursor", After, CURSOR.description),
    ),
    replies={200: Reply("A page of ticks.", Page[HistoryItem])},
    problems=("history-gone",),
)
async def history(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/history`."""
    call.check_query()
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
    return JsonAnswer(Page[Any](items=items, next_cursor=str(last) if more else None))


def _item(
    masking: AnyMasking | None,
    led_to: dict[int, list[dict[str, Any]]] | None,
    entry: HistoryEntry,
) -> bytes:
    """Write a tick out, as an item of its page."""
    return json_bytes(rendered_tick(entry, masking, led_to.get(entry.seq, []) if led_to is not None else None))


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


@route(
    "GET",
    "/v1/runs/{run_id}/state",
    "getState",
    scope="read",
    summary="Look at the state of a run, now or after a past tick",
    params=(Param("tick", Number, "After this tick; a past state never changes."), IF_NONE_MATCH),
    replies={200: Reply("The state.", State), 304: SAME},
    problems=("history-gone",),
)
async def state(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/state`."""
    call.check_query()
    tick = call.number("tick")
    row = await call.row()
    mark = f'"{row.run_id}@{tick}-{row.created_at}"'  # another run may have had the id before
    if tick is not None and row.first_tick <= tick < row.head.ticks and is_known(call.request.headers, mark):
        return Response(status_code=304, headers={"ETag": mark, "Cache-Control": _FOREVER})
    try:
        shown = await rendered_state(call.runtime, row, tick)
    except ValueError as error:
        raise invalid(str(error)) from error
    # A past state never changes.
    headers = {"ETag": mark, "Cache-Control": _FOREVER} if tick is not None else {}
    return await json_answer(shown, headers=headers)


@route(
    "GET",
    "/v1/runs/{run_id}/loops",
    "getLoops",
    scope="read",
    summary="See how far the loops of a flow are",
    params=(Param("all", bool, "Also those that have ended."),),
    replies={200: Reply("Its loops.", Page[Loop])},
)
async def loops(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/loops`."""
    call.check_query()
    ended = call.flag("all")
    row = await call.row()
    flow = await flow_of(call.runtime, row, await call.runtime.state_at(row.run_id), None)
    items = rendered_loops(flow, ended=bool(ended)) if flow is not None else []
    return await json_answer(Page[Loop](items=items))


@route(
    "GET",
    "/v1/runs/{run_id}/actions",
    "getActions",
    scope="read",
    summary="See what became of the actions of a flow",
    params=(Param("path", str, "One action of one repetition, such as `outer[2]/inner`."),),
    replies={200: Reply("Its actions.", Page[Action])},
    problems=("history-gone",),
)
async def actions(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/actions`."""
    call.check_query()
    path = call.query("path")
    row = await call.row()
    if row.document is None:
        raise ApiProblem("invalid-request", f"Run {row.run_id!r} is no flow: it has steps, which its state shows.")
    flow = await flow_of(call.runtime, row, await call.runtime.state_at(row.run_id), None)
    items = rendered_actions(flow, path) if flow is not None else []
    if not items and path is not None:
        items = await rendered_repetition(call.runtime, row, path)  # a later repetition has taken its place
    return await json_answer(Page[Action](items=items))


@route(
    "GET",
    "/v1/runs/{run_id}/replay",
    "replayRun",
    scope="read",
    summary="See whether the journal of a run still gives what is stored",
    replies={200: Reply("What a replay has found.", Replay)},
    problems=("result-unreadable",),
)
async def replay(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/replay`."""
    call.check_query()
    row = await call.row()
    return JsonAnswer(await replayed_run(call.runtime, row.run_id))
