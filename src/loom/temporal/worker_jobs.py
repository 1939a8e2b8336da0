"""What a worker does beside its tasks: it tells runs of new code and of terminated children, and finds problems.

- A run that began with other code than this worker has is told of the new code (`CodeAnnouncer`).
- A child tells its parent itself how it ended. A terminated child cannot, and the server tells only the execution that
  began it. So a worker asks the server about children of runs in its memory that began in an earlier execution. It
  sends the message that a terminated child would have sent (`ChildWatch`). The reducer drops what it knows already.
- A run on a cluster ends without a transaction of Loom's, so a worker looks for failed, parked and stuck runs
  (`ProblemWatch`). A problem becomes a notice: a run whose id is that of the problem, so it is started once. How far
  the looks have come is an entry of the store, from which the next process goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from temporalio.client import WorkflowExecutionStatus, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from loom.core.ticks import TickChildEnded
from loom.runtime.durable.problems import is_notice, problem_of
from loom.runtime.lru_cache import LruCache
from loom.store.records import RunQuery
from loom.temporal.client.records import how_closed
from loom.temporal.names import SIGNAL_CODE, SIGNAL_MAIL
from loom.temporal.payloads import NewCode, RunMessage
from loom.temporal.rpc import ClientLink, RunGone, RunUnreachable, in_time
from loom.temporal.workflow.flush import ended_from_outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from temporalio.client import Client, WorkflowHandle

    from loom.api.problems import ProblemKind
    from loom.core.state import BrokerConfig
    from loom.runtime.durable.problems import Problems
    from loom.runtime.durable.registration import Registration
    from loom.store.committer import Committer
    from loom.store.records import RunRow
    from loom.temporal.store import TemporalStore
    from loom.temporal.workflow.runner import LoomRunner

_log = logging.getLogger("loom.temporal")

# -- new code ----------------------------------------------------------------------------------------------------------

_REMEMBERED = 10_000
"""Runs that a worker remembers to have told."""


class CodeAnnouncer:
    """Tells each run of new code once, and once more if it is parked. A run drops code that is older than its own."""

    def __init__(self, codes: Mapping[str, Registration], client: Callable[[], Client]) -> None:
        self._codes = codes
        self._client = client
        self._since = time.time()
        """How new the code of this process is, in seconds since the epoch."""
        self._told: dict[str, tuple[BrokerConfig, bool]] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def listen(self, runner: LoomRunner) -> None:
        """Hear from a runner of runs with other code, in any thread; act on the event loop that runs now."""
        loop = asyncio.get_running_loop()
        runner.on_other_code = lambda *run: on_loop(loop, self._has_other_code, *run)

    async def close(self) -> None:
        """Stop telling."""
        for each in self._telling:
            each.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _has_other_code(self, run_id: str, name: str, is_parked: bool) -> None:
        code = self._codes.get(name)
        if code is None:
            return
        told = self._told.get(run_id)
        # Whatever parks a run again and again, it is not tried again and again.
        if told is not None and told[0] == code.config and (told[1] or not is_parked):
            return
        self._told[run_id] = (code.config, is_parked)
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        news = NewCode(code.config, self._since, code.keeps_timeout)
        task = asyncio.get_running_loop().create_task(self._tell(run_id, news))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, run_id: str, news: NewCode) -> None:
        try:
            await ClientLink(self._client(), run_id).signal(SIGNAL_CODE, news)
        except (RunGone, RunUnreachable) as error:
            self._told.pop(run_id, None)  # the next worker that has it in memory tries again
            _log.debug("Run %s was not told of new code: %s", run_id, error)


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call a function on the event loop. A worker that shuts down may still work when the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *arguments)


# -- children ----------------------------------------------------------------------------------------------------------

_PAUSE_S = 10.0
"""Seconds between two looks."""
_AT_ONCE = 200
"""Children per look. The others have their turn with the next looks."""
_CALLS = 10
"""Calls that are open at a time."""
_WATCHED = 10_000
"""Children that a worker watches at most. Above that it drops the oldest."""
_PATIENCE = timedelta(seconds=10)

_WITHOUT_A_WORD = frozenset({WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT})
"""Ways to close an execution without its run. In all others the run has told its parent before."""


class _Watched(NamedTuple):
    """A child, by the number under which its parent waits for it."""

    parent: str
    number: int


class ChildWatch:
    """The children that a worker watches, for parents that it has had in memory."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._children: dict[_Watched, str] = {}
        """The run ids of children; the next to look at is first."""
        self._looking: asyncio.Task[None] | None = None
        self._has_complained = False

    def listen(self, runner: LoomRunner) -> None:
        """Hear from a runner of children, in any thread; act on the event loop that runs now."""
        loop = asyncio.get_running_loop()
        runner.on_children = lambda *told: on_loop(loop, self.add, *told)

    async def close(self) -> None:
        """Stop watching."""
        looking, self._looking = self._looking, None
        self._children.clear()
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def add(self, parent: str, children: Mapping[int, str]) -> None:
        """Watch children of a run, by their numbers, until they have closed."""
        for number, run_id in children.items():
            self._children.setdefault(_Watched(parent, number), run_id)
        while len(self._children) > _WATCHED:
            del self._children[next(iter(self._children))]
            if not self._has_complained:
                self._has_complained = True
                _log.warning(
                    "More than %s child runs began before their parents went on in a new execution. If some of them "
                    "are terminated on Temporal, their parents may hear of it late.",
                    _WATCHED,
                )
        if self._children and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look_on(), name="loom children")

    async def _look_on(self) -> None:
        while self._children:
            await asyncio.sleep(_PAUSE_S)
            turn = dict(list(self._children.items())[:_AT_ONCE])
            for child in turn:
                del self._children[child]
            calls = asyncio.Semaphore(_CALLS)
            looks = await asyncio.gather(*(self._has_closed(child, run_id, calls) for child, run_id in turn.items()))
            for (child, run_id), has_closed in zip(turn.items(), looks, strict=True):
                if not has_closed:
                    self._children[child] = run_id  # after the others

    async def _has_closed(self, child: _Watched, run_id: str, calls: asyncio.Semaphore) -> bool:
        """Look at one child, and tell its parent if the child cannot do so itself. False: look again."""
        async with calls:
            try:
                return await self._look(child, run_id)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    _log.warning("Run %s waits for its child %s, which is not on the cluster.", child.parent, run_id)
                    return True
                _log.debug("The child run %s was not seen: %s", run_id, error)
            except RunGone:
                return True  # the parent has closed
            except RunUnreachable as error:
                _log.debug("Run %s was not told of its child: %s", child.parent, error)
            except Exception:  # noqa: BLE001 - the log has it, and the next look may succeed
                _log.exception("The child run %s could not be looked at, and will be again.", run_id)
        return False

    async def _look(self, child: _Watched, run_id: str) -> bool:
        client = self._client()
        handle = client.get_workflow_handle(run_id)
        status = (await in_time(handle.describe(rpc_timeout=_PATIENCE))).status
        if status is WorkflowExecutionStatus.RUNNING or status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return False
        if status in _WITHOUT_A_WORD:
            failure = ended_from_outside(run_id, await _how(handle))
            tick = TickChildEnded(at=0.0, child=child.number, status="failed", failure=failure)
            await ClientLink(client, child.parent).signal(SIGNAL_MAIL, RunMessage(tick))
        return True


