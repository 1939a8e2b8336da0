"""The unmodified llama-agents-client from PyPI drives a real Loom server, through every method that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from compat_server import HttpServer, register_all, serving
from llama_agents.client import WorkflowClient
from workflows.events import Event as ClientEvent
from workflows.events import HumanResponseEvent as ClientResponse
from workflows.events import StartEvent as ClientStart

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.auth import new_key


class Answer(ClientResponse):
    """The client's own idea of the event, by the same name."""

    text: str


class Greeting(ClientStart):
    name: str


class Nudge(ClientEvent):
    count: int


class Progress(ClientEvent):
    """An event that only the workflow itself makes."""

    number: int


@pytest.fixture(params=["memory", "sqlite"])
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DurableRuntime]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as connected:
        register_all(connected)
        yield connected


@pytest.fixture
async def server(runtime: DurableRuntime) -> AsyncIterator[HttpServer]:
    async with serving(runtime) as started:
        yield started


@pytest.fixture
def client(server: HttpServer) -> WorkflowClient:
    return WorkflowClient(base_url=server.url)


async def seen(stream: Any) -> list[str]:
    return [event.type async for event in stream]


def status_of(error: pytest.ExceptionInfo[httpx.HTTPStatusError]) -> int:
    return error.value.response.status_code


# -- what there is ----------------------------------------------------------------------------------------------------


async def test_health_and_workflows(client: WorkflowClient) -> None:
    assert (await client.is_healthy()).status == "healthy"
    assert (await client.list_workflows()).workflows == ["ask", "await", "break", "count", "flow", "greet"]


async def test_schemas(client: WorkflowClient) -> None:
    schema = await client.get_workflow_schema("greet")
    assert schema.start["title"] == "Greeting"
    assert schema.stop["properties"]["text"] == {"title": "Text", "type": "string"}
    assert (await client.get_workflow_schema("flow")).start == {"type": "object"}
    titles = {found["title"] for found in (await client.get_workflow_events_schema("ask")).events}
    assert {"StartEvent", "StopEvent", "Question", "Answer"} <= titles
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.get_workflow_schema("nothing")
    assert status_of(error) == 404


async def test_graphs_of_both_kinds(client: WorkflowClient) -> None:
    graph = (await client.get_workflow_graph("ask")).graph
    assert {"ask", "answered"} <= {node.id for node in graph.nodes}
    flow = (await client.get_workflow_graph("flow")).graph
    assert [(edge.source, edge.target) for edge in flow.edges] == [("trigger:manual", "Greet"), ("Greet", "Shout")]


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_run_gives_the_whole_handler(client: WorkflowClient) -> None:
    done = await client.run_workflow("greet", start_event=Greeting(name="Ada"))
    assert (done.status, done.workflow_name, done.error) == ("completed", "greet", None)
    assert done.handler_id == done.run_id
    assert done.result is not None
    assert done.result.model_dump() == {
        "value": {"text": "Hello Ada"},
        "type": "Greeted",
        "types": ["StopEvent"],
        "qualified_name": "compat_server.Greeted",
    }
    assert done.started_at.endswith("+00:00")
    assert done.completed_at is not None
    assert (await client.get_handler(done.handler_id)) == done
    assert (await client.get_result(done.handler_id)) == done


async def test_start_events_come_in_every_form(client: WorkflowClient) -> None:
    for start in (Greeting(name="Ada"), {"name": "Ada", "value": 3}, {"type": "Greeting", "value": {"name": "Ada"}}):
        assert (await client.run_workflow("greet", start_event=start)).status == "completed"
        handler = await client.run_workflow_nowait("greet", start_event=start)
        assert handler.status == "running"
        assert (await client.wait_for_handler(handler.handler_id, poll_interval=0.01)).status == "completed"
    # Undeclared fields, and no start event at all.
    with_fields = await client.run_workflow("count", start_event=ClientStart(given=7))
    assert with_fields.result is not None
    assert with_fields.result.value == {"result": {"seen": 1, "given": 7}}
    assert (await client.run_workflow("count")).status == "completed"


async def test_bad_starts_are_400(client: WorkflowClient, runtime: DurableRuntime) -> None:
    for start in ({"nobody": 1}, {"type": "Nonsense", "value": {}}, {"type": "Greeting", "value": 3}):
        with pytest.raises(httpx.HTTPStatusError) as error:
            await client.run_workflow_nowait("greet", start_event=start)
        assert status_of(error) == 400
        assert list(error.value.response.json()) == ["detail"]
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.run_workflow("greet", start_event=Greeting(name="Ada"), context={"state": {}})
    assert status_of(error) == 400
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.run_workflow("nothing")
    assert status_of(error) == 404
    assert [run async for run in runtime.list()] == []


