"""The runtime over a cluster: what `loom.connect("temporal://...")` gives.

The cluster moves the runs. A process that has registered workflows is a worker of their task queue; a process without
any is a client.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec
from temporalio.client import WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from typing_extensions import override

from loom.core.ticks import TickContinueRun
from loom.runtime.durable.readers import Watchers
from loom.runtime.durable.worker import WorkerRuntime
from loom.store.codec import encode_tick
from loom.store.deaths import POISON
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import PostMessage
from loom.store.records import RunQuery
from loom.temporal.activity.step_activity import make_activity
from loom.temporal.payloads import NewCode
from loom.temporal.settings import TemporalSettings
from loom.temporal.worker_jobs import ChildWatch, CodeAnnouncer, ProblemWatch, on_loop
from loom.temporal.workflow.queries import RecordedHistory
from loom.temporal.workflow.runner import LoomHost, LoomRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from temporalio.client import Client

    from loom.api.workers import Role
    from loom.runtime.durable.metrics import RunFact, RuntimeMetrics
    from loom.runtime.durable.readers import News
    from loom.runtime.durable.registration import Registration
    from loom.temporal.store import TemporalStore

_log = logging.getLogger("loom.temporal")

_STARTING_S = 0.002
"""Seconds between two looks whether a new worker runs: the SDK tells nobody."""
_LOOK_S = 30.0
"""Seconds between two looks for an end, which the server tells by itself as a rule."""
_PARKED_LOOKS_S = (0.0, 5.0, 60.0)
"""Pauses in seconds before looks for parked runs: visibility has a newly parked run a little later."""
_PARKED_AGAIN_S = 300.0
"""Seconds between later looks: an old worker of a rolling deployment may park a run at any time."""


class TemporalRuntime(WorkerRuntime):
    """Runs workflows on a cluster.

    Without a registered workflow it is a client. With one it is a worker for all workflows that are registered, now or
    later. Steps that are under way when it stops run again on another worker.
    """

    store: TemporalStore
    definitions_at_once = 1
    """A cluster takes longer for updates of one workflow that come together than for one after the other."""
    _settings: TemporalSettings

    def __init__(
        self,
        store: TemporalStore,
        settings: TemporalSettings | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(store, settings or TemporalSettings(), clock=clock)
        store.code_of = self.code_of
        store.complete_starts(self.whole_start)
        self._ends = self.endings = EndWatchers(lambda: store.client)
        self._runner = LoomRunner(self.codes, options=self._settings.activities)
        self._worker: Worker | None = None
        self._polling: asyncio.Task[None] | None = None
        self._announcer = CodeAnnouncer(self.codes, lambda: store.client)
        self._children = ChildWatch(lambda: store.client)
        self._retrying: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """Return the client of the cluster, once the runtime is open."""
        return self.store.client

    def code_of(self, name: str) -> NewCode | None:
        """Return the code of a registered workflow as the reducer sees it; None if the name is not registered."""
        code = self.codes.get(name)
        return NewCode(code.config, keeps_timeout=code.keeps_timeout) if code is not None else None

    def whole_start(self, name: str, start: bytes) -> bytes:
        """Return the start of a run with what the project of its flow gives it."""
        code = self.codes.get(name)
        return start if code is None else code.whole_start(start)

    # -- working ------------------------------------------------------------------------------------------------------

    @override
    async def _join(self) -> bool:
        if self._polling is not None:
            return True
        loop = asyncio.get_running_loop()
        runner = self._runner
        runner.on_activated = lambda run_id, ticks: on_loop(loop, self._has_grown, run_id, ticks)
        runner.on_counted = lambda workflow, fact: on_loop(loop, self._count, workflow, fact)
        runner.histories = RecordedHistory(lambda: self.store.client, loop)
        self._announcer.listen(runner)
        self._children.listen(runner)
        self._working_since = self.now()
        queue = self.store.address.task_queue
        self._worker = worker = make_worker(self.store.client, queue, self.codes, self._settings, runner, self.metrics)
        self._polling = polling = loop.create_task(worker.run(), name="loom worker")
        while not worker.is_running and not polling.done():  # noqa: ASYNC110 - the SDK tells nobody
            await asyncio.sleep(_STARTING_S)
        if polling.done():
            self._polling = None
            error = polling.exception()
            raise StoreUnavailable(f"No worker can be at {self.store.address.url}: {error}") from error
        polling.add_done_callback(self._stopped)
        if self._watching is None and self.problems.own:
            watch = ProblemWatch(self.store, self.committer, self.problems, self.now())
            self._watching = self._in_background(self._watch_problems(watch))
        if self._looking is None and self.store.has_attributes:
            self._looking = self._in_background(self._look_for_parked())
        return True

    @override
    async def _leave(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None and self._worker is not None and not polling.done():
            await self._worker.shutdown()
            await asyncio.wait([polling])
        self._worker = None
        for each in self._retrying:
            each.cancel()
        await asyncio.gather(*self._retrying, return_exceptions=True)
        self._looking = self._watching = None
        await self._announcer.close()
        await self._children.close()
        await self._ends.close()

    def _stopped(self, polling: asyncio.Task[None]) -> None:
        """Start a new worker: the old one has ended by itself."""
        if self._polling is not polling or not self._open or polling.cancelled():
            return
        _log.error("The worker at %s has ended, and begins anew: %s", self.store.address.url, polling.exception())
        self._polling = None
        self._begin(self._rejoin())

    @override
    async def _recover_runs(self, names: Sequence[str]) -> None:
        """Try parked runs again. For others the worker finds the code in `codes`, and the cluster gives it tasks."""
        if names and self.store.has_attributes:  # else every run would have to be asked
            self._in_background(self._retry_parked(tuple(names)))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        retrying = asyncio.get_running_loop().create_task(work)
        self._retrying.add(retrying)
        retrying.add_done_callback(self._retrying.discard)
        return retrying

    async def _retry_parked(self, names: tuple[str, ...]) -> None:
        """See whether parked runs can go on with the code that has come. Each is tried once."""
        tried: set[str] = set()
        for pause in _PARKED_LOOKS_S:
            await asyncio.sleep(pause)
            await self._try_parked(names, tried)

    async def _look_for_parked(self) -> None:
        """See now and then whether runs were parked whose code is registered here. Each is tried once."""
        tried: set[str] = set()
        while True:
            await asyncio.sleep(_PARKED_AGAIN_S)
            await self._try_parked(tuple(self.codes), tried)

    async def _try_parked(self, names: tuple[str, ...], tried: set[str]) -> None:
        try:
            await self._try_all(RunQuery(status="running", workflow=names, parked=True), tried)
        except StoreError as error:
            _log.error("Parked runs of %s were not tried again: %s", ", ".join(names), error)

    async def _try_all(self, query: RunQuery, tried: set[str]) -> None:
        while rows := await self.store.find(query):
            for row in rows:
                if row.run_id not in tried and not (row.head.parked or "").startswith(POISON):
                    at = self.now()
                    await self.committer.submit(PostMessage(row.run_id, encode_tick(TickContinueRun(at=at)), at))
                    tried.add(row.run_id)
            query = msgspec.structs.replace(query, after=(rows[-1].created_at, rows[-1].run_id))

    async def _watch_problems(self, watch: ProblemWatch) -> None:
        """Tell the hooks of this process about runs with problems, as long as it works."""
        while True:
            try:
                await watch.look(self.now())
            except StoreError as error:
                _log.error("Runs with problems were not looked for, and will be again: %s", error)
            await asyncio.sleep(self._settings.problem_interval)

    # -- what the worker tells, from its threads ----------------------------------------------------------------------

    @override
    def _on_notification(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self.watchers.wake(run_id)
            self.endings.wake(run_id)
        if not run_ids:
            self.watchers.wake_all()
            self.endings.wake_all()

    def _has_grown(self, run_id: str, ticks: int) -> None:
        """Count ticks of a run, and wake its readers."""
        self.metrics.ticks += ticks
        self.watchers.wake(run_id)

    def _count(self, workflow: str, fact: RunFact) -> None:
        """Count a run that was started, has ended or was parked."""
        self.metrics.of_workflow(workflow).count(fact)

    # -- looking ------------------------------------------------------------------------------------------------------

    @override
    async def news(self, future: News, waits: int = 0) -> None:
        self._check_open()
        if future in self._ends:
            await asyncio.wait([future], timeout=_LOOK_S)
        else:
            await super().news(future, waits)
        self._check_open()

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("The runtime was closed: what becomes of the run can be asked where it is open.")

    @property
    @override
    def is_alone(self) -> bool:
        return False

    @property
    @override
    def role(self) -> Role:
        return "worker" if self._worker is not None else "client"

    @override
    def worker_name(self) -> tuple[int | None, str] | None:
        """The name by which the cluster knows this process; None if it has no worker."""
        return (None, self._settings.name or self.store.client.identity) if self._worker is not None else None

    @property
    @override
    def figures(self) -> dict[str, int]:
        counted = self.metrics
        return {"in_memory": self._runner.in_memory, "released": counted.released, "resumed": counted.resumed}


# -- waiting for ends --------------------------------------------------------------------------------------------------

_ASKED_S = 20.0
"""Seconds that a question stays open; then it is asked again if callers still wait."""
_AGAIN_S = 1.0
"""Seconds until a cluster is asked again that could not answer."""


class EndWatchers(Watchers):
    """Futures of callers that wait for the end of runs. For each such run one question to the server is open."""

    __slots__ = ("_asking", "_client", "_given")

    def __init__(self, client: Callable[[], Client]) -> None:
        super().__init__()
        self._client = client
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._given: WeakSet[News] = WeakSet()

    @override
    def subscribe(self, run_id: str) -> News:
        future = super().subscribe(run_id)
        self._given.add(future)
        if run_id not in self._asking:
            self._asking[run_id] = asyncio.get_running_loop().create_task(self._ask(run_id), name=f"end of {run_id}")
        return future

    def __contains__(self, future: News) -> bool:
        """Say whether a future was given here: then the server tells, and there is no need to look."""
        return future in self._given

    async def _ask(self, run_id: str) -> None:
        """Wait until an execution of the run is closed, as long as callers wait for it."""
        try:
            while run_id in self._waiting and not await self._is_closed(run_id):
                pass
        finally:
            self._asking.pop(run_id, None)
        self.wake(run_id)  # a caller that sees the run go on in another execution asks again

    async def _is_closed(self, run_id: str) -> bool:
        try:
            async with asyncio.timeout(_ASKED_S):
                return await self._has_close_event(run_id)
        except TimeoutError:
            return False
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                await asyncio.sleep(_AGAIN_S)
            return True  # the waiting caller looks, and is told what is wrong

    async def _has_close_event(self, run_id: str) -> bool:
        async for _event in (
            self._client()
            .get_workflow_handle(run_id)
            .fetch_history_events(
                wait_new_event=True,
                event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT,
                skip_archival=True,
                rpc_timeout=timedelta(seconds=2 * _ASKED_S),
            )
        ):
            return True
        return False

    async def close(self) -> None:
        """Ask no more, and wake all waiting callers."""
        asking = list(self._asking.values())
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self.wake_all()


# -- the worker --------------------------------------------------------------------------------------------------------

_HEARTBEATS_S = 1.0
"""The longest time between two heartbeats, in seconds: they bring cancellation back."""
_BUILD = "loom"
"""Without a build id the SDK makes one of all loaded code, which takes its time."""


def make_worker(
    client: Client,
    task_queue: str,
    codes: dict[str, Registration],
    settings: TemporalSettings,
    runner: LoomRunner,
    metrics: RuntimeMetrics,
) -> Worker:
    """Return a worker for all workflows in `codes`, which may grow while it works."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[LoomHost],
        activities=[make_activity(codes, client, settings, metrics)],
        unsandboxed_workflow_runner=runner,
        build_id=_BUILD,
        identity=settings.name or None,
        max_cached_workflows=settings.cached,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_timeout),
        max_concurrent_activities=settings.max_steps,
        graceful_shutdown_timeout=timedelta(seconds=settings.grace),
        max_heartbeat_throttle_interval=timedelta(seconds=_HEARTBEATS_S),
        default_heartbeat_throttle_interval=timedelta(seconds=_HEARTBEATS_S),
    )
