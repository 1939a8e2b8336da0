"""What a fork has otherwise than its source: its input, edits of its store or variables, an event that it gets first.

They are part of the fork's own journal, stored in one transaction with it: the input in its first tick, an edit and an
event as ticks behind the last one that is kept. So a replay of the fork needs nothing of its source.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from loom.core.ticks import TickAddEvent, TickEditStore, TickStartRun
from loom.runtime.planners import program_in
from loom.steps.errors import WorkflowRuntimeError
from loom.store import codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.persistent import Map
    from loom.core.planner import Planner
    from loom.core.records import EventRecord
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program
    from loom.flows.state import Variable
    from loom.runtime.durable.run_client import RunClient
    from loom.steps.events import Event
    from loom.steps.state_store.edits import StoreEdit
    from loom.store.records import RunRow


class CannotFork(ValueError):
    """The run cannot be forked so; `field` names the part of the request that is wrong."""

    def __init__(self, message: str, field: Literal["tick", "input", "event", "store"]) -> None:
        super().__init__(message)
        self.field = field


class ForkChanges(NamedTuple):
    """What a caller wants to be otherwise in a fork."""

    input: Any = None
    """Fields of the start event, the event itself, or the body of a flow's trigger; None: as the source began."""
    event: Event | None = None
    store: Mapping[str, Any] | None = None
    """New values by dotted path: of the store of steps, of the variables of a flow."""

    @property
    def is_any(self) -> bool:
        """Whether anything changes."""
        return self.input is not None or self.event is not None or bool(self.store)


class ForkMaker:
    """Makes the changes of one fork."""

    def __init__(self, client: RunClient, row: RunRow, changes: ForkChanges) -> None:
        self._client = client
        self._row = row
        self._changes = changes

    # -- another input ------------------------------------------------------------------------------------------------

    def first_tick(self, first: TickStartRun, tick: int, planner: Planner) -> TickStartRun:
        """Return the first tick of the fork, with another input if one is given."""
        given = self._changes.input
        if given is None:
            return first
        if tick != 0:
            message = f"Another input needs a fork at tick 0, where the run begins, not at tick {tick}."
            raise CannotFork(message, "input")
        program = program_in(planner)
        try:
            event = self._steps_start(first) if program is None else self._flow_start(first, program)
        except (TypeError, ValueError, WorkflowRuntimeError) as error:
            raise CannotFork(str(error), "input") from error
        return replace(first, event=event)

    def _flow_start(self, first: TickStartRun, program: Program) -> EventRecord:
        """Begin the flow with another body, and with the parameters, variables and headers that it had."""
        from loom.flows.calls import FlowStart
        from loom.flows.plain import plain_value
        from loom.flows.triggers import body_problems

        assert first.event is not None
        start = first.event.body
        assert isinstance(start, FlowStart)
        body = plain_value(self._changes.input, "input")
        if problems := body_problems(program, start.trigger, body):
            raise ValueError(f"The flow cannot begin so: {' '.join(problems)}")
        return replace(first.event, body=replace(start, body=body))

    def _steps_start(self, first: TickStartRun) -> EventRecord | None:
        """Make the start event anew, by the code of this process."""
        from loom.steps.events import StartEvent

        given = self._changes.input
        code = self._client.codes.get(self._row.workflow)
        if code is None:
            message = f"The code of {self._row.workflow!r} is not known here, and its start event cannot be made."
            raise CannotFork(message, "input")
        if not isinstance(given, dict | StartEvent):
            raise TypeError(f"The input of a run is a dict or a StartEvent, not {type(given).__name__}.")
        spec = code.start_spec(None, given) if isinstance(given, StartEvent) else code.start_spec(given)
        return code.first_tick(first.run_id, spec, first.at).event

    def start(self, run_id: str, stored: bytes, first: TickStartRun) -> bytes:
        """Return what the fork began with, as it is stored beside its journal."""
        if self._changes.input is None:
            return stored
        return codec.encode_start(replace(codec.decode_start(run_id, stored), event=first.event, inputs=None))

    # -- ticks behind the last one that is kept -----------------------------------------------------------------------

    async def ticks(self, state: BrokerState) -> list[WorkflowTick]:
        """Return the ticks that make the edits, and then bring the event."""
        made: list[WorkflowTick] = []
        if self._changes.store:
            is_flow = self._row.document is not None
            made += self._edit_variables(state) if is_flow else await self._edit_store(state)
        if self._changes.event is not None:
            made.append(TickAddEvent(at=state.at, event=self._record(self._changes.event), accepted=True))
        return made

    def _record(self, event: Event) -> EventRecord:
        from loom.steps.graph import is_bound, is_own  # commands that only look start without the events of steps

        code = self._client.codes.get(self._row.workflow)
        record = self._client.codec_of(self._row).sent(event, is_known=code is not None)
        if is_own(record.kind) or is_bound(record.kind):
            raise CannotFork(f"{record.kind.label} begins or ends a run, or is the engine's own.", "event")
        return record

    async def _edit_store(self, state: BrokerState) -> list[WorkflowTick]:
        """Edit the state store of steps, each path as `ctx.store.set` does."""
        events = self._client.codec_of(self._row)
        edits: list[StoreEdit] = []

        def note(edit: StoreEdit) -> bool:
            edits.append(edit)
            return True

        assert self._changes.store is not None
        try:
            store = events.store_from(state.store, state.store_type, state.store_version)
            store.on_edit = note
            for path, value in self._changes.store.items():
                await store.set(path, value)
            written = [(edit.base_version, *events.store_edit(edit)) for edit in edits]
        except (ValueError, TypeError, KeyError, AttributeError, LookupError) as error:
            raise CannotFork(f"The store cannot be edited so: {error}", "store") from error
        return [
            TickEditStore(at=state.at, base_version=version, changed=changed, removed=removed, state_type=state_type)
            for version, changed, removed, state_type in written
        ]

    def _edit_variables(self, state: BrokerState) -> list[WorkflowTick]:
        """Give variables of a flow other values, or change parts of them."""
        from loom.expressions.errors import FunctionError
        from loom.flows.nodes.data import with_value
        from loom.flows.plain import plain_value

        assert self._changes.store is not None
        known: Map[str, Variable] = state.plan.variables
        changed: dict[str, Any] = {}
        for path, value in self._changes.store.items():
            name, _, rest = (path, "", "") if path.lower() in known else path.partition(".")
            variable = known.get(name.lower())
            if variable is None:
                names = ", ".join(sorted(each.name for each in known.values())) or "none"
                raise CannotFork(f"The flow has no variable {name!r} at this tick; it has {names}.", "store")
            try:
                after = plain_value(value, path)
                if rest:
                    after = _with_part(changed.get(variable.name, variable.whole()), rest.split("."), after)
                with_value(variable, after)
            except (ValueError, LookupError, TypeError, FunctionError) as error:
                raise CannotFork(f"The variable {name!r} cannot be changed so: {error}", "store") from error
            changed[variable.name] = after
        return [TickEditStore(at=state.at, base_version=state.store_version, changed=changed)]


def _with_part(value: Any, path: list[str], part: Any) -> Any:
    """Return a copy of a value with another part: a key of an object, or an index of an array, at each step."""
    whole = copy.deepcopy(value)
    at = whole
    for step in path[:-1]:
        at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
    if isinstance(at, list):
        at[int(path[-1])] = part
    elif isinstance(at, dict):
        at[path[-1]] = part
    else:
        raise ValueError(f"{path[-1]!r} is no part of it")
    return whole
