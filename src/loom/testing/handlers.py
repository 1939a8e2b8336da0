"""Handlers of one test: what a test registers ends with it, and mocks stand in for activities and actions.

    from loom.testing import isolated_handlers

    with isolated_handlers() as handlers:
        http = handlers.mock_action("http", returns={"body": {"wind": "calm"}})
        ...
        assert http.calls[0].inputs["uri"] == "https://weather.example.com/now"

A registered handler wins over what is built in, so the same call mocks `http`, `httpWebhook` and `waitForEvent` as
well as connectors of one's own.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.effects.actions.handlers import HANDLERS, ActionContext, ActionHandlers
from loom.testing.clock import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call of a mock: one attempt at one action."""

    inputs: Any
    """The argument, as a handler would get it: for `http` the inputs of the action."""
    action: str
    """The action's name."""
    attempt: int
    """From 0."""
    run_id: str
    idempotency_key: str
    at: float
    """Seconds since virtual time began; on a real clock, since the handlers were isolated."""


class HandlerMock:
    """A handler that answers as the test says and keeps its calls."""

    def __init__(self, name: str, answer: Callable[..., Any], now: Callable[[], float]) -> None:
        self.name = name
        self.calls: list[HandlerCall] = []
        """All calls, oldest first."""
        self._answer = answer
        self._now = now

    @override
    def __repr__(self) -> str:
        return f"<mock of {self.name}: {len(self.calls)} calls>"

    @property
    def times(self) -> list[float]:
        """When the calls came, in seconds; see `HandlerCall.at`."""
        return [call.at for call in self.calls]

    async def handle(self, inputs: Any, context: ActionContext) -> Any:
        """Keep the call, and answer it."""
        self.calls.append(
            HandlerCall(inputs, context.action, context.attempt, context.run_id, context.idempotency_key, self._now())
        )
        answer = self._answer(inputs)
        return await answer if inspect.isawaitable(answer) else answer


class IsolatedHandlers:
    """The handlers of a test: `activity`, `actor`, `ai_provider`, `action` and `connector` register as in `loom`.

    A mock takes one of four: `returns`, the same for every call; `in_turn`, an answer for each call; `raises`, an
    exception; `by`, a function of the inputs, async or not. Among the answers `in_turn` an exception is raised.
    """

    def __init__(self, registry: ActionHandlers) -> None:
        self.activity = registry.activity
        self.actor = registry.actor
        self.ai_provider = registry.ai_provider
        self.action = registry.action
        self.connector = registry.connector
        self.registry = registry
        """All of them: what was registered before, and what the test registers."""
        self._began_at = time.monotonic()

    def mock_action(
        self,
        type: str,  # noqa: A002 - it is what flows call it
        *,
        returns: Any = _UNSET,
        in_turn: Iterable[Any] = _UNSET,
        raises: BaseException | type[BaseException] = _UNSET,
        by: Callable[[Any], Any] = _UNSET,
    ) -> HandlerMock:
        """Do all actions of a type in this way, built-in types such as `http` among them. Without an answer: `{}`."""
        mock = self._mock(f"action {type!r}", returns, in_turn, raises, by)
        self.action(type)(mock.handle)
        return mock

    def mock_connector(
        self,
        name: str,
        *,
        returns: Any = _UNSET,
        in_turn: Iterable[Any] = _UNSET,
        raises: BaseException | type[BaseException] = _UNSET,
        by: Callable[[Any], Any] = _UNSET,
    ) -> HandlerMock:
        """Do all actions of a connection in this way, in place of its connector. Without an answer: `{}`."""
        mock = self._mock(f"connector {name!r}", returns, in_turn, raises, by)
        self.connector(name)(mock.handle)
        return mock

    def mock_activity(
        self,
        name: str,
        *,
        returns: Any = _UNSET,
        in_turn: Iterable[Any] = _UNSET,
        raises: BaseException | type[BaseException] = _UNSET,
        by: Callable[[Any], Any] = _UNSET,
    ) -> HandlerMock:
        """Do an activity in this way. Without an answer it gives None."""
        mock = self._mock(f"activity {name!r}", returns, in_turn, raises, by, nothing=None)
        self.activity(name)(mock.handle)
        return mock

    def mock_ai_provider(
        self,
        name: str = "default",
        *,
        returns: Any = _UNSET,
        in_turn: Iterable[Any] = _UNSET,
        raises: BaseException | type[BaseException] = _UNSET,
        by: Callable[[Any], Any] = _UNSET,
    ) -> HandlerMock:
        """Answer the `ai` actions of a provider in this way, by default of those that name none."""
        mock = self._mock(f"AI provider {name!r}", returns, in_turn, raises, by, nothing="")
        self.ai_provider(name)(mock.handle)
        return mock

    def _mock(
        self, name: str, returns: Any, in_turn: Any, raises: Any, by: Any, *, nothing: Any = _UNSET
    ) -> HandlerMock:
        given = {"returns": returns, "in_turn": in_turn, "raises": raises, "by": by}
        named = [word for word, value in given.items() if value is not _UNSET]
        if len(named) > 1:
            raise TypeError(f"A mock takes one of returns, in_turn, raises and by, not {' and '.join(named)}.")
        if by is not _UNSET:
            answer = by
        elif in_turn is not _UNSET:
            answer = _in_turn(name, iter(in_turn))
        elif raises is not _UNSET:
            answer = _always(raises, fails=True)
        else:
            answer = _always({} if nothing is _UNSET else nothing) if returns is _UNSET else _always(returns)
        return HandlerMock(name, answer, self._now)

    def _now(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.elapsed if isinstance(loop, VirtualLoop) else time.monotonic() - self._began_at


def _always(value: Any, *, fails: bool = False) -> Callable[[Any], Any]:
    def answer(_inputs: Any) -> Any:
        if fails:
            raise value
        return value

    return answer


def _in_turn(name: str, answers: Iterator[Any]) -> Callable[[Any], Any]:
    used = 0

    def answer(_inputs: Any) -> Any:
        nonlocal used
        value = next(answers, _UNSET)
        if value is _UNSET:
            raise AssertionError(f"The mock of {name} has {used} answers, and was called once more.")
        used += 1
        if isinstance(value, BaseException) or (isinstance(value, type) and issubclass(value, BaseException)):
            raise value
        return value

    return answer


@contextmanager
def isolated_handlers(*, empty: bool = False) -> Iterator[IsolatedHandlers]:
    """Undo at the end every registration of a handler that was made inside, `loom.activity` and its like included.

    What was registered before is there inside, unless `empty`, and is there again at the end.
    """
    registries: tuple[dict[str, Any], ...] = (
        HANDLERS.activities,
        HANDLERS.actors,
        HANDLERS.ai_providers,
        HANDLERS.actions,
        HANDLERS.connectors,
    )
    before = [dict(registry) for registry in registries]
    try:
        if empty:
            for registry in registries:
                registry.clear()
        yield IsolatedHandlers(HANDLERS)
    finally:
        for registry, handlers in zip(registries, before, strict=True):
            registry.clear()
            registry.update(handlers)
