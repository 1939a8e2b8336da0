"""Agents of llama-index-core with a model that follows a script. Prints one JSON object: what each scenario saw."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio
import json
import sys
from typing import Any

from llama_index.core.agent.workflow import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    FunctionAgent,
    ReActAgent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.mock import MockLLM
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, WorkflowRuntimeError
from pydantic import PrivateAttr

CALLS: list[str] = []


class ScriptedLLM(MockLLM, FunctionCallingLLM):
    """Answers with the next line of its script: a text, or the tools to call. Keeps what it was asked."""

    _script: list[Any] = PrivateAttr()
    _asked: list[list[str]] = PrivateAttr(default_factory=list)

    def __init__(self, script: list[Any]) -> None:
        super().__init__()
        self._script = list(script)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any) -> Any:
        return {"messages": chat_history or []}

    def get_tool_calls_from_response(self, response: ChatResponse, **_: Any) -> list[ToolSelection]:
        return response.message.additional_kwargs.get("tools", [])

    def _next(self, messages: Any) -> ChatMessage:
        self._asked.append([message.content or "" for message in messages])
        line = self._script.pop(0)
        if isinstance(line, str):
            return ChatMessage(role="assistant", content=line)
        tools = [
            ToolSelection(tool_id=f"call-{number}", tool_name=name, tool_kwargs=kwargs)
            for number, (name, kwargs) in enumerate(line)
        ]
        return ChatMessage(role="assistant", content="", additional_kwargs={"tools": tools})

    async def achat(self, messages: Any, **_: Any) -> ChatResponse:
        return ChatResponse(message=self._next(messages))

    async def astream_chat(self, messages: Any, **_: Any) -> Any:
        whole = self._next(messages)

        async def parts() -> Any:
            text, said = whole.content or "", ""
            for word in text.split(" ") if text else [""]:
                delta = f" {word}" if said else word
                said += delta
                yield ChatResponse(
                    message=ChatMessage(role="assistant", content=said, additional_kwargs=whole.additional_kwargs),
                    delta=delta,
                )

        return parts()

    async def astream_chat_with_tools(self, tools: Any, chat_history: Any = None, **_: Any) -> Any:
        return await self.astream_chat(chat_history)

    async def achat_with_tools(self, tools: Any, chat_history: Any = None, **_: Any) -> ChatResponse:
        return await self.achat(chat_history)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    CALLS.append(f"add {a} {b}")
    return a + b


async def remember(ctx: Context, name: str) -> str:
    """Write a name into the state."""
    async with ctx.store.edit_state() as state:
        state["state"] = {**state.get("state", {}), "name": name}
    return f"remembered {name}"


async def delete_file(ctx: Context, path: str) -> str:
    """Delete a file, if a human agrees."""
    CALLS.append(f"delete {path}")
    answer = await ctx.wait_for_event(
        HumanResponseEvent,
        waiter_id=f"delete-{path}",
        waiter_event=InputRequiredEvent(prefix=f"Delete {path}?", path=path),
        requirements={"path": path},
    )
    return f"{path} deleted" if answer.response == "yes" else f"{path} kept"


def agent(llm: ScriptedLLM, *tools: Any, **kwargs: Any) -> FunctionAgent:
    return FunctionAgent(name="solo", description="Works alone.", llm=llm, tools=list(tools), **kwargs)


def shown(event: Any) -> str | None:
    """One line per event that a user interface would show."""
    if isinstance(event, AgentStream):
        return f"stream {event.current_agent_name} {event.delta!r}"
    if isinstance(event, ToolCallResult):
        return f"result {event.tool_name} {event.tool_output.content}"
    if isinstance(event, ToolCall):
        return f"call {event.tool_name} {json.dumps(event.tool_kwargs)}"
    if isinstance(event, InputRequiredEvent):
        return f"ask {event.prefix}"
    return f"output {event}" if isinstance(event, AgentOutput) else None


async def watch(handler: Any) -> list[str]:
    return [line async for event in handler.stream_events() if (line := shown(event)) is not None]


async def tools_and_stream() -> dict[str, Any]:
    CALLS.clear()
    llm = ScriptedLLM([[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})], "They are three and seven."])
    handler = AgentWorkflow(agents=[agent(llm, add)]).run(user_msg="Add 1 and 2, and 3 and 4.")
    stream = await watch(handler)
    result = await handler
    return {
        "handler": type(handler).__module__,
        "stream": stream,
        "result": str(result),
        "tools": sorted(call.tool_output.content for call in result.tool_calls),
        "executed": sorted(CALLS),
        "last_asked": llm._asked[-1][-2:],
    }


async def handoff() -> dict[str, Any]:
    first = FunctionAgent(
        name="desk",
        description="Takes requests.",
        llm=ScriptedLLM([[("handoff", {"to_agent": "clerk", "reason": "numbers"})]]),
        can_handoff_to=["clerk"],
    )
    second = FunctionAgent(
        name="clerk",
        description="Knows numbers.",
        llm=ScriptedLLM([[("add", {"a": 20, "b": 22})], "It is 42."]),
        tools=[add],
    )
    workflow = AgentWorkflow(agents=[first, second], root_agent="desk", initial_state={"seen": 0})
    handler = workflow.run(user_msg="What is 20 and 22?")
    stream = await watch(handler)
    result = await handler
    return {"stream": stream, "result": str(result), "agent": result.current_agent_name}


async def human() -> dict[str, Any]:
    CALLS.clear()
    script = [[("delete_file", {"path": "a.txt"}), ("delete_file", {"path": "b.txt"})], "Done."]
    handler = AgentWorkflow(agents=[agent(ScriptedLLM(script), delete_file)]).run(user_msg="Delete a.txt and b.txt.")
    asked, results = [], []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append(event.prefix)
            if len(asked) == 2:
                # The second question is answered first: each answer must find its own tool call.
                handler.ctx.send_event(HumanResponseEvent(response="no", path="b.txt"))
                handler.ctx.send_event(HumanResponseEvent(response="yes", path="a.txt"))
        elif isinstance(event, ToolCallResult):
            results.append(event.tool_output.content)
    await handler
    return {"asked": sorted(asked), "results": sorted(results), "executed": sorted(CALLS)}


async def human_after_restart() -> dict[str, Any]:
    """The question is asked, the process forgets everything but a JSON text, and the answer comes then."""
    CALLS.clear()
    script = [[("delete_file", {"path": "a.txt"})], "Done."]
    llm = ScriptedLLM(script)
    handler = AgentWorkflow(agents=[agent(llm, delete_file)]).run(user_msg="Delete a.txt.")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    saved = json.dumps(handler.ctx.to_dict())
    memory = await handler.ctx.store.get("memory")
    await handler.cancel_run()
    workflow = AgentWorkflow(agents=[agent(llm, delete_file)])
    context = Context.from_dict(workflow, json.loads(saved))
    # A memory is no JSON: whoever restores a context puts it back.
    await context.store.set("memory", memory)
    resumed = workflow.run(ctx=context)
    resumed.ctx.send_event(HumanResponseEvent(response="yes", path="a.txt"))
    stream = [line for line in await watch(resumed) if line.startswith("result")]
    return {"stream": stream, "result": str(await resumed)}


async def turns() -> dict[str, Any]:
    """Three turns in one context, which goes through JSON before the last."""
    llm = ScriptedLLM(["Hello Ada.", [("remember", {"name": "Ada"})], "Noted.", "You are Ada."])
    workflow = AgentWorkflow(agents=[agent(llm, FunctionTool.from_defaults(async_fn=remember))], initial_state={"n": 1})
    context = Context(workflow)
    said = [str(await workflow.run(user_msg="I am Ada.", ctx=context))]
    said.append(str(await workflow.run(user_msg="Remember it.", ctx=context)))
    context = Context.from_dict(workflow, json.loads(json.dumps(context.to_dict())))
    said.append(str(await workflow.run(user_msg="Who am I?", ctx=context)))
    memory = await context.store.get("memory")
    return {
        "said": said,
        "state": await context.store.get("state"),
        "memory": [f"{message.role.value}: {message.content}" for message in await memory.aget_all()],
    }


async def alone() -> dict[str, Any]:
    """An agent is a workflow and a pydantic model at once and runs without an AgentWorkflow around it."""
    handler = agent(ScriptedLLM([[("add", {"a": 5, "b": 6})], "Eleven."]), add).run("What is 5 and 6?")
    stream = await watch(handler)
    return {"stream": stream, "result": str(await handler)}


async def react() -> dict[str, Any]:
    script = [
        'Thought: I need a tool.\nAction: add\nAction Input: {"a": 8, "b": 9}',
        "Thought: I can answer without using any more tools.\nAnswer: Seventeen.",
    ]
    worker = ReActAgent(name="thinker", description="Thinks.", llm=ScriptedLLM(script), tools=[add])
    handler = worker.run("What is 8 and 9?")
    stream = [line for line in await watch(handler) if not line.startswith("stream")]
    return {"stream": stream, "result": str(await handler)}


async def failing_tool() -> dict[str, Any]:
    def broken() -> str:
        """Fail."""
        raise ValueError("no luck")

    llm = ScriptedLLM([[("broken", {})], "It failed."])
    handler = AgentWorkflow(agents=[agent(llm, broken, streaming=False)]).run(user_msg="Try.")
    stream = await watch(handler)
    return {"stream": stream, "result": str(await handler)}


async def too_many_turns() -> dict[str, Any]:
    llm = ScriptedLLM([[("add", {"a": 1, "b": 1})]] * 5)
    try:
        await AgentWorkflow(agents=[agent(llm, add)]).run(user_msg="Go on.", max_iterations=2)
    except WorkflowRuntimeError as error:
        return {"error": type(error).__name__, "text": str(error)[:31]}
    return {}


SCENARIOS = (
    tools_and_stream,
    handoff,
    human,
    human_after_restart,
    turns,
    alone,
    react,
    failing_tool,
    too_many_turns,
)


async def main() -> None:
    wanted = sys.argv[1:]
    seen: dict[str, Any] = {}
    for scenario in SCENARIOS:
        if wanted and scenario.__name__ not in wanted:
            continue
        try:
            seen[scenario.__name__] = await asyncio.wait_for(scenario(), 10)
        except Exception as error:  # noqa: BLE001 - the other scenarios are still worth seeing
            seen[scenario.__name__] = {"raised": repr(error)}
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
