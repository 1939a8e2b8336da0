"""The run that delivers a notice: it tells one problem to this process' hook, and retries until the hook accepts it."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.problems import Problem
from loom.runtime.durable.problems import CALLABLE, WEBHOOK, notices_of
from loom.runtime.durable.registration import prepared
from loom.steps.decorators import step
from loom.steps.events import StartEvent, StopEvent
from loom.steps.registry import built_on_first_use
from loom.steps.retry import retry_policy, stop_after_delay, wait_exponential
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.settings import Settings

    Hook = Callable[[Problem], Awaitable[None]]

_AT_ONCE = 16
"""How many problems are told at a time; the others wait in the store."""
_UNTIL_IT_IS_TAKEN = retry_policy(wait=wait_exponential(max=300.0), stop=stop_after_delay(7 * 86_400.0))


class ProblemNotTaken(Exception):
    """A hook has raised or refused: the problem is told again."""


@built_on_first_use
class ProblemStart(StartEvent, defer_build=True):
    """A problem that is to be told."""

    problem: dict[str, Any]


class ProblemWorkflow(Workflow):
    """What a notice runs. It ends when the hook has taken the problem, or fails after a week."""

    def __init__(self, channel: str, hook: Hook) -> None:
        super().__init__(timeout=None, num_concurrent_runs=_AT_ONCE, max_depth=None)
        self._channel, self._hook = channel, hook

    @step(retry_policy=_UNTIL_IT_IS_TAKEN)
    async def tell(self, ev: ProblemStart) -> StopEvent:
        """Hand the problem to the hook. Whatever that raises means that it has not taken it."""
        problem = msgspec.convert(ev.problem, Problem)
        try:
            await self._hook(problem)
        except Exception as error:
            # The log has a line for each failed attempt: this is what it says.
            message = f"Problem {problem.id} was not taken by {self._channel}: {type(error).__name__}: {error}"
            raise ProblemNotTaken(message) from error
        return StopEvent(result=problem.id)


def hook_codes(settings: Settings) -> dict[str, Registration]:
    """The workflows of the notices that this process tells, by name."""
    hooks: dict[str, Hook] = {}
    if settings.on_problem is not None:
        hooks[CALLABLE] = _called(settings.on_problem)
    if settings.webhook is not None:
        hooks[WEBHOOK] = settings.webhook.tell
    found: dict[str, Registration] = {}
    for channel, hook in hooks.items():
        name = notices_of(channel)
        found[name] = prepared(name, ProblemWorkflow(channel, hook))
    return found


def _called(hook: Callable[[Problem], Any]) -> Hook:
    """Call a hook that may be async or not. One that is not runs in a thread: it must not hold the engine."""

    async def tell(problem: Problem) -> None:
        if inspect.iscoroutinefunction(hook):
            await hook(problem)
            return
        result = await asyncio.to_thread(hook, problem)
        if inspect.isawaitable(result):
            await result

    return tell
