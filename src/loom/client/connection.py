"""The client of a Loom server. May import the rest of loom.client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from loom.client.definitions import DefinitionCalls
from loom.client.exchange import Call, Exchange, act, decoded
from loom.client.invoking import InvokeCalls
from loom.client.retries import Retries
from loom.client.runs import RunCalls
from loom.client.schedules import ScheduleCalls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import httpx2

TIMEOUT = 30.0
"""How many seconds a request may take, beside the time that it waits on purpose."""


class Client(RunCalls, DefinitionCalls, ScheduleCalls, InvokeCalls):
    """A Loom server, from afar.

    ::

        async with loom.Client("http://127.0.0.1:8080", api_key=key) as client:
            run = await client.start("my", {"topic": "x"}, run_id="order-17")
            run = await client.wait(run.run_id)

    What the server refuses is raised as `loom.RunNotFound` and its like, each of which is a `loom.ClientError` too.
    `transport` replaces the network, for tests and proxies.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(Exchange(url, api_key, timeout=timeout, retries=retries or Retries(), transport=transport))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._exchange.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> Any:
        """Any route of the API, with its answer as plain data; None if it has none. For what has no method here.

        Names in the path must be escaped already. A POST happens once, however often a broken connection repeats it.
        """
        call = (
            act(path, body, params=params or {})
            if method == "POST"
            else Call(method=method, path=path, body=body, params=params or {})
        )
        response = await self._exchange.send(call)
        return decoded(response, object) if response.content else None

    @override
    def __repr__(self) -> str:
        # Never the key.
        return f"{type(self).__name__}({self._exchange.url!r})"
