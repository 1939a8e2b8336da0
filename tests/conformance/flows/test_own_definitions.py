"""Definitions of each shape and pattern, written for this repository, with the ends that they must come to.

Each runs in memory and in a database, on a virtual clock; requests go to a server on the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_world import Reply, Request, World, loopback_world

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.store.sqlite import SqliteStore
from loom.testing import VIRTUAL_EPOCH, run_virtual

OWN = Path(__file__).parent / "own"
MASK = "*** secure ***"


@pytest.fixture
def world() -> Iterator[World]:
    with loopback_world() as world:
        yield world


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("actions", "activities", "ai_providers"):
        monkeypatch.setattr(HANDLERS, kind, {})


class Place:
    """Where flows run: in memory, or in a database of their own."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.events: list[loom.Event] = []

    def run(self, name: str, body: Any = None, **more: Any) -> loom.FlowResult:
        flow = loom.load(OWN / name)

        async def in_memory() -> loom.FlowResult:
            return await self._watched(flow.run(body, run_id="run-1", **more))

        async def in_a_database() -> loom.FlowResult:
            assert self._folder is not None
            async with loom.connect(SqliteStore(self._folder / "runs.db")) as runtime:
                runtime.register(flow, name="flow")
                return await self._watched(await runtime.start("flow", body, run_id="run-1", **more))

        return run_virtual(in_memory() if self._folder is None else in_a_database())

    def took(self, result: loom.FlowResult) -> float:
        """Seconds of virtual time."""
        return max(action.ended_at or 0.0 for action in result.actions.values()) - VIRTUAL_EPOCH

    async def _watched(self, handler: Any) -> loom.FlowResult:
        self.events = [event async for event in handler.stream_events(expose_internal=True)]
        return await handler  # type: ignore[no-any-return]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path if request.param == "sqlite" else None)


def statuses(result: loom.FlowResult) -> dict[str, str]:
    return {name: action.status for name, action in result.actions.items()}


def test_every_definition_loads_without_a_word() -> None:
    for path in sorted(OWN.iterdir()):
        assert [str(warning) for warning in loom.load(path).warnings] == [], path.name


ORDER = {"id": "o7", "lines": [{"sku": "nut", "quantity": 3}, {"sku": "bolt", "quantity": 2}]}


def test_an_order_in_consumption_form(place: Place, world: World) -> None:
    world.answer = lambda request: Reply({"price": {"nut": "0.5", "bolt": "1.25"}[request.path.rpartition("/")[2]]})
    result = place.run("consumption_order.json", ORDER)
    assert result.status == "Succeeded"
    expected = {"statusCode": 201, "headers": {"Location": "/orders/o7"}, "body": {"id": "o7", "total": 4.0}}
    assert result.response == expected
    assert result.outputs == {"total": 4.0}
    assert statuses(result)["Refuse"] == "Skipped"
    assert [request.host for request in world.asked] == ["prices.example"] * 2


def test_an_order_that_its_schema_refuses(place: Place, world: World) -> None:
    result = place.run("consumption_order.json", {"id": 7, "lines": []})
    assert result.response == {"statusCode": 400, "headers": {}, "body": "ValidationFailed"}
    # The answer's branch ends with a skipped leaf, which hands up the failed action before it.
    assert result.status == "Failed"
    assert not world.asked


class Job:
    """A server that is done when it has been asked often enough."""

    def __init__(self, polls: int) -> None:
        self._polls = polls

    def __call__(self, request: Request) -> Reply:
        if request.method == "POST":
            return Reply(None, 202, {"Location": "/jobs/1", "Retry-After": "45"})
        self._polls -= 1
        return Reply({"state": "running"}, 202) if self._polls else Reply({"state": "done"})


def test_polling_in_arm_form(place: Place, world: World) -> None:
    world.answer = Job(polls=3)
    result = place.run("arm_polling.json")
    assert result.status == "Succeeded"
    assert result.actions["Job"].outputs == {"state": "done", "status": 200, "deployed": "[parameters('workflowName')]"}
    assert statuses(result)["Too_slow"] == "Skipped"
    assert [request.method for request in world.asked] == ["POST", "GET", "GET", "GET"]
    assert place.took(result) == 45 + 20 + 20


def test_polling_that_takes_too_long(place: Place, world: World) -> None:
    world.answer = Job(polls=1_000)
    result = place.run("arm_polling.json")
    assert statuses(result)["Start_job"] == "TimedOut"
    assert result.actions["Too_slow"].outputs == "ActionTimedOut"
    assert result.status == "TimedOut"  # the skipped leaf hands up the action that timed out


def test_try_catch_finally_in_standard_form_when_all_is_well(place: Place, world: World) -> None:
    world.answer = lambda _request: Reply({"value": [1, 2, 3]})
    result = place.run("standard_try_catch_finally.json")
    assert result.status == "Succeeded"
    assert result.actions["Count"].outputs == 3
    assert statuses(result)["Catch"] == statuses(result)["Reasons"] == "Skipped"
    assert result.actions["Finally"].outputs == "tried, Succeeded"


def test_try_catch_finally_in_standard_form_when_it_fails(place: Place, world: World) -> None:
    world.answer = lambda _request: Reply({"error": "down"}, 503)
    result = place.run("standard_try_catch_finally.json")
    assert result.status == "Succeeded"
    assert result.actions["Reasons"].outputs == {"body": [{"action": "Load", "code": "ServiceUnavailable"}]}
    assert result.actions["Finally"].outputs == "tried, Failed"
    assert len(world.asked) == 3
    assert place.took(result) == 40.0
    assert len(result.actions["Load"].retry_history) == 2


