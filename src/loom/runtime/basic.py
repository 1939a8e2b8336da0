"""The default runtime, under the names that programs know it by, with its journals.

May import loom.steps, loom.effects and the rest of loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from typing_extensions import override

from loom.core.state import BrokerState
from loom.core.ticks import TickEditStore, TickStartRun
from loom.runtime.memory import MemoryRuntime
from loom.steps import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from loom.core.ticks import WorkflowTick
    from loom.runtime.journal_codec import JournalCodec
    from loom.runtime.live import LiveRun
    from loom.steps.context import Context
    from loom.steps.events import StartEvent
    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import InMemoryStateStore, StateCheckpoint
    from loom.steps.workflow import Workflow


class JournalRecord(NamedTuple):
    """One tick of a run: its place in the journal, which goes on across resumes, and its text, to be kept as it is."""

    seq: int
    data: str


class BasicRuntime(MemoryRuntime):
    """The runtime in memory. A run's journal can be read while the run or its handler lives, and restored later."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._known: WeakValueDictionary[str, LiveRun] = WeakValueDictionary()
        self._began_at: WeakKeyDictionary[LiveRun, int] = WeakKeyDictionary()

    @property
    @override
    def is_launched(self) -> bool:
        """Always: runs need no launch here."""
        return True

    @override
    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> LiveRun:
        """Begin a run, or go on with a restored one."""
        live = super().start_run(workflow, run_id, start_event, staged, resumed)
        self._known[live.run_id] = live
        if resumed is not None:
            self._began_at[live] = resumed.ticks
        return live

    def _find(self, run_id: str) -> LiveRun:
        live = self._known.get(run_id)
        if live is None:
            raise RuntimeError(f"No active workflow with run_id '{run_id}'.")
        return live

    async def journal(self, run_id: str) -> AsyncIterator[JournalRecord]:
        """The run's ticks from its start or resume, then the new ones as they come, until it ends."""
        live = self._find(run_id)
        codec = _codec(live.workflow, live.workflow._get_serializer())
        first = self._began_at.get(live, 0)
        position = 0
        while True:
            is_done = live.is_done
            while position < len(live.journal):
                yield JournalRecord(first + position, codec.encode(live.journal[position]))
                position += 1
            if is_done:
                return
            if position == len(live.journal) and not live.is_done:
                await live.wait_news()

    def restore(
        self,
        workflow: Workflow,
        snapshot: dict[str, Any] | None,
        records: Iterable[JournalRecord],
        serializer: BaseSerializer | None = None,
    ) -> Context[Any]:
        """A context that goes on where the records end.

        `snapshot` is a `Context.to_dict()`, None for the beginning; records that it covers are skipped. A record that
        is missing is a `ValueError`. Edits of the store that the records tell of are made to the snapshot's store.
        """
        from loom.runtime.journal_replay import catch_up
        from loom.steps.context import Context
        from loom.steps.planner import StepsPlanner
        from loom.steps.state_store import InMemoryStateStore

        used = serializer if serializer is not None else workflow._get_serializer()
        context: Context[Any] = Context(workflow, serializer=serializer)
        state, store = BrokerState(), None
        if snapshot is not None:
            state, store = _load(workflow, snapshot, used)
        ticks = list(_tail(records, state.ticks, _codec(workflow, used)))
        if ticks:
            state = catch_up(state, ticks, StepsPlanner(), _saved_sequence(snapshot))
            if store is None:
                store = InMemoryStateStore(state_type=workflow._get_state_type())
            _repeat_edits(store, ticks)
        context._restored, context._staged = state, store
        return context

    def state_checkpoint(self, run_id: str) -> StateCheckpoint:
        """The run's committed state by reference; its `diff` with an earlier one is a JSON Patch."""
        return self._find(run_id).store.checkpoint()


def _codec(workflow: Workflow, serializer: BaseSerializer) -> JournalCodec:
    from loom.runtime.journal_codec import JournalCodec

    return JournalCodec(serializer, workflow._get_state_type())


def _load(
    workflow: Workflow, snapshot: dict[str, Any], serializer: BaseSerializer
) -> tuple[BrokerState, InMemoryStateStore[Any] | None]:
    from loom.steps.snapshot import restore

    stamp = snapshot.get("last_alive_stamp")
    return restore(workflow, snapshot, serializer, now=stamp if isinstance(stamp, int | float) else None)


def _saved_sequence(snapshot: dict[str, Any] | None) -> int:
    extra = snapshot.get("loom") if snapshot is not None else None
    return int(extra.get("sequence", 0)) if isinstance(extra, dict) else 0


def _tail(records: Iterable[JournalRecord], expected: int, codec: JournalCodec) -> Iterator[WorkflowTick]:
    """The ticks from the expected number on, without a gap."""
    for record in records:
        if record.seq < expected:
            continue
        if record.seq > expected:
            raise ValueError(f"Journal gap: expected seq {expected}, got {record.seq}")
        yield codec.decode(record.data)
        expected += 1


def _repeat_edits(store: InMemoryStateStore[Any], ticks: list[WorkflowTick]) -> None:
    from loom.steps.state_store import StoreEdit

    for tick in ticks:
        if isinstance(tick, TickStartRun) and tick.store:
            store.apply_edit(StoreEdit(store.version, tick.store))
        elif isinstance(tick, TickEditStore):
            store.apply_edit(StoreEdit(store.version, tick.changed, tick.removed))


basic_runtime = BasicRuntime()


def get_current_runtime() -> ports.RuntimePort:
    """The runtime of an enclosing `with runtime.registering():`, else the default one."""
    return ports.registering_runtime.get() or basic_runtime
