"""`AgentWorkflow` of llama-index-core, a package written for llama-index-workflows, on Loom.

The model follows a script, so that nothing is needed but `pip install llama-index-core`.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from typing_extensions import override

import loom.compat

loom.compat.install()  # from here on `import workflows` is Loom, for libraries too


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def scripted_model(script: list[Any]) -> Any:
    """A model that says its lines: a text, or the name and the arguments of a tool to call."""
    from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.llms.mock import MockLLM

    class Scripted(MockLLM, FunctionCallingLLM):
        """Answers with the next line."""

        @property
        @override
        def metadata(self) -> LLMMetadata:
            """It can call tools."""
            return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

        @override
        def _prepare_chat_with_tools(self, *_: Any, **__: Any) -> Any:
            return {"messages": []}

        @override
        def get_tool_calls_from_response(
            self, response: ChatResponse, error_on_no_tool_call: bool = True, **_: Any
        ) -> list[ToolSelection]:
            """The tools that a line asks for."""
            found: list[ToolSelection] = response.message.additional_kwargs.get("tools", [])
            return found

        @override
        async def astream_chat_with_tools(self, *_: Any, **__: Any) -> Any:
            """Say the next line."""
            line = script.pop(0)
            text, call = (line, None) if isinstance(line, str) else ("", line)
            tools = [ToolSelection(tool_id="call-1", tool_name=call[0], tool_kwargs=call[1])] if call else []
            message = ChatMessage(role="assistant", content=text, additional_kwargs={"tools": tools})

            async def parts() -> Any:
                yield ChatResponse(message=message, delta=text)

            return parts()

    return Scripted(max_tokens=None)


async def main() -> None:
    """Let an agent call a tool, and show what it does."""
    from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ToolCallResult

    model = scripted_model([("add", {"a": 2, "b": 3}), "Two and three are five."])
    clerk = FunctionAgent(name="clerk", description="Adds.", system_prompt="Add.", llm=model, tools=[add])
    handler = AgentWorkflow(agents=[clerk], root_agent="clerk").run(user_msg="What are two and three?")
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            print(f"tool:   {event.tool_name}{event.tool_kwargs} = {event.tool_output}")
    print("answer:", await handler)
    print("ran on:", type(handler).__module__)


if __name__ == "__main__":
    if find_spec("llama_index") is None:
        print("This example needs llama-index-core: pip install llama-index-core")
    else:
        asyncio.run(main())