def test_an_approval_in_power_automate_form(place: Place) -> None:
    asked: list[tuple[str, Any]] = []

    @loom.action("OpenApiConnection")
    async def items(inputs: Any) -> Any:
        asked.append(("items", inputs["parameters"]["table"]))
        return {"value": [{"Title": "Chairs"}, {"Title": "Desks"}]}

    @loom.action("OpenApiConnectionWebhook")
    async def approval(inputs: Any) -> Any:
        asked.append(("approval", inputs["parameters"]["WebhookApprovalCreationInput/title"]))
        return {"outcome": "Approve"}

    result = place.run("power_automate_approval.json")
    assert result.status == "Succeeded"
    assert result.actions["Accepted"].outputs == "Chairs; Desks"
    assert asked == [("items", "Requests"), ("approval", "Chairs")]


def test_a_rejection_in_power_automate_form(place: Place) -> None:
    loom.action("OpenApiConnection")(lambda _inputs: {"value": [{"Title": "Chairs"}]})
    loom.action("OpenApiConnectionWebhook")(lambda _inputs: {"outcome": "Reject"})
    result = place.run("power_automate_approval.json")
    assert result.status == "Cancelled"
    assert statuses(result)["Accepted"] == "Skipped"


def test_a_connector_that_nobody_has(place: Place) -> None:
    result = place.run("power_automate_approval.json")
    assert result.status == "Failed"
    assert result.actions["Get_items"].code == "ActionTypeNotSupported"
    assert '@loom.action("openapiconnection")' in str(result.actions["Get_items"].error).lower()


def test_nested_loops(place: Place) -> None:
    body = [{"name": "a", "rounds": 2, "letters": ["x", "y"]}, {"name": "b", "rounds": 1, "letters": ["z"]}]
    result = place.run("nested_loops.json", body)
    assert result.status == "Succeeded"
    assert result.actions["All"].outputs == {"body": "a0x a0y a1x a1y b0z"}
    assert result.actions["Outer"].iterations == 2
    assert result.variables["round"] == 1


def test_until_with_failing_iterations(place: Place) -> None:
    result = place.run("until_failing_iterations.json")
    assert result.status == "Succeeded"
    assert result.variables == {"n": 0, "failures": 2}
    assert result.actions["Report"].outputs == "2 failures, 3 iterations"
    assert result.actions["Until_it_works"].iterations == 3
    assert place.took(result) == 180.0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(2, "a number"), ("2", "a text"), (2.0, 2.0), (True, True), ("nested", "INNER"), (None, "nothing")],
)
def test_switch_by_kind(place: Place, kind: Any, expected: Any) -> None:
    result = place.run("switch_kinds.json", {"kind": kind})
    assert result.status == "Succeeded"
    assert result.actions["After"].outputs == expected
    assert type(result.actions["After"].outputs) is type(expected)


def test_variables_of_all_types(place: Place) -> None:
    result = place.run("variables.json")
    assert result.status == "Succeeded"
    assert result.actions["Known"].outputs == "InvalidVariableOperation"
    expected = {"flag": True, "count": 1, "share": 0.75, "text": "0.75", "list": [{"n": 1}]}
    assert result.variables == {**expected, "thing": {"0.75": [{"n": 1}]}}


def test_static_results(place: Place, world: World) -> None:
    result = place.run("static_results.json")
    assert result.status == "Succeeded"
    assert result.actions["Value"].outputs == [1, 2, 3]
    assert statuses(result)["Broken"] == "Failed"
    assert result.actions["Broken"].error == {"code": "BadGateway", "message": "down"}
    assert result.actions["Handled"].outputs == "BadGateway"
    assert [request.host for request in world.asked] == ["real.example"]


def test_secure_data_flows_but_is_not_shown(place: Place, world: World) -> None:
    world.answer = lambda request: Reply({"token": "t0ken"} if request.host == "login.example" else {"answer": 42})
    result = place.run("secure_data.json", parameters={"password": "s3cret"})
    assert result.status == "Succeeded"
    assert world.asked[0].json == {"user": "ada", "password": "s3cret"}
    assert world.asked[1].headers["authorization"] == "Bearer t0ken"
    assert result.actions["Open"].outputs == "seen 42"
    assert result.variables == {"token": MASK, "plain": "seen"}
    hidden = result.actions
    assert hidden["Login"].inputs == hidden["Login"].outputs == hidden["Token"].inputs == MASK
    assert hidden["Call"].inputs == MASK
    assert hidden["Length"].inputs == MASK
    shown = f"{result} {told(place)}"
    assert "t0ken" not in shown
    assert "s3cret" not in shown


def told(place: Place) -> str:
    """The stream, as people see it."""
    return " ".join(f"{type(event).__name__} {event!r} {dict(event)}" for event in place.events)


def test_an_agent_in_yaml(place: Place) -> None:
    prompts: list[str] = []
    tries: list[int] = []

    @loom.ai_provider("thinker")
    async def think(request: Any) -> Any:
        prompts.append(str(request))
        return {"action": "CALCULATE", "input": "6*7"} if len(prompts) < 3 else {"action": "FINAL_ANSWER"}

    @loom.activity("calculator")
    async def calculate(text: str) -> int:
        left, _, right = text.partition("*")
        return int(left) * int(right)

    @loom.activity("flaky")
    async def flaky() -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "right"

    result = place.run("loom_agent.yaml")
    assert result.status == "Succeeded"
    assert result.outputs == {"answer": "42 42 nothing"}
    assert result.actions["agent"].iterations == 3
    assert result.actions["both"].outputs == {"left": "left", "right": "right"}
    assert place.took(result) == 2 * 3 + 2 * 10
    assert [event.iteration for event in place.events if isinstance(event, loom.LoopIterationEvent)] == [0, 1, 2]