async def test_failure_is_a_500_with_the_handler(client: WorkflowClient) -> None:
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.run_workflow("break")
    assert status_of(error) == 500
    body = error.value.response.json()
    assert (body["status"], body["result"]) == ("failed", None)
    assert "it broke" in body["error"]
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.get_handler(body["handler_id"])
    assert status_of(error) == 500
    assert error.value.response.json() == body
    assert (await seen(client.get_workflow_events(body["handler_id"])))[-1] == "WorkflowFailedEvent"


# -- streams and events -----------------------------------------------------------------------------------------------


async def test_stream_from_the_beginning_and_from_a_cursor(client: WorkflowClient) -> None:
    done = await client.run_workflow("greet", start_event=Greeting(name="Ada"))
    stream = client.get_workflow_events(done.handler_id)
    numbers = []
    async for event in stream:
        numbers.append(event.value.get("number"))
        if event.value.get("number") == 1:
            break
    await stream.aclose()
    later = client.get_workflow_events(done.handler_id, after_sequence=stream.last_sequence)
    assert await seen(later) == ["Progress", "Greeted"]
    assert numbers == [0, 1]
    # Behind the end there is nothing: 204, which the client takes for the end.
    assert await seen(client.get_workflow_events(done.handler_id, after_sequence=later.last_sequence)) == []
    internal = await seen(client.get_workflow_events(done.handler_id, include_internal_events=True))
    assert "StepStateChanged" in internal


async def test_unknown_handlers(client: WorkflowClient) -> None:
    with pytest.raises(ValueError, match="Handler not found"):
        await seen(client.get_workflow_events("nobody"))
    for call in (
        client.get_handler("nobody"),
        client.send_event("nobody", Answer(text="x")),
        client.cancel_handler("nobody"),
    ):
        with pytest.raises(httpx.HTTPStatusError) as error:
            await call
        assert status_of(error) == 404


async def test_question_and_answer(client: WorkflowClient) -> None:
    handler = await client.run_workflow_nowait("ask")
    types = []
    async for event in client.get_workflow_events(handler.handler_id):
        types.append(event.type)
        if event.type == "Question":
            assert event.types == ["InputRequiredEvent"]
            assert (await client.get_handler(handler.handler_id)).status == "running"
            assert (await client.send_event(handler.handler_id, Answer(text="Ada"))).status == "sent"
    assert types == ["Question", "StopEvent"]
    done = await client.get_handler(handler.handler_id)
    assert done.result is not None
    assert done.result.value == {"result": "Ada!"}
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.send_event(handler.handler_id, Answer(text="late"))
    assert status_of(error) == 409


async def test_bad_events_are_400(client: WorkflowClient) -> None:
    handler = await client.run_workflow_nowait("ask")
    bad: list[tuple[Any, str | None]] = [
        ({"type": "Nonsense", "value": {}}, None),
        ({"qualified_name": "os.system", "data": {"command": "true"}}, None),
        ({"type": "Answer", "value": {"text": []}}, None),
        ({"text": "no envelope"}, None),
        (Answer(text="x"), "nowhere"),
        (Answer(text="x"), "ask"),
    ]
    for event, step in bad:
        with pytest.raises(httpx.HTTPStatusError) as error:
            await client.send_event(handler.handler_id, event, step)
        assert status_of(error) == 400, (event, step)
    legacy = {"qualified_name": "compat_server.Answer", "data": {"text": "old"}}
    await client.send_event(handler.handler_id, legacy, step="answered")
    assert (await client.wait_for_handler(handler.handler_id, poll_interval=0.01)).status == "completed"


async def test_without_keys_an_internal_event_may_be_sent(client: WorkflowClient) -> None:
    """As the client's own tests do with a `GreetEvent`: a caller on this machine is an administrator."""
    handler = await client.run_workflow_nowait("ask")
    for event in (Progress(number=1), {"type": "Progress", "value": {"number": 2}}):
        assert (await client.send_event(handler.handler_id, event)).status == "sent"
    await client.send_event(handler.handler_id, Answer(text="Ada"))
    assert (await client.wait_for_handler(handler.handler_id, poll_interval=0.01)).status == "completed"


async def test_an_event_that_only_a_waiter_knows(client: WorkflowClient) -> None:
    handler = await client.run_workflow_nowait("await")
    async for event in client.get_workflow_events(handler.handler_id, include_internal_events=True):
        if event.type == "WorkflowIdleEvent":
            await client.send_event(handler.handler_id, Nudge(count=4))
    done = await client.get_handler(handler.handler_id)
    assert done.result is not None
    assert done.result.value == {"result": 4}


