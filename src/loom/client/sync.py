"""The client for code that is not asynchronous.

It is the same client, which runs on an event loop in a thread of its own: there is one place for what is tried again,
how streams go on, and what is waited for. See docs/adr/0031.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from typing_extensions import override

from loom.client.connection import TIMEOUT, Client
from loom.steps.loop_thread import LoopThread, SyncFace, calls, iterates

if TYPE_CHECKING:
    from types import TracebackType

    import httpx2

    from loom.client.exchange import Retries


class SyncClient(SyncFace):
    """A Loom server, from afar and without `await`: the methods of `Client`, with the same arguments.

    ::

        with loom.SyncClient("http://127.0.0.1:8080", api_key=key) as client:
            run = client.start("my", {"topic": "x"})
            for event in client.stream(run.run_id): ...

    It may be used by several threads, and inside of a program that has a running event loop.
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
        self._inner = Client(url, api_key, timeout=timeout, retries=retries, transport=transport)
        self._loop_thread = LoopThread("loom-client", "The client", "`loom.SyncClient(...)`")

    start = calls(Client.start)
    get = calls(Client.get)
    wait = calls(Client.wait)
    list = iterates(Client.list)
    counts = calls(Client.counts)
    changes = iterates(Client.changes)
    workers = calls(Client.workers)
    history = iterates(Client.history)
    state = calls(Client.state)
    attempts = calls(Client.attempts)
    loops = calls(Client.loops)
    actions = calls(Client.actions)
    why = calls(Client.why)
    run_graph = calls(Client.run_graph)
    timeline = calls(Client.timeline)
    iterations = iterates(Client.iterations)
    replay = calls(Client.replay)
    stream = iterates(Client.stream)
    send_event = calls(Client.send_event)
    cancel = calls(Client.cancel)
    pause = calls(Client.pause)
    resume = calls(Client.resume)
    skip = calls(Client.skip)
    set_tags = calls(Client.set_tags)
    retry = calls(Client.retry)
    fork = calls(Client.fork)
    export_run = calls(Client.export_run)
    import_run = calls(Client.import_run)
    delete = calls(Client.delete)
    bulk = iterates(Client.bulk)

    definitions = calls(Client.definitions)
    definition = calls(Client.definition)
    versions = calls(Client.versions)
    put_definition = calls(Client.put_definition)
    delete_definition = calls(Client.delete_definition)
    flow_status = calls(Client.flow_status)
    enable_flow = calls(Client.enable_flow)
    trigger_history = calls(Client.trigger_history)
    fire_trigger = calls(Client.fire_trigger)
    disable_flow = calls(Client.disable_flow)
    flow_address = calls(Client.flow_address)
    validate = calls(Client.validate)
    graph = calls(Client.graph)
    mermaid = calls(Client.mermaid)
    schema = calls(Client.schema)
    schedules = calls(Client.schedules)
    get_schedule = calls(Client.get_schedule)
    schedule = calls(Client.schedule)
    pause_schedule = calls(Client.pause_schedule)
    resume_schedule = calls(Client.resume_schedule)
    delete_schedule = calls(Client.delete_schedule)
    invoke = calls(Client.invoke)
    response = calls(Client.response)
    health = calls(Client.health)
    session = calls(Client.session)
    request = calls(Client.request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the thread."""
        self._loop_thread.close(self._inner.close)

    @override
    def __repr__(self) -> str:
        return repr(self._inner).replace("Client", type(self).__name__, 1)
