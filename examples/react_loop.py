"""An agent that thinks, acts and observes until it knows the answer (ReAct), as Python steps and as a flow.

Both have a limit, since a model may never come to an answer: the steps in the longest chain of executions, the loop of
the flow in its iterations. The model is a stand-in that reads its prompt and needs no network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step

FLOW = Path(__file__).with_name("flows") / "react.json"
Model = Callable[[dict[str, Any]], dict[str, str]]
QUESTION = "How many metres of yarn does a scarf of 60 rows need?"


# -- the world: a model and two tools ----------------------------------------------------------------------------------


@loom.ai_provider("stand-in")
def model(inputs: dict[str, Any]) -> dict[str, str]:
    """Decide by what the prompt says was observed, as a language model would, but always alike."""
    observed = inputs["prompt"].partition("Observations:")[2]
    if "per row" not in observed:
        return {"action": "SEARCH", "input": "yarn per row"}
    if "=" not in observed:
        return {"action": "CALCULATE", "input": "mul(60, 3)"}
    return {"action": "FINAL_ANSWER", "input": f"{observed.partition('= ')[2].split()[0]} metres"}


@loom.activity("search")
def search(query: str) -> str:
    """Look something up."""
    return {"yarn per row": "A scarf takes 3 metres of yarn per row."}.get(query, f"Nothing is known of {query}.")


@loom.activity("calculator")
def calculate(expression: str) -> str:
    """Work out an expression of Loom's language, which can do no harm."""
    return f"{expression} = {loom.expressions.evaluate('@' + expression, {})}"


# -- the agent as steps ------------------------------------------------------------------------------------------------


class Question(StartEvent):
    """What the agent is asked."""

    text: str


class Thought(Event):
    """What the model wants to do next."""

    action: Literal["SEARCH", "CALCULATE"]
    input: str
    observations: list[str]


class Observation(Event):
    """What came of it, after all that had come before."""

    observations: list[str]


class Answer(StopEvent):
    """What the agent has found."""

    text: str
    observations: list[str]


class Agent(Workflow[Question, Answer]):
    """Each lap is two executions, each caused by the one before: a depth of 21 is ten laps and the end."""

    def __init__(self, ask: Model) -> None:
        super().__init__(max_depth=21)
        self.ask = ask

    @step
    async def think(self, ctx: Context, ev: Question | Observation) -> Thought | Answer:
        """Ask the model."""
        if isinstance(ev, Question):
            await ctx.store.set("question", ev.text)
        observations = ev.observations if isinstance(ev, Observation) else []
        lines = "".join(f"\n{line}" for line in observations)
        question = await ctx.store.get("question")
        thought = self.ask({"prompt": f"Question: {question}\nObservations:{lines}\nWhat should I do?"})
        if thought["action"] == "FINAL_ANSWER":
            return Answer(text=thought["input"], observations=observations)
        return Thought.model_validate({**thought, "observations": observations})

    @step
    async def act(self, ev: Thought) -> Observation:
        """Use the tool that the model has chosen."""
        found = search(ev.input) if ev.action == "SEARCH" else calculate(ev.input)
        return Observation(observations=[*ev.observations, found])


def undecided(_inputs: dict[str, Any]) -> dict[str, str]:
    """Search for ever, as a model may."""
    return {"action": "SEARCH", "input": "the meaning of yarn"}


async def steps() -> None:
    """Run the agent, and one that is parked at its limit until somebody decides about it."""
    problems: asyncio.Queue[loom.Problem] = asyncio.Queue()
    async with loom.connect("memory://", on_problem=problems.put_nowait) as runtime:
        runtime.register(Agent(model), name="agent")
        runtime.register(Agent(undecided), name="undecided")
        answer: Answer = await (await runtime.start("agent", {"text": QUESTION})).stop_event_result()
        print("  " + "\n  ".join([*answer.observations, answer.text]))
        await runtime.start("undecided", {"text": QUESTION})
        problem = await problems.get()
        print(f"  {problem.kind}:", (problem.message or "").partition(",")[0])
        await runtime.cancel(problem.run_id)


# -- the agent as a flow -----------------------------------------------------------------------------------------------


async def flow() -> None:
    """Run the same loop as a document."""
    result = await loom.load(FLOW).run({"question": QUESTION})
    outputs = result.raise_for_status().outputs
    print("  " + "\n  ".join([*outputs["observations"].splitlines(), outputs["answer"]]))


def main() -> None:
    """Run both."""
    print("steps:")
    asyncio.run(steps())
    print("flow:")
    asyncio.run(flow())


if __name__ == "__main__":
    main()
