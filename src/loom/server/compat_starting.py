"""How a handler begins, and begins again. May import loom.runtime, loom.steps and loom.store."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.runtime.durable.names import HANDLER_AGAIN, HANDLER_REQUEST
from loom.runtime.durable.starting import start_spec
from loom.runtime.flow import Flow
from loom.server.compat_handlers import handler_of, latest_run, run_after
from loom.server.views import HANDLER
from loom.steps.context import Context
from loom.store.errors import RunNotFound

if TYPE_CHECKING:
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.working import WorkingRuntime
    from loom.store.codec import StartSpec
    from loom.store.records import RunRow


class HandlerBusy(Exception):
    """The handler cannot begin a run now; the text says why."""


class Beginning:
    """What a client has asked a workflow to begin with."""

    def __init__(self, code: Registered, inputs: Any, context: dict[str, Any] | None = None) -> None:
        self.code = code
        self._inputs = inputs
        self._context = context

    def spec(self) -> StartSpec:
        """What the run begins with. Of a context only the state counts: a run that it had begun stays where it is."""
        spec = start_spec(self.code, self.code.convert, self._inputs)
        staged = Context.from_dict(self.code.workflow, self._context)._staged if self._context else None
        if staged is None:
            return spec
        store, store_type = self.code.convert.store_values(staged)
        return replace(spec, store=store, store_type=store_type)


async def begin(runtime: WorkingRuntime, beginning: Beginning, handler_id: str | None, nonce: str | None) -> str:
    """Start a run for a handler and return the run's id, once it is stored.

    A handler that has ended begins again, in a run of its own, with the state that its last run left. Without a name
    it gets that of the request, if that has one, so that a request that is repeated finds its run.
    """
    await runtime.ready()
    name, spec = beginning.code.name, beginning.spec()
    if handler_id is None:
        handler_id = nonce or uuid.uuid4().hex
        await runtime._start(name, handler_id, spec, {HANDLER: handler_id}, beginning.code)
        return handler_id
    tags = {HANDLER: handler_id} if nonce is None else {HANDLER: handler_id, HANDLER_REQUEST: nonce}
    last = await latest_run(runtime, handler_id)
    if last is None:
        return await _started(runtime, beginning, handler_id, spec, tags)
    if nonce is not None and last.tags.get(HANDLER_REQUEST) == nonce and last.workflow == name:
        return last.run_id
    _check_free(last, handler_id, name)
    if not spec.store and not isinstance(beginning.code.workflow, Flow):  # a flow has no state but that of its run
        try:
            state = await runtime.state_at(last.run_id)
        except RunNotFound:  # the handler was deleted meanwhile, so that this is its first run again
            return await begin(runtime, beginning, handler_id, nonce)
        spec = replace(spec, store=dict(state.store), store_type=state.store_type)
    after = await run_after(runtime, last)
    return await _started(runtime, beginning, after.run_id, spec, {**tags, HANDLER_AGAIN: str(after.number)})


async def _started(
    runtime: WorkingRuntime, beginning: Beginning, run_id: str, spec: StartSpec, tags: dict[str, str]
) -> str:
    """Start a run of this id. One that somebody else has started meanwhile is theirs, also if it began alike."""
    created = await runtime._start(beginning.code.name, run_id, spec, tags, beginning.code)
    if not created:
        found, request = await runtime.row(run_id), tags.get(HANDLER_REQUEST)
        if request is None or found.tags.get(HANDLER_REQUEST) != request:
            raise HandlerBusy(f"The handler {tags[HANDLER]!r} is running.")
    return run_id


def _check_free(last: RunRow, handler_id: str, workflow: str) -> None:
    if last.workflow != workflow:
        # Which workflow has it may be none of the caller's business.
        raise HandlerBusy(f"The name {handler_id!r} is taken: choose another handler_id.")
    if handler_of(last) != handler_id:
        raise HandlerBusy(f"{handler_id!r} is a run of the handler {handler_of(last)!r}: choose another handler_id.")
    if last.head.status == "running":
        raise HandlerBusy(f"The handler {handler_id!r} is running.")
