"""The runtime over a cluster: what `loom.connect("temporal://...")` gives. The cluster moves the runs; a process that
has registered workflows is a worker of their task queue.

May import temporalio, loom.runtime and the rest of loom.temporal.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import override

from loom.core.ticks import TickContinueRun
from loom.runtime.durable.working import WorkingRuntime
from loom.store.codec import encode_tick
from loom.store.deaths import POISON
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import PostMail
from loom.store.records import RunQuery
from loom.temporal.child_watch import ChildWatch
from loom.temporal.code_news import CodeNews, on_loop
from loom.temporal.ends import Endings
from loom.temporal.history_shield import RecordedHistory
from loom.temporal.payloads import NewCode
from loom.temporal.polling import CountingRunner, make_worker
from loom.temporal.problem_watch import ProblemWatch
from loom.temporal.settings import TemporalSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from temporalio.client import Client
    from temporalio.worker import Worker

    from loom.runtime.durable.figures import RunFact
    from loom.runtime.durable.watching import News
    from loom.temporal.store import TemporalStore

_log = logging.getLogger("loom.temporal")

_STARTING_S = 0.002
_LOOK_S = 30.0
"""An end is told by the server; it is looked for now and then all the same."""
_PARKED_LOOKS_S = (0.0, 5.0, 60.0)
"""Parked runs are looked for with these pauses: the cluster's visibility has what was parked a little later."""
_PARKED_AGAIN_S = 300.0
"""And then again and again: an old worker of a rolling deployment may park a run at any time."""


class TemporalRuntime(WorkingRuntime):
    """Runs workflows on a cluster.

    Without a registered workflow it is a client. With one it is a worker: one for all workflows that are registered,
    whenever that is. Steps that are under way when it stops run again elsewhere.
    """

    store: TemporalStore
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
        self._ends = self.endings = Endings(lambda: store.client)
        self._runner = CountingRunner(self.codes, self._settings.activities)
        self._worker: Worker | None = None
        self._polling: asyncio.Task[None] | None = None
        self._news = CodeNews(self.codes, lambda: store.client)
        self._children = ChildWatch(lambda: store.client)
        self._retrying: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The client of the cluster, once the runtime is open."""
        return self.store.client

    def code_of(self, name: str) -> NewCode | None:
        """The code of a name as the reducer sees it, if it is at hand."""
        code = self.codes.get(name)
        return NewCode(code.config, keeps_timeout=code.keeps_timeout) if code is not None else None

    # -- working ------------------------------------------------------------------------------------------------------

    @override
    async def _join(self) -> None:
        if self._polling is not None:
            return
        loop = asyncio.get_running_loop()
        runner = self._runner
        runner.on_activated = lambda run_id, ticks: on_loop(loop, self._has_grown, run_id, ticks)
        runner.on_counted = lambda workflow, fact: on_loop(loop, self._count, workflow, fact)
        runner.histories = RecordedHistory(lambda: self.store.client, loop)
        self._news.listen(runner)
        self._children.listen(runner)
        queue = self.store.address.task_queue
        self._worker = worker = make_worker(self.store.client, queue, self.codes, self._settings, runner, self.measured)
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
        await self._news.close()
        await self._children.close()
        await self._ends.close()

    def _stopped(self, polling: asyncio.Task[None]) -> None:
        """The worker has ended by itself: this process begins anew."""
        if self._polling is not polling or not self._open or polling.cancelled():
            return
        _log.error("The worker at %s has ended, and begins anew: %s", self.store.address.url, polling.exception())
        self._polling = None
        self._begin(self._rejoin())

    @override
    async def _take_up(self, names: Sequence[str]) -> None:
        """The worker finds their code in `codes`, and the cluster gives it their runs. Parked ones are tried again."""
        if names and self.store.has_attributes:  # else every run would have to be asked
            self._in_background(self._retry_parked(tuple(names)))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        retrying = asyncio.get_running_loop().create_task(work)
        self._retrying.add(retrying)
        retrying.add_done_callback(self._retrying.discard)
        return retrying

    async def _retry_parked(self, names: tuple[str, ...]) -> None:
        """The code of workflows has come: see whether runs that are parked can go on with it. Each is tried once."""
        tried: set[str] = set()
        for pause in _PARKED_LOOKS_S:
            await asyncio.sleep(pause)
            await self._try_parked(names, tried)

    async def _look_for_parked(self) -> None:
        """See now and then whether runs were parked for which the code is here. Each is tried once."""
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
                    await self.committer.submit(PostMail(row.run_id, encode_tick(TickContinueRun(at=at)), at))
                    tried.add(row.run_id)
            query = msgspec.structs.replace(query, after=(rows[-1].created_at, rows[-1].run_id))

    async def _watch_problems(self, watch: ProblemWatch) -> None:
        """Tell the hooks of this process what is wrong with runs, as long as it works."""
        while True:
            try:
                await watch.look(self.now())
            except StoreError as error:
                _log.error("Runs with problems were not looked for, and will be again: %s", error)
            await asyncio.sleep(self._settings.problem_interval)

    # -- what the worker tells, from its threads ----------------------------------------------------------------------

    @override
    def _on_news(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self.watchers.wake(run_id)
            self.endings.wake(run_id)
        if not run_ids:
            self.watchers.wake_all()
            self.endings.wake_all()

    def _has_grown(self, run_id: str, ticks: int) -> None:
        """A run of this worker has had ticks, which its readers may see."""
        self.measured.ticks += ticks
        self.watchers.wake(run_id)

    def _count(self, workflow: str, fact: RunFact) -> None:
        """A run of this worker was started, has ended or was parked."""
        self.measured.of_workflow(workflow).count(fact)

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
    def figures(self) -> dict[str, int]:
        counted = self.measured
        return {"in_memory": self._runner.in_memory, "released": counted.released, "resumed": counted.resumed}