async def test_a_broken_stream_is_gone_on_with(runtime: DurableRuntime) -> None:
    types: list[str] = []
    begun = asyncio.Event()

    async def read(stream: Any) -> None:
        async for event in stream:
            types.append(event.type)
            begun.set()

    async with serving(runtime) as first:
        port = int(first.url.rpartition(":")[2])
        client = WorkflowClient(base_url=first.url)
        handler = await client.run_workflow_nowait("ask")
        reading = asyncio.create_task(
            read(client.get_workflow_events(handler.handler_id, max_reconnect_attempts=100_000))
        )
        await begun.wait()
    assert not reading.done()  # a server that stops breaks streams: it does not end them
    async with serving(runtime, port):
        await client.send_event(handler.handler_id, Answer(text="again"))
        await reading
    assert types == ["Question", "StopEvent"]


# -- handlers ---------------------------------------------------------------------------------------------------------


async def test_handlers_by_filter(client: WorkflowClient) -> None:
    greeted = await client.run_workflow("greet", start_event=Greeting(name="Ada"))
    asking = await client.run_workflow_nowait("ask")
    with pytest.raises(httpx.HTTPStatusError):
        await client.run_workflow("break")

    async def found(**filters: Any) -> list[str]:
        return [handler.workflow_name for handler in (await client.get_handlers(**filters)).handlers]

    assert await found() == ["break", "ask", "greet"]  # newest first
    assert await found(status=["running"]) == ["ask"]
    assert await found(status=["completed", "failed"]) == ["break", "greet"]
    assert await found(workflow_name=["ask", "greet"]) == ["ask", "greet"]
    assert await found(status=["completed"], workflow_name=["ask"]) == []
    listed = (await client.get_handlers(workflow_name=["greet", "ask"])).handlers
    assert [handler.handler_id for handler in listed] == [asking.handler_id, greeted.handler_id]
    assert listed[1] == greeted


async def test_idle_handlers_and_pages(client: WorkflowClient, server: HttpServer) -> None:
    waiting = [(await client.run_workflow_nowait("await")).handler_id for _ in range(3)]
    for handler_id in waiting:
        async with aclosing(client.get_workflow_events(handler_id, include_internal_events=True)) as stream:
            async for event in stream:
                if event.type == "WorkflowIdleEvent":
                    break
    async with httpx.AsyncClient(base_url=server.url) as http:
        idle = (await http.get("/handlers", params={"idle": "true"})).json()
        assert [handler["handler_id"] for handler in idle["handlers"]] == waiting[::-1]
        assert idle["handlers"][0]["idle_since"] is not None
        assert idle["handlers"][0]["active_waiters"][0]["event_type"].endswith("Nudge")
        assert (await http.get("/handlers", params={"idle_duration_gt": "300"})).json()["handlers"] == []
        pages, cursor = [], ""
        while cursor is not None:
            page = (await http.get("/handlers", params={"limit": "2", "cursor": cursor})).json()
            pages.append([handler["handler_id"] for handler in page["handlers"]])
            cursor = page["next_cursor"]
        assert pages == [waiting[:0:-1], waiting[:1]]
        assert (await http.get("/handlers", params={"status": "strange"})).json()["handlers"] == []
        for wrong in ({"idle": "perhaps"}, {"cursor": "x"}, {"limit": "0"}, {"idle_duration_gt": "-1"}):
            assert (await http.get("/handlers", params=wrong)).status_code == 400


async def test_a_handler_is_a_name_for_its_latest_run(client: WorkflowClient) -> None:
    first = await client.run_workflow("count", handler_id="mine")
    again = await client.run_workflow("count", handler_id="mine")
    third = await client.run_workflow_nowait("count", handler_id="mine")
    done = await client.wait_for_handler("mine", poll_interval=0.01)
    assert [first.run_id, again.run_id, third.run_id] == ["mine", "mine~2", "mine~3"]
    assert {first.handler_id, again.handler_id, third.handler_id} == {"mine"}
    assert done.run_id == "mine~3"
    assert done.result is not None
    assert done.result.value["result"]["seen"] == 3  # the state went along
    assert await seen(client.get_workflow_events("mine")) == ["StopEvent"]
    assert [handler.run_id for handler in (await client.get_handlers()).handlers] == ["mine~3"]
    assert [handler.run_id for handler in (await client.get_handlers(status=["completed"])).handlers] == ["mine~3"]
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.run_workflow("greet", handler_id="mine", start_event=Greeting(name="Ada"))
    assert status_of(error) == 409
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.run_workflow("count", handler_id="not an id")
    assert status_of(error) == 400
    assert (await client.cancel_handler("mine", purge=True)).status == "deleted"
    assert (await client.get_handlers()).handlers == []
    fresh = await client.run_workflow("count", handler_id="mine")
    assert fresh.result is not None
    assert fresh.result.value["result"]["seen"] == 1