async def _how(handle: WorkflowHandle[object, object]) -> str:
    """Return the words for the event that closed an execution."""
    closing = WorkflowHistoryEventFilterType.CLOSE_EVENT
    event = await in_time(anext(handle.fetch_history_events(event_filter_type=closing, rpc_timeout=_PATIENCE), None))
    return "" if event is None else how_closed(event)


# -- problems ----------------------------------------------------------------------------------------------------------

_MARKS = "problem-mark"
_OVERLAP_S = 600.0
"""Seconds; visibility follows within one as a rule. A run that it shows later than this is not found."""
_CLOCKS_DIFFER_S = 60.0
"""Seconds; runs end by the clock of the server."""
_PAGE = 200


class _Mark(NamedTuple):
    """How far the looks for problems have come, for one channel. Times are seconds since the epoch."""

    first: float
    """When its first hook was registered. Earlier failures are not told."""
    last: float
    """The time up to which all problems were found."""


class ProblemWatch:
    """Looks for problems of runs, for the hooks of this process."""

    def __init__(self, store: TemporalStore, committer: Committer, problems: Problems, now: float) -> None:
        self._store = store
        self._committer = committer
        self._problems = problems
        self._began = now - _CLOCKS_DIFFER_S
        self._found: LruCache[str, bool] = LruCache(10_000)
        """Problems whose notices this process has started."""

    async def look(self, now: float) -> None:
        """Start notices for all problems since the last look, and store how far that came."""
        marks = {channel: await self._mark(channel) for channel in self._problems.own}
        first, last = (min(times) for times in zip(*marks.values(), strict=True))
        async for row in self._store.failed_since(max(first, last - _OVERLAP_S)):
            await self._tell(row, "failed", row.head.failed_with, now)
        if self._store.has_attributes:  # else every run would have to be asked
            async for row in self._listed(RunQuery(status="running", parked=True, limit=_PAGE)):
                await self._tell(row, "parked", row.head.parked, now)
            async for row in self._listed(RunQuery(status="running", stuck=True, limit=_PAGE)):
                await self._tell(row, "stuck", row.head.stuck, now)
        for channel, mark in marks.items():
            await self._store.put_entry(_MARKS, channel, msgspec.json.encode(_Mark(mark.first, now)))

    async def _mark(self, channel: str) -> _Mark:
        entry = await self._store.entry(_MARKS, channel)
        return msgspec.json.decode(entry.data, type=_Mark) if entry is not None else _Mark(self._began, self._began)

    async def _listed(self, query: RunQuery) -> AsyncIterator[RunRow]:
        while rows := await self._store.find(query):
            for row in rows:
                yield row
            query = msgspec.structs.replace(query, after=(rows[-1].created_at, rows[-1].run_id))

    async def _tell(self, row: RunRow, kind: ProblemKind, message: str | None, now: float) -> None:
        problem = problem_of(row, row.head, kind, message)
        if is_notice(row.workflow) or self._found.get(problem.id):
            return
        for notice in self._problems.notices(problem, now):
            await self._committer.submit(notice)
        self._found.put(problem.id, True)
