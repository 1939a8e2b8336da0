"""Random operations on a database and on the store in memory, side by side: every result and every read is the same."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from store_databases import Database, Memory, new_database
from store_pairs import DIGESTS, RUN_IDS, WORKFLOWS, Maker, Side, everything, plain_result, plain_row, some_query

from loom.store.memory import MemoryStore
from loom.store.memory_tables import Transaction
from loom.store.ports import Store


class SideBySide(RuleBasedStateMachine):
    """Two stores that get the same operations."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.times = count(100)
        self.databases: tuple[Database, Database] = (Memory(), new_database(self.kind, Path(self.folder.name)))
        self.stores: tuple[Store, Store]
        self.fences: tuple[int, int]

    def teardown(self) -> None:
        for database in self.databases:
            self.runner.run(database.dispose())
        self.runner.close()
        self.folder.cleanup()

    def both(self, one: Any, other: Any) -> tuple[Any, Any]:
        """The results of two awaitables."""

        async def result(given: Any) -> Any:
            return await given

        return self.runner.run(result(one)), self.runner.run(result(other))

    @initialize()
    def join(self) -> None:
        one, other = self.databases
        self.stores = self.both(one.open(), other.open())
        members = self.both(*(store.join("m", 600.0) for store in self.stores))
        self.fences = (members[0].fence, members[1].fence)

    @rule(chance=st.integers(0, 4))
    def restart(self, chance: int) -> None:
        """Now and then, since it takes long."""
        if chance < 4:
            return
        self.both(*(store.close() for store in self.stores))
        self.join()
        self.look(0)

    @rule(data=st.data(), size=st.integers(1, 4))
    def apply(self, data: st.DataObject, size: int) -> None:
        """A group. Its operations are drawn by what each of them will find."""
        memory = self.stores[0]
        assert isinstance(memory, MemoryStore)
        draft = Transaction(memory.database.tables)
        maker = Maker(data.draw, draft.finish, lambda: float(next(self.times)))
        sides = [self.side(number) for number in range(2)]
        groups: tuple[list[Any], list[Any]] = ([], [])
        for _ in range(size):
            made = maker.operation()
            for group, side in zip(groups, sides, strict=True):
                group.append(made(side))
            draft.apply(groups[0][-1:])
        results = self.both(*(store.apply(group) for store, group in zip(self.stores, groups, strict=True)))
        ours, theirs = ([plain_result(result) for result in one] for one in results)
        assert theirs == ours
        self.look(data.draw(st.integers(0, 6)))

    def side(self, number: int) -> Side:
        store = self.stores[number]
        messages = {run_id: [entry.id for entry in self.runner.run(store.inbox(run_id, 0))] for run_id in RUN_IDS}
        return Side(self.fences[number], messages)

    def look(self, place: int) -> None:
        ours, theirs = self.both(*(everything(store, place) for store in self.stores))
        assert theirs == ours

    @rule(digest=st.sampled_from(DIGESTS), chance=st.integers(0, 4))
    def save_document(self, digest: str, chance: int) -> None:
        """Now and then, since a document that was saved is never deleted any more."""
        if chance == 0:
            self.both(*(store.save_document(digest, b"saved") for store in self.stores))
            self.look(0)

    @rule(query=some_query)
    def find(self, query: Any) -> None:
        ours, theirs = self.both(*(store.find(query) for store in self.stores))
        assert [plain_row(row) for row in theirs] == [plain_row(row) for row in ours]

    @rule(back=st.integers(0, 20), limit=st.integers(1, 4))
    def timers_due(self, back: int, limit: int) -> None:
        before = next(self.times) - back + 0.5
        ours, theirs = self.both(*(store.timers_due(WORKFLOWS, before, limit) for store in self.stores))
        assert theirs == ours

    @rule(run_ids=st.lists(st.sampled_from(RUN_IDS), max_size=3))
    def next_timers(self, run_ids: list[str]) -> None:
        ours, theirs = self.both(*(store.next_timers(run_ids) for store in self.stores))
        assert theirs == ours


@pytest.mark.parametrize(("kind", "share"), [("memory", 10), ("sqlite", 10), ("postgres", 50)])
def test_a_store_does_what_the_store_in_memory_does(kind: str, share: int) -> None:
    machine = type("SideBySide", (SideBySide,), {"kind": kind})
    # Making a failure smaller takes many runs, and minutes where each of them needs a server.
    phases = [phase for phase in Phase if kind != "postgres" or phase is not Phase.shrink]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(10, settings.default.max_examples // share),
            stateful_step_count=20,
            phases=phases,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