async def test_a_running_handler_cannot_begin_again(client: WorkflowClient) -> None:
    await client.run_workflow_nowait("ask", handler_id="busy")
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.run_workflow_nowait("ask", handler_id="busy")
    assert status_of(error) == 409


async def test_cancel_and_purge(client: WorkflowClient, runtime: DurableRuntime) -> None:
    handler_id = (await client.run_workflow_nowait("ask")).handler_id
    assert (await client.cancel_handler(handler_id)).status == "cancelled"
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.get_handler(handler_id)
    assert (status_of(error), error.value.response.json()["status"]) == (500, "cancelled")
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.cancel_handler(handler_id)
    assert status_of(error) == 404
    assert (await client.cancel_handler(handler_id, purge=True)).status == "deleted"
    running = (await client.run_workflow_nowait("ask")).handler_id
    assert (await client.cancel_handler(running, purge=True)).status == "deleted"
    with pytest.raises(httpx.HTTPStatusError) as error:
        await client.get_handler(running)
    assert status_of(error) == 404
    assert [run async for run in runtime.list()] == []


async def test_a_run_started_by_other_means_is_a_handler(client: WorkflowClient, runtime: DurableRuntime) -> None:
    await (await runtime.start("greet", {"name": "Ada"}, run_id="elsewhere"))
    assert (await client.get_handler("elsewhere")).handler_id == "elsewhere"
    assert [handler.handler_id for handler in (await client.get_handlers()).handlers] == ["elsewhere"]


# -- flows, results, keys ---------------------------------------------------------------------------------------------


async def test_flows(client: WorkflowClient) -> None:
    for start in ({"name": "Ada"}, ClientStart(name="Ada")):
        done = await client.run_workflow("flow", start_event=start)
        assert done.result is not None
        assert (done.result.type, done.result.value) == ("StopEvent", {"result": {"text": "HELLO ADA"}})
        handler = await client.run_workflow_nowait("flow", start_event=start)
        events = [event async for event in client.get_workflow_events(handler.handler_id)]
        assert events[-1] == done.result
        assert (await client.get_handler(handler.handler_id)).result == done.result


async def test_results_are_unwrapped(client: WorkflowClient, server: HttpServer) -> None:
    greeted = await client.run_workflow("greet", start_event=Greeting(name="Ada"))
    counted = await client.run_workflow("count")
    asking = await client.run_workflow_nowait("ask")
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get(f"/results/{greeted.handler_id}")).json()["result"] == {"text": "Hello Ada"}
        assert (await http.get(f"/results/{counted.handler_id}")).json()["result"] == {"seen": 1, "given": None}
        answer = await http.get(f"/results/{asking.handler_id}")
        assert (answer.status_code, answer.json()["result"]) == (202, None)
        assert (await http.get("/results/nobody")).status_code == 404


async def test_keys_through_the_client(runtime: DurableRuntime) -> None:
    async with serving(runtime, require_key=True) as server, AsyncExitStack() as opened:
        keys = {}
        for scopes in (("read",), ("read", "start"), ("admin",)):
            keys[scopes[-1]], stored = new_key(scopes, workflows=("count",) if scopes == ("read",) else None)
            await server.app.state.server.keys.add(stored)

        async def client(key: str) -> WorkflowClient:
            http = httpx.AsyncClient(base_url=server.url, headers={"Authorization": f"Bearer {key}"})
            return WorkflowClient(httpx_client=await opened.enter_async_context(http))

        refused = {"nonsense": 401, keys["read"]: 403}
        for key, status in refused.items():
            with pytest.raises(httpx.HTTPStatusError) as error:
                await (await client(key)).run_workflow("count")
            assert status_of(error) == status
        done = await (await client(keys["start"])).run_workflow("count", handler_id="mine")
        await (await client(keys["start"])).run_workflow("greet", start_event=Greeting(name="Ada"), handler_id="other")
        with pytest.raises(httpx.HTTPStatusError) as error:
            await (await client(keys["start"])).cancel_handler("mine", purge=True)
        assert status_of(error) == 403
        # A key for one workflow sees nothing of others.
        reader = await client(keys["read"])
        assert (await reader.list_workflows()).workflows == ["count"]
        assert (await reader.get_handlers()).handlers == [done]
        with pytest.raises(httpx.HTTPStatusError) as error:
            await reader.get_handler("other")
        assert status_of(error) == 404
        assert (await (await client(keys["admin"])).cancel_handler("mine", purge=True)).status == "deleted"
        assert (await WorkflowClient(base_url=server.url).is_healthy()).status == "healthy"
