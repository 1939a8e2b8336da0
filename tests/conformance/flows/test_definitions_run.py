"""Published definitions run to an end, twice the same in memory and once more in a database.

Their requests go to a server on the loopback, their waits pass on a virtual clock, their connectors are stubs.

`L…` need nothing but built-in actions, `C…` need connectors. `pytest -rP` shows for each how it ended and why.
`LOOM_DEFINITIONS` names another folder with definitions.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loopback_world import Reply, Request, World, loopback_world
from published_definitions import Prepared, prepared

import loom
from loom.core.reducer import replay
from loom.effects.actions.handlers import HANDLERS
from loom.effects.event_codec import read_field
from loom.flows.planner import FlowPlanner
from loom.steps.ports import definition_of
from loom.store import codec
from loom.store.sqlite import SqliteStore
from loom.testing import run_virtual

REPOSITORY = Path(__file__).parents[3]
SHARED = Path(os.environ.get("LOOM_DEFINITIONS", REPOSITORY.parent / "shared" / "logicapps" / "definitions"))
PATHS: list[Any] = sorted(SHARED.glob("[CL]*.json"))
if not PATHS:
    PATHS = [pytest.param(None, id="none", marks=pytest.mark.skip(reason=f"no published definitions in {SHARED}"))]

IMPLIED = {
    "C22": '"code": "400"',  # its own Terminate, for the guessed answers report errors
    "C25": '"code": "200"',  # its own Terminate, likewise
    "C26": "the text is no JSON",  # it cuts JSON out of a text, and the guessed text has none
    "C67": "fareoiugoareu",  # its own Terminate, which is what it is there to show
    "L15": "cannot read 'last_seen' of a value of kind String",  # it reads properties of lines that it has not parsed
    "L32": "The request needs a text as inputs.uri.",  # a template whose addresses are still to be filled in
}
"""The definitions that cannot end well here, and what of their errors says why."""

BY_CHANCE = {"L51": "Terminate_with_Failed"}
"""It divides by a random number that may be 0, and ends with a Terminate for either case."""

_ENDS = {"Succeeded", "Failed", "Cancelled", "TimedOut"}


@pytest.fixture
def world() -> Iterator[World]:
    with loopback_world() as world:
        yield world


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HANDLERS, "actions", {})


def answering(flow: Prepared) -> Any:
    """The server's side: the answer that fits the action which asks, after a 202 where the action is to be polled."""
    asked: set[str] = set()

    def answer(request: Request) -> Reply:
        if request.action in flow.override.polled and request.action not in asked:
            asked.add(request.action)
            return Reply({}, 202, {"Location": f"https://{request.host}/poll", "Retry-After": "30"})
        return Reply(flow.answer(request.action))

    return answer


def run(flow: Prepared, answer: Callable[[str], Any] | None = None, status: int = 200) -> loom.FlowResult:
    """One run, with all its waits, on a clock that jumps. `answer` and `status` are those of the connectors."""

    async def connector(inputs: Any, context: loom.ActionContext) -> Any:
        return {"statusCode": status, "headers": {}, "body": (answer or flow.answer)(context.action)}

    for kind in flow.stubs:
        loom.action(kind)(connector)

    async def main() -> loom.FlowResult:
        return await flow.flow.run(flow.body, **_start(flow), run_id="published")

    return run_virtual(main())


def run_stored(flow: Prepared, path: Path) -> loom.FlowResult:
    """One run in a database, whose journal must give the stored state again. Uses the connectors of the run before."""

    async def main() -> loom.FlowResult:
        async with loom.connect(SqliteStore(path)) as runtime:
            runtime.register(flow.flow, name="published")
            event = definition_of(flow.flow).start_event(None, {"body": flow.body, **_start(flow)})
            result: loom.FlowResult = await (await runtime.start("published", event, run_id="published"))
            ticks = [entry.tick async for entry in runtime.history("published")]
            again = replay(ticks, FlowPlanner(flow.flow.program), None, read_field)
            assert codec.encode_state(again) == codec.encode_state(await runtime.state_at("published"))
            return result

    return run_virtual(main())


def _start(flow: Prepared) -> dict[str, Any]:
    return {"parameters": flow.parameters, "headers": flow.override.headers}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: getattr(path, "stem", "none"))
def test_a_published_definition_runs_to_its_end(path: Path, world: World, tmp_path: Path, record_property: Any) -> None:
    flow = prepared(path)
    world.answer = answering(flow)
    result = run(flow)
    requests = len(world.asked)
    world.answer = answering(flow)
    assert msgspec.to_builtins(run(flow)) == msgspec.to_builtins(result), "two runs of the same flow are not the same"
    assert len(world.asked) == 2 * requests
    world.answer = answering(flow)
    stored = run_stored(flow, tmp_path / "runs.db")
    assert msgspec.to_builtins(stored) == msgspec.to_builtins(result), "in a database it is another run"

    number = path.name[:3]
    ran = sum(action.status != "Skipped" for action in result.actions.values())
    how = f"{number}: loaded, run, {result.status}, {ran} of {len(result.actions)} actions, {requests} requests"
    sys.stdout.write(f"{how}. {json.dumps(result.error) if result.error else ''}\n")
    assert result.status in _ENDS
    assert all(action.status in _ENDS | {"Skipped"} for action in result.actions.values())
    errors = json.dumps([result.error, *(action.error for action in result.actions.values())])
    if number in IMPLIED:
        assert result.status == "Failed"
        assert IMPLIED[number] in errors
    elif number in BY_CHANCE:
        assert (result.status == "Failed") == (result.actions[BY_CHANCE[number]].status == "Succeeded")
    else:
        assert result.status == "Succeeded", result.error
    record_property("published definitions run", 1)


@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: getattr(path, "stem", "none"))
def test_a_published_definition_ends_in_a_world_that_has_nothing_to_say(path: Path, world: World, status: int) -> None:
    flow = prepared(path)
    world.answer = lambda _request: Reply({}, status)
    result = run(flow, lambda _action: {}, status)
    assert result.status in _ENDS
    assert all(action.status in _ENDS | {"Skipped"} for action in result.actions.values())
