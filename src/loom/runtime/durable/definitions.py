"""What a runtime does about the definitions in its store: it records the flows that are registered, takes up what was
put, here or elsewhere, and says which version a run begins with.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from loom.effects.off_loop import aside
from loom.flows.diagnostics import DefinitionError, did_you_mean
from loom.flows.document import digest_of
from loom.runtime.durable.catalog import CATALOG
from loom.runtime.durable.names import OWN
from loom.runtime.durable.registration import FlowRegistration, warn_of_refusals
from loom.runtime.durable.stored_definitions import (
    DEFINITIONS,
    DefinitionNotFound,
    DefinitionNumbers,
    DefinitionUnreadable,
    NameTaken,
    can_be_defined,
    keep,
    read_definition,
)
from loom.runtime.flow import FlowDefinition, flow_of
from loom.runtime.planners import flow_planner
from loom.store.errors import StoreUnavailable
from loom.store.loop_time import until_look
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.stored_definitions import StoredDefinition, Version
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.runtime.flow import Flow
    from loom.store.records import Entry


_log = logging.getLogger("loom.durable")

_PAGE = 100
_POLLS = 3
"""Poll intervals between two looks for changed definitions, which change less often than runs."""
_OLDER = 16
"""How many versions are kept loaded that are not current, for those who start them by number."""


class Definitions(DefinitionNumbers):
    """The definitions of a store, for one runtime."""

    def __init__(self, runtime: WorkerRuntime, *, follow: bool, poll_interval: float) -> None:
        super().__init__(runtime.store, runtime.now)
        self._runtime = runtime
        self.follow = follow
        """Whether this process works for all flows that are stored, not only for those that were registered here."""
        self._interval_s = _POLLS * poll_interval
        self.deleted: set[str] = set()
        """Names whose runs go on here, and under which nothing new starts."""
        self._unrecorded: dict[str, FlowRegistration] = {}
        self._seen: dict[str, int] = {}
        """The versions of the entries that were read."""
        self._older: dict[str, FlowRegistration] = {}
        self._turn = asyncio.Lock()
        """Held while an entry is read and its flow adopted: an older one never comes after a newer one."""
        self._task: asyncio.Task[None] | None = None

    # -- with the runtime ---------------------------------------------------------------------------------------------

    def registered(self, code: Registration) -> None:
        """A workflow was registered here: a flow gets its number when work for it begins."""
        self.deleted.discard(code.name)
        self._unrecorded.pop(code.name, None)
        if isinstance(code, FlowRegistration) and can_be_defined(code.name):
            self._unrecorded[code.name] = code

    async def begin(self, *, records: bool = True) -> list[str]:
        """Record what was registered, and begin to follow what is stored. The names of what has come by that.

        A process beside the one that works records nothing: its flows become the current versions when it takes over.
        """
        async with self._turn:
            waiting = list(self._unrecorded.items()) if records else []
            at_once = self._runtime.definitions_at_once
            for start in range(0, len(waiting), at_once):
                # Together, because a store commits together what comes at once. All of them are waited for.
                recording = (self._record(name, code) for name, code in waiting[start : start + at_once])
                for failed in await asyncio.gather(*recording, return_exceptions=True):
                    if failed is not None:
                        raise failed
        if not self.follow or self._task is not None:
            return []
        found = await self.look()
        self._task = asyncio.get_running_loop().create_task(self._look_on(), name="loom definitions")
        return found

    async def _record(self, name: str, code: FlowRegistration) -> None:
        try:
            _, definition = await self.stored.put(name, *code.document)
        except DefinitionUnreadable as error:
            _log.error("A flow is worked for without a number for its version: %s", error)
        else:
            self.learn(name, definition.latest)
        if self._unrecorded.get(name) is code:
            del self._unrecorded[name]

    async def close(self) -> None:
        """Follow no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._seen.clear()
        self._turn = asyncio.Lock()  # the next opening may be in another event loop

    async def _look_on(self) -> None:
        is_failing = False
        while True:
            await until_look(self._interval_s, asyncio.get_running_loop().create_future())
            try:
                self._runtime.work_for(await self.look())
                is_failing = False
            except Exception as error:  # noqa: BLE001 - whatever it is, the log tells it, and the next look may be fine
                if not is_failing:
                    _log.error("Looking for definitions has failed, and is tried again: %s", error)
                is_failing = True

    async def look(self) -> list[str]:
        """Refresh what was put or deleted elsewhere. The names of what has changed here by that."""
        changed: list[str] = []
        after = ""
        while entries := await self._runtime.store.entries(DEFINITIONS, after, _PAGE):
            for entry in entries:
                if self._seen.get(entry.key) != entry.version and await self._is_changed_by(entry):
                    changed.append(entry.key)
            if len(entries) < _PAGE:
                break
            after = entries[-1].key
        return changed

    async def _is_changed_by(self, entry: Entry) -> bool:
        """Refresh one of many: what is wrong with it is told once, and keeps nobody from the others."""
        changed = False
        try:
            changed = await self._refresh(entry.key)
        except DefinitionUnreadable as error:
            _log.error("A definition is left out: %s", error)
        self._seen[entry.key] = entry.version
        return changed

    # -- putting and deleting -----------------------------------------------------------------------------------------

    async def put(
        self, name: str, flow: Flow, check: Callable[[StoredDefinition | None], None] | None = None
    ) -> tuple[StoredDefinition | None, StoredDefinition]:
        """Store a flow under a name and work for it. What was stored before, and what is now.

        `check` may refuse what is there by an exception. Runs under way keep their version. A process that works for
        nothing else stays a client: it leaves this to others, too.
        """
        await self._runtime.ready()
        self.check_free(name)
        before, after = await self.stored.put(name, flow.digest, flow.document.encode(), check)
        if self._runtime.codes or self.follow:
            await self._work_for(name, flow)
        return before, after

    async def delete(self, name: str, check: Callable[[StoredDefinition | None], None] | None = None) -> None:
        """Let nothing new start under a name. Runs under way go on, with their version."""
        await self._runtime.ready()
        self.check_free(name)
        await self.stored.delete(name, check)
        if name in self._runtime.codes:
            await self._work_for(name)

    async def _work_for(self, name: str, flow: Flow | None = None) -> None:
        """Work for what was stored just now."""
        try:
            if await self._refresh(name, flow):
                self._runtime.work_for([name])
        except StoreUnavailable as error:
            if not self.follow:
                raise
            _log.error("The definition %r was changed, and is taken up when the store is back: %s", name, error)

    def check_free(self, name: str) -> None:
        """Refuse a name that belongs to Python code here, or to the engine."""
        if name.startswith(OWN):
            raise NameTaken(name, "Loom itself")
        if not can_be_defined(name):
            raise ValueError(f"The name of a definition has 1 to 200 characters that can be stored, unlike {name!r}.")
        code = self._runtime.codes.get(name)
        if code is not None and not isinstance(code, FlowRegistration):
            raise NameTaken(name, "a workflow in Python")

    # -- versions -----------------------------------------------------------------------------------------------------

    async def text_of(self, name: str, version: Version) -> str:
        """The text that a version is stored as; `DefinitionUnreadable` if it is not there as it was put."""
        text = ((await self._runtime.store.document(version.digest)) or b"").decode(errors="replace")
        if digest_of(text) != version.digest:
            raise DefinitionUnreadable(name, version.number, "its text is missing or damaged")
        return text

    async def load(self, name: str, version: Version) -> Flow:
        """A stored version as a flow; `DefinitionUnreadable` if it cannot be one here."""
        text = await self.text_of(name, version)
        try:
            # In a thread, for a large document takes its time.
            what = f"Version {version.number} of the flow {name!r}"
            return await aside("replay", _ready_flow, text, what)
        except (DefinitionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DefinitionUnreadable(name, version.number, " ".join(str(error).split())) from error

    async def code_for(self, name: str, version: int | None = None) -> Registration | None:
        """Return the code that a new run begins with; None if it is not registered here, and others may have it.

        `DefinitionNotFound` if the flow was deleted, or has no such version.
        """
        code = self._runtime.codes.get(name)
        if code is not None and not isinstance(code, FlowRegistration):
            if version is not None:
                raise DefinitionNotFound(name, "is written in Python, and has no versions by number")
            return code
        if version is None and not self.follow:
            if name in self.deleted:
                raise DefinitionNotFound(name, "was deleted")
            return code
        definition = await self.stored.get(name)
        if definition is None:
            if version is not None:
                raise DefinitionNotFound(name, f"has no version {version}")
            return code
        if definition.deleted_at is not None:
            raise DefinitionNotFound(name, "was deleted")
        self.learn(name, definition.latest)
        return await self._code_of(name, code, definition, version)

    async def code_and_definition(self, name: str) -> tuple[Registration | None, StoredDefinition | None]:
        """Return the code that a new run begins with, see `code_for`, and what is stored of it if it is a flow."""
        code = self._runtime.codes.get(name)
        if code is not None and not isinstance(code, FlowRegistration):
            return code, None
        definition = await self.stored.get(name)
        if definition is None:
            return code, None
        if definition.deleted_at is not None:
            raise DefinitionNotFound(name, "was deleted")
        if not self.follow:
            return code, definition
        self.learn(name, definition.latest)
        return await self._code_of(name, code, definition, None), definition

    async def check_known(self, name: str) -> None:
        """Refuse a name without code here that is close to a known one, unless anything in the store has it.

        `DefinitionNotFound` with the known name. A process without any code is a client, which leaves the work to
        others: it may start what nobody has worked for so far.
        """
        runtime, store = self._runtime, self._runtime.store
        if not runtime.codes:
            return
        entry = await store.entry(CATALOG, name) or await store.entry(DEFINITIONS, name)
        if entry is not None or await store.find(RunQuery(workflow=name, limit=1)):
            return
        known = {*runtime.codes, *await runtime.catalog.names("", _PAGE)}
        known |= {each.key for each in await store.entries(DEFINITIONS, "", _PAGE)}
        known = {each for each in known if not each.startswith(OWN)}
        # A class that was registered without a name goes by `module.Class`.
        of_class = sorted(each for each in known if each.rpartition(".")[2].lower() == name.lower())
        hint = f" Did you mean '{of_class[0]}'?" if of_class else did_you_mean(name, known)
        if hint:
            raise DefinitionNotFound(name, "is not known here", hint)

    async def _code_of(
        self, name: str, code: FlowRegistration | None, definition: StoredDefinition, number: int | None
    ) -> Registration | None:
        wanted = definition.latest if number is None else definition.numbered(number)
        if wanted is None:
            raise DefinitionNotFound(name, f"has no version {number}: its current one is {definition.current}")
        if code is not None and code.document[0] == wanted.digest:
            return code
        if number is None:
            if await self._refresh(name):
                self._runtime.work_for([name])
            return self._runtime.codes.get(name)
        older = self._older.get(wanted.digest)
        if older is None or older.name != name:
            flow, services = await self.load(name, wanted), self._runtime.services
            older = FlowRegistration(name, FlowDefinition(flow), services, code.surroundings if code else None)
            keep(self._older, wanted.digest, older, _OLDER)
        return older

    # -- refreshing ---------------------------------------------------------------------------------------------------

    async def _refresh(self, name: str, flow: Flow | None = None) -> bool:
        """Work for the current version of a name, as it is stored now. Return whether that is a change.

        A deleted one is worked for too: runs that have begun go on. `flow` saves a load if it is that version.
        """
        async with self._turn:
            entry = await self._runtime.store.entry(DEFINITIONS, name)
            if entry is None:
                return False
            changed = await self._follow_to(name, read_definition(entry), flow)
            self._seen[name] = entry.version
            return changed

    async def _follow_to(self, name: str, definition: StoredDefinition, flow: Flow | None) -> bool:
        current = definition.latest
        self.learn(name, current)
        code = self._runtime.codes.get(name)
        if code is not None and not isinstance(code, FlowRegistration):
            return False  # the class that was registered here has the name
        was_deleted, is_deleted = name in self.deleted, definition.deleted_at is not None
        (self.deleted.add if is_deleted else self.deleted.discard)(name)
        if code is not None and code.document[0] == current.digest:
            return was_deleted != is_deleted
        if flow is None or flow.digest != current.digest:
            flow = await self.load(name, current)
        if name in self._unrecorded or self._runtime.codes.get(name) is not code:
            return False  # what was registered here is about to become the current version, or has come since
        self._runtime.adopt(name, flow)
        return True


def _ready_flow(text: str, what: str) -> Flow:
    """A flow whose planner is made too, for those who will work for it."""
    flow = flow_of(text)
    warn_of_refusals(flow, what)
    flow_planner(flow.document.encode())
    return flow
